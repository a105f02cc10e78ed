"""`batch_N.jsonl`: the trajectory lines, where they are and whether they are sound."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Self

import xxhash

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from hermes_run.store.entry import JournalLine, Place

_NAME = re.compile(r"batch_(\d+)\.jsonl")
_OPEN_AT_ONCE = 64


def batch_path(folder: Path, number: int) -> Path:
    """Where a batch's lines are."""
    return folder / f"batch_{number}.jsonl"


def batch_numbers(folder: Path) -> list[int]:
    """The batch files that are there, in order."""
    names = (_NAME.fullmatch(name) for name in os.listdir(folder))  # noqa: PTH208 - names alone, there may be many
    return sorted(int(name[1]) for name in names if name)


def line_hash(line: bytes) -> str:
    """xxh3_128 (hex) of a line without its newline."""
    return xxhash.xxh3_128_hexdigest(line)


class BatchReader:
    """Reads lines by their place. Keeps a few files open; a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def read(self, place: Place | JournalLine) -> bytes | None:
        """The line at a place, or None when it is missing, torn or not the one that was written."""
        try:
            file = self._file(place.batch)
        except FileNotFoundError:
            return None
        line = os.pread(file, place.length, place.offset)
        sound = len(line) == place.length and line_hash(line) == place.line_hash
        return line if sound else None

    def _file(self, number: int) -> int:
        file = self._files.get(number)
        if file is None:
            if len(self._files) >= _OPEN_AT_ONCE:
                os.close(self._files.pop(next(iter(self._files))))
            file = os.open(batch_path(self._folder, number), os.O_RDONLY | os.O_CLOEXEC)
            self._files[number] = file
        return file


def set_aside(path: Path, data: bytes) -> Path:
    """Keep bytes that are no sound line in `<name>.bad` beside their file; where that is."""
    bad = path.with_name(f"{path.name}.bad")
    with bad.open("ab") as stream:
        stream.write(data if data.endswith(b"\n") else data + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
    return bad


def blank_out(folder: Path, place: Place | JournalLine) -> None:
    """Turn a damaged line into spaces, its bytes kept aside: offsets stay, and the file can be read."""
    path = batch_path(folder, place.batch)
    with path.open("r+b") as stream:
        stream.seek(place.offset)
        found = stream.read(place.length)
        if not found.strip():
            return
        set_aside(path, found)
        stream.seek(place.offset)
        stream.write(b" " * len(found) + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
