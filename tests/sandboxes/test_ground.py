"""The folder of a run's sandboxes: whose it is, at every instant of its making and its removal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from hermes_run.core.contracts import Leftover
from hermes_run.errors import BackendMissing
from hermes_run.runner.backends import leftovers_of
from hermes_run.sandboxes import _ground, bubblewrap
from hermes_run.sandboxes._ground import (
    OWNER,
    Ground,
    dead_grounds,
    is_of_earlier_start,
    owner,
    remove_ground,
)
from hermes_run.sandboxes.local import LocalBackend
from hermes_run.spec.model import Settings


def test_ground_killed_before_its_label_is_removed_and_a_new_one_being_made_lives() -> None:
    ground = Ground("ground-test", "local", remove_ground, in_memory=False)
    ground.prepare()
    beside = Path(ground.path).parent
    unborn = [beside / f"hermes-run-{os.getuid()}-unborn-{os.getpid()}-{number}" for number in range(4)]
    for path in unborn:
        path.mkdir()
    (unborn[1] / "run").touch()
    (unborn[2] / "run").touch()
    (unborn[3] / "other").touch()
    with (unborn[2] / "run").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for backend in ("local", "bubblewrap"):
            dead = {path for path, _ in dead_grounds(backend)}
            assert dead & {*map(str, unborn), ground.path} == {str(unborn[0]), str(unborn[1])}
        for path in (*unborn, Path(ground.path)):
            remove_ground(str(path))
        assert [path.exists() for path in unborn] == [False, False, True, True]
        assert Path(ground.path).exists()
    for path in unborn[2:]:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    ground.remove_now()
    assert not Path(ground.path or beside / "none").exists()


def test_what_is_just_being_removed_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    dead, ending = (Leftover(run=run, what="folder", handle=run) for run in ("dead", "ending"))
    looks = [[dead, ending], [dead], [ending], []]
    monkeypatch.setattr(LocalBackend, "leftovers", lambda _: looks.pop(0))
    backends = {"local": LocalBackend("another", Settings())}
    (said,) = asyncio.run(leftovers_of(backends))
    assert "(run dead)" in said
    assert asyncio.run(leftovers_of(backends)) == []


def test_who_looks_at_a_dead_ground_hides_it_from_nobody_who_looks_at_the_same_time() -> None:
    path = Path(tempfile.gettempdir(), f"hermes-run-{os.getuid()}-looked-{os.getpid()}")
    path.mkdir()
    (path / "run").write_text('{"run": "looked-at", "backend": "local"}')
    with (path / "run").open() as looker:
        fcntl.flock(looker, fcntl.LOCK_SH)
        assert (str(path), "looked-at") in dead_grounds("local")
        remove_ground(str(path))
    assert not path.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is Linux's")
def test_bwrap_that_lost_its_runner_in_its_start_is_killed_with_the_ground() -> None:
    ground = Ground("orphan-test", "bubblewrap", bubblewrap.sweep, in_memory=True)
    other = Ground("living-test", "bubblewrap", bubblewrap.sweep, in_memory=True)
    ground.prepare()
    other.prepare()
    waiting = [
        subprocess.Popen(
            ["bwrap", "-c", "read x", f"{one.path}/x-1"], executable="/bin/bash", stdin=subprocess.PIPE
        )
        for one in (ground, other)
    ]
    time.sleep(0.1)
    ground.remove_now()
    try:
        assert waiting[0].wait(5) == -signal.SIGKILL
        assert waiting[1].poll() is None
    finally:
        other.remove_now()
        assert waiting[1].wait(5) == -signal.SIGKILL
        for process in waiting:
            assert process.stdin is not None
            process.stdin.close()


def test_owners_of_one_place_are_equal_and_another_folder_for_locks_is_another_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = owner()
    assert owner() == here
    assert not is_of_earlier_start(here)
    monkeypatch.setattr(_ground, "_IN_MEMORY", str(tmp_path / "none"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    elsewhere = owner()
    assert (elsewhere[OWNER] == here[OWNER], elsewhere == here) == (True, False)
    assert not is_of_earlier_start(elsewhere)


@pytest.mark.parametrize(
    ("name", "works"), [("tmp ü", False), ("it's", False), ("a,b:c", False), ("ü+1@x%~-", True)]
)
def test_a_folder_for_temporary_files_whose_name_is_taken_apart_is_told_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, works: bool
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))

    async def check() -> None:
        backend = LocalBackend("ground-test", Settings())
        try:
            await backend.check()
        finally:
            await backend.aclose()

    if works:
        asyncio.run(check())
        return
    with pytest.raises(BackendMissing, match="such a name") as caught:
        asyncio.run(check())
    assert "TMPDIR" in caught.value.cure
