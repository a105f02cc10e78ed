"""The cells in which gates keep what rollouts share: in this process, or in a file for several.

All processes of a run on one machine see the same monotonic clock, so times can be shared as they are.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class Board:
    """`size` doubles of one process, all zero. A context manager, held while several of them change."""

    def __init__(self, size: int) -> None:
        self.cells: memoryview[float] = memoryview(bytearray(8 * size)).cast("d")

    def __enter__(self) -> None:
        """Nothing to wait for: one thread."""

    def __exit__(self, *_: object) -> None:
        """Nothing to give back."""

    def close(self) -> None:
        """Nothing to close."""


class SharedBoard(Board):
    """The same in a file that other processes have open too.

    Whoever finds nobody else there begins with zeros: what an earlier run knew is old. The file stays
    until whoever closes it last removes it and its folder; a killed process leaves them, and they are
    harmless. Raises OSError where there are no locks.
    """

    def __init__(self, size: int, path: Path) -> None:
        self._path = path
        self._file = _open_locked(path)
        self._presence = os.open(f"{path}.users", _FLAGS, 0o600)
        try:
            if _is_alone(self._presence):
                os.ftruncate(self._file, 0)
            os.ftruncate(self._file, 8 * size)
            fcntl.flock(self._presence, fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._map = mmap.mmap(self._file, 8 * size)
        self.cells = memoryview(self._map).cast("d")

    def __enter__(self) -> None:
        """Wait for the other processes: they hold it for microseconds."""
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        """Let the next one in."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Leave; the last one removes the files."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        if _is_alone(self._presence):
            for path in (self._path, self._path.with_name(f"{self._path.name}.users")):
                path.unlink(missing_ok=True)
            with suppress(OSError):  # something else lies there, or somebody comes just now
                self._path.parent.rmdir()
        self.abandon()

    def abandon(self) -> None:
        """Leave everything as it is."""
        os.close(self._presence)
        os.close(self._file)


def _open_locked(path: Path) -> int:
    """The file, locked; not one that its last user removed meanwhile."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            descriptor = os.open(path, _FLAGS, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
            os.close(descriptor)


def _is_alone(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
