"""Where the whole of a long output is kept: a file in the sandbox, written by the runner."""

from __future__ import annotations

import contextlib
import os

KEPT = 8
"""So many such files are kept per sandbox; the oldest goes first."""
_MOST = 256 << 20
SUFFIXES = ("", "-a", "-b", "-c")
"""For names that the sandbox has taken itself. Never random: the path is part of what a model reads."""


def most_spilled(memory_mb: int) -> int:
    """Bytes of one file: a sixteenth of the sandbox's memory, 256 MiB at most.

    All that are kept fit in half of it, where the sandbox's files live in its memory.
    """
    return min(_MOST, (memory_mb << 20) // (2 * KEPT))


class SpillFolder:
    """A folder of the sandbox that long outputs go to.

    Args:
        inside: its path inside the sandbox.
        most: bytes kept of one output.
    """

    def __init__(self, inside: str, most: int) -> None:
        self._inside = inside
        self._most = most
        self._names: list[str] = []
        self._number = 0

    def open(self, folder: int) -> FileSpill | None:
        """A new file; `folder` is a descriptor of the folder. None when it cannot be made.

        The name is new and no link is followed: what the sandbox has put there is left alone.
        """
        self._number += 1
        if len(self._names) >= KEPT:
            with contextlib.suppress(OSError):  # the sandbox may have removed it itself
                os.unlink(self._names.pop(0), dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        for suffix in SUFFIXES:
            name = f"output-{self._number}{suffix}.txt"
            with contextlib.suppress(OSError):
                file = os.open(name, flags, 0o600, dir_fd=folder)
                self._names.append(name)
                return FileSpill(file, f"{self._inside}/{name}", self._most)
        return None


class FileSpill:
    """One output's file."""

    def __init__(self, file: int, path: str, most: int) -> None:
        self._file = file
        self._path = path
        self._room = most
        self._has_failed = False

    def write(self, data: bytes) -> None:
        """Add what there is room for."""
        piece = memoryview(data)[: self._room]
        try:
            while piece and not self._has_failed:
                written = os.write(self._file, piece)
                self._room -= written
                piece = piece[written:]
        except OSError:  # the sandbox's disk is full: what is there stays
            self._has_failed = True

    def close(self) -> str:
        """The file's path inside the sandbox, or "" when the sandbox had no room for it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        return "" if self._has_failed else self._path
