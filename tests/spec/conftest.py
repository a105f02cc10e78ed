from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spec.writing import DATASET, ROW

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a test, with a dataset; nothing of this machine's settings or keys."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("OPENROUTER_API_KEY", "OPENAI_API_KEY", "MY_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / DATASET).write_text(ROW)
    return tmp_path
