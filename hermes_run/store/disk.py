"""The few ways in which a run directory is written. All of them survive a kill at any instant."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hermes_run.errors import DiskFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_AT_ONCE_BYTES = 1 << 17
"""What is written at once: few calls, and still in the processor's cache."""


@contextmanager
def telling_of_full_disk(path: Path) -> Iterator[None]:
    """Turns "no space left" into DiskFull with the place and the cure."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        raise DiskFull(
            f"{path}: no space left ({error.strerror}); nothing that was reported is lost. "
            "Free some space and run the same command again"
        ) from error


class Appender:
    """Appends whole lines to a file: a line is there whole, or (a kill) as a torn tail, or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with telling_of_full_disk(path):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.size = os.fstat(self._file).st_size
        self.dirty = False

    def append(self, line: bytes) -> int:
        """Write `line` and a newline; the offset where it begins. Raises DiskFull, nothing written."""
        data, written = line + b"\n", 0
        with telling_of_full_disk(self.path):
            try:
                while written < len(data):
                    written += os.write(self._file, data[written:])
            except OSError:
                if written:
                    os.ftruncate(self._file, self.size)
                raise
        start = self.size
        self.size += len(data)
        self.dirty = True
        return start

    def begin_sync(self) -> Callable[[], None]:
        """What brings all appended so far to the disk; may be called from another thread, once."""
        if not self.dirty:
            return lambda: None
        self.dirty = False
        file = os.dup(self._file)

        def finish() -> None:
            try:
                with telling_of_full_disk(self.path):
                    os.fsync(file)
            finally:
                os.close(file)

        return finish

    def close(self) -> None:
        """Close; what was not synced is the caller's business."""
        os.close(self._file)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: beside it, synced, then renamed over it. Raises DiskFull."""
    with replacing(path) as write:
        write(data)


@contextmanager
def replacing(path: Path) -> Iterator[Callable[[bytes], None]]:
    """A `write(bytes)` whose bytes stand in `path` once the block ends well, and nowhere otherwise."""
    beside = path.with_name(f".{path.name}.new")
    with telling_of_full_disk(path):
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        pieces: list[bytes] = []
        held = 0

        def flush() -> None:
            nonlocal held
            view = memoryview(b"".join(pieces))
            while view:
                view = view[os.write(file, view) :]
            pieces.clear()
            held = 0

        def write(data: bytes) -> None:
            nonlocal held
            pieces.append(data)
            held += len(data)
            if held >= _AT_ONCE_BYTES:
                flush()

        try:
            try:
                yield write
                flush()
                os.fsync(file)
            finally:
                os.close(file)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        beside.replace(path)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk."""
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def remove_stale(folder: Path) -> None:
    """Remove what a kill left of files that were being replaced."""
    for name in os.listdir(folder):  # noqa: PTH208 - names alone, there may be many
        if name.startswith(".") and name.endswith(".new"):
            (folder / name).unlink(missing_ok=True)
