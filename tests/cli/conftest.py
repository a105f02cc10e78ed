"""The command line as a user meets it: a process with stdout, stderr and an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.calling import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    def call(
        *words: object, env: dict[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hermes_run", *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), **(env or {})},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return call
