"""What a kill left behind: torn tails, lines without an entry, entries without a line.

Opening a run looks at sizes and last lines; every line is read by merge and verify. Write order is
line, then entry, so a line without an entry is a finished rollout whose entry was never written: it
is adopted. Whatever cannot be used is kept in a `.bad` file beside its own.
"""

from __future__ import annotations

import os
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes_run.core.keys import pack_key, split_key
from hermes_run.core.trajectory import Status
from hermes_run.store.batches import BatchReader, batch_numbers, batch_path, blank_out, set_aside
from hermes_run.store.entry import LOST
from hermes_run.store.journal import Reading, read_places
from hermes_run.store.lines import adopted_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from hermes_run.core.contracts import Filter
    from hermes_run.store.entry import JournalLine, Place
    from hermes_run.store.journal import Journal


class Recovery(Struct):
    """What was found, in words for people, and how many of each."""

    adopted: int = 0
    lost: int = 0
    set_aside: int = 0
    warnings: list[str] = []
    lost_keys: set[bytes] = set()


def recover(
    folder: Path, journal: Journal, filters: Sequence[Filter], is_planned: Callable[[bytes], bool]
) -> Recovery:
    """Bring batch files and journal into step; append to the journal what that takes."""
    found = Recovery()
    if journal.torn:
        found.warnings.append(f"{journal.path}: {journal.torn} bytes of a torn last line were cut off")
    present = set(batch_numbers(folder))
    known = {number for number in journal.batches if journal.is_end_lost(number)}  # and written off
    short = {n for n, end in journal.batches.items() if end and n not in present} - known
    short |= _with_missing_lines(folder, journal, known)
    for number in sorted(present - known):
        path, end = batch_path(folder, number), journal.batches.get(number, 0)
        size = path.stat().st_size
        if size == end - 1 and not _ends_line(path):
            with path.open("ab") as stream:
                stream.write(b"\n")
        elif size < end or (end and not _last_line_is_sound(folder, journal, number, end)):
            short.add(number)
    _write_off_lines_elsewhere(journal, found)
    if short:
        _write_off(folder, journal, short, found)
    for number in sorted(present):
        _adopt_tail(folder, journal, number, found, (filters, is_planned))
    return found


def _with_missing_lines(folder: Path, journal: Journal, numbers: set[int]) -> set[int]:
    """Those batch files that lack a line that counts, where their size tells nothing."""
    with BatchReader(folder) as reader:
        entries = map(journal.at, journal.fold.offsets_in(numbers) if numbers else ())
        return {entry.batch for entry in entries if entry.length and reader.read(entry) is None}


def _write_off_lines_elsewhere(journal: Journal, found: Recovery) -> None:
    """Entries that came from a manifest alone: a run needs their trajectories, so it makes them anew."""
    keys = journal.fold.lines_elsewhere()
    for key in keys:
        journal.append_lost(journal.at(journal.fold.offset(key)))
    if keys:
        found.warnings.append(
            f"{journal.path}: {_how_many(len(keys), 'entry', 'entries')} came from manifests alone, without "
            "trajectories; what they stand for is pending. To keep the trajectories, merge the run "
            "directories themselves"
        )


def _how_many(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _ends_line(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"


def _last_line_is_sound(folder: Path, journal: Journal, number: int, end: int) -> bool:
    """Whether the bytes before `end` are what an entry of the fold says, or an older line's."""
    last = journal.last_places.get(number)
    if last is None or last.offset + last.length + 1 != end:
        return True
    with BatchReader(folder) as reader:
        return reader.read(last) is not None


def _write_off(folder: Path, journal: Journal, numbers: set[int], found: Recovery) -> None:
    """Mark the lines that are gone from damaged batch files, superseded ones too."""
    sound_end = dict.fromkeys(numbers, 0)
    gone: dict[int, list[JournalLine]] = {}
    with BatchReader(folder) as reader:
        for offset, place in _lines_in(journal, numbers):
            if reader.read(place) is None:
                gone.setdefault(place.batch, []).append(journal.at(offset))
            else:
                end = place.offset + place.length + 1
                sound_end[place.batch] = max(sound_end[place.batch], end)
    for number, entries in sorted(gone.items()):
        lost = set()
        for entry in sorted(entries, key=attrgetter("offset")):  # the farthest last (`Journal.is_end_lost`)
            if entry.offset + entry.length < sound_end[number]:
                blank_out(folder, entry)
            before = len(journal.fold)
            journal.append_lost(entry)
            if len(journal.fold) < before:
                lost.add(pack_key(entry.key))
        found.lost += len(lost)
        found.lost_keys |= lost
        path, older = batch_path(folder, number), len(entries) - len(lost)
        if lost:
            found.warnings.append(
                f"{path}: {_how_many(len(lost), 'trajectory is', 'trajectories are')} missing or torn, "
                "and pending again"
            )
        if older:
            found.warnings.append(
                f"{path}: {_how_many(older, 'older line is', 'older lines are')} missing or torn; later ones "
                "have replaced them, so nothing that counts is lost"
            )
    for number in numbers:
        journal.batches[number] = sound_end[number]


def _lines_in(journal: Journal, numbers: set[int]) -> list[tuple[int, Place]]:
    """(offset in the journal, place) of every line that some batch files should hold, each once."""
    lines: dict[tuple[int, int, str], tuple[int, Place]] = {}
    for offset, _, place in read_places(Reading(journal.path)):
        if place.batch in numbers and place.length:
            where = (place.batch, place.offset, place.line_hash)
            if place.status == LOST:
                lines.pop(where, None)
            else:
                lines[where] = offset, place
    return list(lines.values())


def write_off(folder: Path, journal: Journal, entry: JournalLine) -> None:
    """Note that an entry's line is damaged, or gone: its rollout is pending again."""
    if batch_path(folder, entry.batch).exists():
        blank_out(folder, entry)
    journal.append_lost(entry)


def _adopt_tail(
    folder: Path,
    journal: Journal,
    number: int,
    found: Recovery,
    judging: tuple[Sequence[Filter], Callable[[bytes], bool]],
) -> None:
    filters, is_planned = judging
    path, end = batch_path(folder, number), journal.batches.get(number, 0)
    if path.stat().st_size <= end:
        return
    sound_end, bad = end, b""
    for offset, line in _lines_from(path, end):
        text = line.rstrip(b"\n")
        try:
            trajectory, entry = adopted_line(text, number, offset, filters)
        except (ValueError, RecursionError):
            bad += line
            continue
        packed = pack_key(trajectory.key) if split_key(trajectory.key) else b""
        status = journal.fold.status(packed)
        known = status == Status.FAILED.value or (status is None and is_planned(packed))
        if not known or packed in found.lost_keys:
            bad += line
            continue
        if not line.endswith(b"\n"):
            with path.open("ab") as stream:
                stream.write(b"\n")
        journal.append(entry)
        found.adopted += 1
        sound_end = offset + len(text) + 1
    if bad:
        kept = set_aside(path, bad)
        os.truncate(path, sound_end)
        found.set_aside += 1
        found.warnings.append(f"{path}: {len(bad)} bytes that are no usable line were moved to {kept.name}")


def _lines_from(path: Path, offset: int) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as stream:
        stream.seek(offset)
        for line in stream:
            yield offset, line
            offset += len(line)
