"""The lock of a run directory: who writes, who reads, and who only looks."""

from __future__ import annotations

import fcntl
import os
import threading
from typing import TYPE_CHECKING

import pytest

from hermes_run.errors import RunLocked
from hermes_run.store import layout
from hermes_run.store.parts import held

if TYPE_CHECKING:
    from pathlib import Path


def test_who_only_looks_keeps_nobody_out(tmp_path: Path) -> None:
    """`status` again and again beside the start of a run."""
    (tmp_path / layout.LOCK).touch()
    looker = (tmp_path / layout.LOCK).open()
    fcntl.flock(looker, fcntl.LOCK_SH)
    threading.Timer(0.05, looker.close).start()
    with layout.locked(tmp_path):
        assert layout.is_locked(tmp_path)
    assert not layout.is_locked(tmp_path)


def test_a_writer_is_named_and_a_reader_is_told(tmp_path: Path) -> None:
    with (
        layout.locked(tmp_path),
        pytest.raises(RunLocked, match=rf"process {os.getpid()} .*is working in"),
        layout.locked(tmp_path),
    ):
        pass
    with (
        held(tmp_path),
        pytest.raises(RunLocked, match="another command is reading"),
        layout.locked(tmp_path),
    ):
        pass
    with layout.locked(tmp_path):
        pass
