"""The folder of a run's browser, and how a dead run's is known."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_run.outside.ground import BrowserGround, BrowserLeftovers

if TYPE_CHECKING:
    import pytest


def test_a_dead_runs_folder_is_found_and_removed_while_others_look_at_it_too() -> None:
    living = BrowserGround("living")
    path = Path(tempfile.gettempdir(), f"hermes-run-chromium-{os.getuid()}-looked-{os.getpid()}")
    path.mkdir()
    (path / "run").write_text('{"run": "looked-at"}')
    leftovers = BrowserLeftovers()
    with (path / "run").open() as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        found = {leftover.handle: leftover for leftover in leftovers.leftovers()}
        assert found[str(path)].run == "looked-at"
        assert str(living.path) not in found
        leftovers.remove(found[str(path)])
    assert not path.exists()
    living.remove()
    assert not living.path.exists()


def test_a_folder_swept_before_it_was_locked_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[Path] = []
    flock = fcntl.flock

    def sweep_first(file: int, kind: int) -> None:
        if not swept:
            folder = Path(f"/proc/self/fd/{file}").readlink().parent
            swept.append(folder)
            (folder / "run").unlink()
            folder.rmdir()
        flock(file, kind)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    ground = BrowserGround("swept")
    assert ground.path.exists()
    assert ground.path != swept[0]
    ground.remove()
