"""`hermes-run clean` says what it did, and what it could not do."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.calling import Cli


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Path]:
    """The folder of a dead run whose control group cannot be removed (a plain folder that is not empty)."""
    if sys.platform != "linux":
        pytest.skip("bubblewrap is Linux's")
    mark = f"test{os.getpid()}"
    path = Path(f"/dev/shm/hermes-run-{os.getuid()}-{mark}")
    try:
        path.mkdir()
    except OSError:
        pytest.skip("no /dev/shm to write to")
    (path / "run").write_text(json.dumps({"run": mark, "backend": "bubblewrap", "pid": 1}))
    (path / "groups").write_text(f"{tmp_path}\n")
    (tmp_path / f"hermes-run-{mark}-x").mkdir()
    (tmp_path / f"hermes-run-{mark}-x" / "in use").touch()
    yield path
    for file in path.glob("*"):
        file.unlink()
    if path.exists():
        path.rmdir()


def test_what_cannot_be_removed_is_said_and_removed_the_next_time(
    cli: Cli, ground: Path, tmp_path: Path
) -> None:
    run = ground.name.rpartition("-")[2]
    listed = cli("clean", "--run", run, "--dry-run")
    assert (listed.returncode, "would remove" in listed.stdout) == (0, True)
    first = cli("clean", "--run", run, "--json")
    assert first.returncode == 1
    assert json.loads(first.stdout)["removed"] == []
    assert [entry["run"] for entry in json.loads(first.stdout)["left"]] == [run]
    assert "cannot remove" in first.stderr
    assert ground.exists()
    (tmp_path / f"hermes-run-{run}-x" / "in use").unlink()
    second = cli("clean", "--run", run)
    assert (second.returncode, second.stderr) == (0, "")
    assert "removed bubblewrap folder" in second.stdout
    assert not ground.exists()


@pytest.mark.parametrize("name", ["", "/"])
def test_no_name_of_a_run_is_not_every_run(cli: Cli, name: str) -> None:
    refused = cli("clean", "--run", name, "--dry-run")
    assert (refused.returncode, "name of a run" in refused.stderr) == (2, True)
