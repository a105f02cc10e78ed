"""`journal.jsonl`: append-only, one line per outcome as it happens; and its fold."""

from __future__ import annotations

import os
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, structs

from hermes_run.core.keys import pack_key
from hermes_run.core.text import command_line
from hermes_run.core.trajectory import Status
from hermes_run.errors import JournalDamaged
from hermes_run.store.disk import Appender, telling_of_full_disk
from hermes_run.store.entry import (
    JUDGED,
    LOST,
    UNPAID,
    JournalLine,
    Place,
    decode_line,
    decode_place,
    follows,
    is_same_line,
    next_sum,
    seal,
    split_line,
    unseal,
)
from hermes_run.store.usages import UsageSum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hermes_run.core.messages import Usage

_CODES = {status.value: code for code, status in enumerate(Status)}
_NAMES = [status.value for status in Status]
_FAILED = _CODES[Status.FAILED.value]
_CODE_BITS = 3
_CODE_MASK = 3
_OFFSET_BITS = 48
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_LINE_IS_ELSEWHERE = 4
"""Bit of an entry that has a trajectory, and whose line is in no batch file of this directory."""


class Fold:
    """Packed rollout key -> its status and where in the journal its entry is.

    The last entry of a key wins, but `failed` never replaces one with a trajectory, and `lost` (of the
    line that counts) takes the key out. 1,000,000 keys take about 200 MB.

    A run directory made of manifests alone has entries of trajectories whose lines are elsewhere. They
    count in every comparison, and are pending for a run (`recovery.recover`).
    """

    def __init__(self) -> None:
        self._index: dict[bytes, int] = {}  # batch, offset in the journal, code
        self._spent = UsageSum()
        self.has_lines_elsewhere = False

    @property
    def spent(self) -> Usage:
        """What all attempts used."""
        return self._spent.total()

    def __len__(self) -> int:
        return len(self._index)

    def add(self, key: bytes, place: Place, offset: int) -> None:
        """Take in the journal line at `offset`, of this packed key."""
        if place.status == LOST:
            self._index.pop(key, None)
            return
        if place.source not in UNPAID:
            self._spent.add(place.usage)
        code = _CODES[place.status]
        if code == _FAILED:
            if self._index.get(key, _FAILED) & _CODE_MASK != _FAILED:
                return
        elif not place.length:
            code |= _LINE_IS_ELSEWHERE
            self.has_lines_elsewhere = True
        self._index[key] = (place.batch << _OFFSET_BITS | offset) << _CODE_BITS | code

    def status(self, key: bytes) -> str | None:
        """The status of a packed key, or None."""
        value = self._index.get(key)
        return None if value is None else _NAMES[value & _CODE_MASK]

    def is_line_elsewhere(self, key: bytes) -> bool:
        """Whether a packed key's entry has a trajectory, and its line is not in this directory."""
        return bool(self._index.get(key, 0) & _LINE_IS_ELSEWHERE)

    def lines_elsewhere(self) -> list[bytes]:
        """All packed keys of which that is so, sorted."""
        if not self.has_lines_elsewhere:
            return []
        return sorted(key for key, value in self._index.items() if value & _LINE_IS_ELSEWHERE)

    def offset(self, key: bytes) -> int:
        """Where in the journal its entry is. Raises KeyError."""
        return self._index[key] >> _CODE_BITS & _OFFSET_MASK

    def batch(self, key: bytes) -> int:
        """The batch of its entry. Raises KeyError."""
        return self._index[key] >> _CODE_BITS + _OFFSET_BITS

    def offsets(self, most: int) -> list[int]:
        """Where so many entries are, evenly from all of them, in the order in which their keys came."""
        step = max(1, -(-len(self._index) // most))
        return [value >> _CODE_BITS & _OFFSET_MASK for value in islice(self._index.values(), 0, None, step)]

    def offsets_in(self, batches: set[int]) -> list[int]:
        """Where the entries of some batches are."""
        values = self._index.values()
        return [
            value >> _CODE_BITS & _OFFSET_MASK
            for value in values
            if value >> _CODE_BITS + _OFFSET_BITS in batches
        ]

    def sorted_keys(self) -> list[bytes]:
        """All packed keys, sorted: the manifest's order."""
        return sorted(self._index)


class Damage(Struct, frozen=True):
    """What is wrong with a journal, and at which byte."""

    offset: int
    what: str


class Reading:
    """One pass over a journal file: its sound lines, its damages, its torn tail."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damages: list[Damage] = []
        self._sum = 0
        self.end = 0
        self.lacks_newline = False

    @property
    def last_sum(self) -> str:
        """The sum of the last line read."""
        return f"{self._sum:016x}"

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(offset, line) of every line whose own checks pass; damages are collected on the way.

        A last line without a newline is a torn tail unless it is whole; `end` is where the sound part
        ends.
        """
        offset = 0
        with self.path.open("rb") as stream:
            for raw in stream:
                total = next_sum(raw, self._sum)
                if total >= 0:
                    self._sum = total
                    yield offset, raw
                    self.end = offset = offset + len(raw)
                    continue
                whole = raw.endswith(b"\n")
                sealed = unseal(raw[:-1] if whole else raw)
                fault = "is no journal line"
                if sealed is not None:
                    body, told = sealed
                    fault = "" if follows(body, told, self.last_sum) else "does not follow the one before"
                if fault and not whole:
                    return
                if sealed is not None:
                    self._sum = int(told, 16)
                if fault:
                    self.damages.append(Damage(offset, fault))
                if sealed is not None:
                    yield offset, raw
                offset += len(raw)
                self.end = offset
                self.lacks_newline = not whole


def read_places(reading: Reading) -> Iterator[tuple[int, bytes, Place]]:
    """(offset, packed key, place) of every line that can be read as an entry; others are damages."""
    for offset, raw in reading.lines():
        is_damaged = any(damage.offset == offset for damage in reading.damages[-1:])
        try:
            place = decode_place(raw)
            if is_damaged:  # it may lack what a place does not need
                decode_line(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            reading.damages.append(Damage(offset, "is no entry"))
            continue
        split = split_line(raw)
        if split is None or (place.status not in _CODES and place.status != LOST):
            reading.damages.append(Damage(offset, "has no legal key or status"))
            continue
        yield offset, split[0], place


class JournalView:
    """A journal read once and folded; nothing is written.

    Attributes:
        fold: what counts.
        batches: batch number -> how many bytes of its file entries point into.
        last_places: batch number -> the entry that points farthest.
        damages: what is wrong before the tail.
        torn: bytes of a torn last line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fold = Fold()
        self.batches: dict[int, int] = {}
        self.last_places: dict[int, Place] = {}
        self.torn = 0
        self.lines = 0
        self.reading = Reading(path)
        self._reader = -1
        if path.exists():
            self._reader = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            for offset, key, place in read_places(self.reading):
                if place.status == LOST:
                    self._take(key, place, offset)
                else:
                    self.fold.add(key, place, offset)
                    self._reach(place)
                self.lines += 1
            self.torn = path.stat().st_size - self.reading.end

    @property
    def damages(self) -> list[Damage]:
        """What is wrong before the tail."""
        return self.reading.damages

    def _take(self, key: bytes, place: Place, offset: int) -> None:
        if place.status != LOST or self._counts(key, place):
            self.fold.add(key, place, offset)
        self._reach(place)

    def _counts(self, key: bytes, lost: Place) -> bool:
        """Whether the line that is lost is the one that its key's entry points to, not an older one."""
        entry = self.find(key)
        return entry is not None and is_same_line(entry, lost)

    def refuse_damage(self) -> None:
        """Raises JournalDamaged, and closes it, when anything but the tail is damaged."""
        if self.damages:
            first = self.damages[0]
            self.close()
            raise JournalDamaged(
                f"{self.path}: damaged at byte {first.offset} (the line {first.what}; {len(self.damages)} "
                f"in all). Rebuild it from the batch files: {command_line('repair', self.path.parent)}"
            )

    def _reach(self, place: Place) -> None:
        batch, end = place.batch, place.offset + place.length + 1 if place.length else 0
        farthest = self.batches.get(batch, -1)
        if end > farthest:
            self.batches[batch] = end
            self.last_places[batch] = place
        elif end == farthest and place.status == LOST and is_same_line(place, self.last_places[batch]):
            self.last_places[batch] = place  # known to be gone

    def is_end_lost(self, batch: int) -> bool:
        """Whether the line at the end of a batch file was written off: the file may well be shorter."""
        last = self.last_places.get(batch)
        return last is not None and last.status == LOST

    def at(self, offset: int) -> JournalLine:
        """The line at an offset of the fold."""
        size = 2048
        while True:
            data = os.pread(self._reader, size, offset)
            end = data.find(b"\n")
            if end >= 0:
                return decode_line(data[:end])
            if len(data) < size:
                return decode_line(data)
            size *= 4

    def find(self, key: bytes) -> JournalLine | None:
        """The entry of a packed key, or None."""
        return None if self.fold.status(key) is None else self.at(self.fold.offset(key))

    def entries(self) -> Iterator[JournalLine]:
        """The fold's entries, sorted by key."""
        for key in self.fold.sorted_keys():
            yield self.at(self.fold.offset(key))

    def close(self) -> None:
        """Close it."""
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1


class Journal(JournalView):
    """The journal of an open run directory: read once, then appended to."""

    def __init__(self, path: Path) -> None:
        """Read and fold it; cut off a torn tail.

        Raises JournalDamaged when anything but the tail is damaged.
        """
        super().__init__(path)
        self.refuse_damage()
        if self.torn:
            with telling_of_full_disk(path):
                os.truncate(path, self.reading.end)
        self._file = Appender(path)
        self._sum = self.reading.last_sum
        if self.reading.lacks_newline:
            self._file.append(b"")
        if self._reader < 0:
            self._reader = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self._file.size

    def append(self, line: JournalLine) -> None:
        """Write an entry down. Raises DiskFull, nothing written."""
        raw, total = seal(line, self._sum)
        offset = self._file.append(raw)
        self._sum = total
        place = Place(*(getattr(line, name) for name in Place.__struct_fields__))
        self._take(pack_key(line.key), place, offset)

    def append_lost(self, line: JournalLine) -> None:
        """Write down that a trajectory line is damaged: if it is the one that counts, its key is pending."""
        self.append(structs.replace(line, status=LOST, source=JUDGED, sum=""))

    def begin_sync(self) -> Callable[[], None]:
        """See Appender.begin_sync."""
        return self._file.begin_sync()

    def close(self) -> None:
        """Sync and close."""
        super().close()
        file = getattr(self, "_file", None)
        if file is not None:
            file.begin_sync()()
            file.close()
            self._file = None  # type: ignore[assignment]
