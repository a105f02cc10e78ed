"""`verify`: every byte of a run directory that counts, checked. Contract, sections 1 and 4."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import xxhash

from hermes_run.core.text import command_line
from hermes_run.core.trajectory import Status
from hermes_run.errors import UsageError
from hermes_run.formats.equality import content_hash
from hermes_run.formats.record import decode_record
from hermes_run.store import layout
from hermes_run.store.artifacts import damages as artifact_damages
from hermes_run.store.batches import BatchReader, batch_numbers, batch_path
from hermes_run.store.checkpoint import read_checkpoint
from hermes_run.store.entry import LOST, Place, encode, to_entry
from hermes_run.store.foreign import refuse_foreign
from hermes_run.store.journal import JournalView, Reading, read_places
from hermes_run.store.manifest import read_manifest
from hermes_run.store.merge import MERGED
from hermes_run.store.planfile import planned_rollouts, read_plan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def verify(run: Path) -> list[str]:
    """All damages of a run directory (or manifest file), one line each; empty when it is sound.

    Nothing is changed. A torn last line of the journal is no damage (the next run cuts it off) unless
    the run had ended. Of a run that is going on, what it is writing just now is not judged.
    """
    if not run.is_dir():
        return _of_manifest(run)
    if not layout.is_run_dir(run):
        raise UsageError(f"{run}: no run directory; RUN is <output.dir>/<run_name>")
    journal = run / layout.JOURNAL
    if not journal.exists():
        refuse_foreign(run)
        if not batch_numbers(run):
            return [f"{journal}: missing, without batch files to rebuild it from (a clone has none)"]
        return [f"{journal}: missing; rebuild it: {command_line('repair', run)}"]
    found = damages_of(run, is_going_on=layout.is_locked(run))
    if found and layout.is_locked(run):  # it may have begun meanwhile
        found = damages_of(run, is_going_on=True)
    return found


def damages_of(run: Path, *, is_going_on: bool) -> list[str]:
    """The damages of a run directory that has a journal."""
    journal = run / layout.JOURNAL
    view = JournalView(journal)
    try:
        found = [f"{journal}: at byte {each.offset} a line {each.what}" for each in view.damages]
        if not found:
            found += _of_lines(run, view, is_going_on=is_going_on)
        if not is_going_on:
            found += _of_derived(run, view)
        return found + _of_ledger(run, view, is_going_on=is_going_on)
    finally:
        view.close()


def _of_manifest(path: Path) -> list[str]:
    try:
        for _ in read_manifest(path):
            pass
    except UsageError as damage:
        return [str(damage)]
    return []


def _places(run: Path) -> Iterator[Place]:
    return (place for _, _, place in read_places(Reading(run / layout.JOURNAL)) if place.length)


def _of_lines(run: Path, view: JournalView, *, is_going_on: bool) -> list[str]:
    """Every trajectory line against its entry, and every byte of the batch files against all entries."""
    found: list[str] = []
    places: dict[tuple[int, int, str], Place] = {}
    for place in _places(run):
        where = (place.batch, place.offset, place.line_hash)
        if place.status == LOST:
            places.pop(where, None)
        else:
            places[where] = place
    with BatchReader(run) as reader:
        for place in places.values():
            if reader.read(place) is None:
                path = batch_path(run, place.batch)
                found.append(f"{path}: the line of {place.key} at byte {place.offset} is missing or damaged")
        for entry in view.entries():
            line = reader.read(entry) if entry.length else None
            if line is not None and content_hash(decode_record(line)) != entry.hash:
                found.append(f"{view.path}: the hash of {entry.key} is not that of its trajectory")
            elif line is not None:
                found += artifact_damages(run, line)
    spans: dict[int, list[tuple[int, int]]] = {}
    for place in places.values():
        spans.setdefault(place.batch, []).append((place.offset, place.length))
    for number in batch_numbers(run):
        found += _uncovered(batch_path(run, number), sorted(spans.get(number, ())), is_going_on=is_going_on)
    return found


def _uncovered(path: Path, spans: list[tuple[int, int]], *, is_going_on: bool) -> list[str]:
    """Bytes of a batch file that no entry points to, and that are not kept in its .bad file.

    In a run that is going on, the entries of those at the end may not be written yet.
    """
    data, bad = path.read_bytes(), path.with_name(f"{path.name}.bad")
    aside = bad.read_bytes() if bad.exists() else b""
    found, end = [], 0
    for offset, length in spans if is_going_on else [*spans, (len(data), 0)]:
        gap = data[end:offset].strip()
        if gap and gap not in aside:
            found.append(f"{path}: {len(gap)} bytes from byte {end} on belong to no entry")
        end = max(end, offset + length)
        if length and data[end : end + 1] != b"\n":
            found.append(f"{path}: the line at byte {offset} has no end")
    return found


def _of_derived(run: Path, view: JournalView) -> list[str]:
    """The files that were derived when the run last ended, against their hashes and the fold."""
    checkpoint = read_checkpoint(run)
    files = checkpoint.get("files")
    if not isinstance(files, dict) or not files:
        was_written = (run / layout.CHECKPOINT).exists() or (run / layout.STATISTICS).exists()
        if was_written and not checkpoint:
            return [f"{run / layout.CHECKPOINT}: missing or damaged; running the spec again writes it anew"]
        return []
    found = []
    for name, expected in files.items():
        if name == "journal_bytes":
            size = view.reading.end + view.torn
            if size != expected:
                found.append(f"{view.path}: {size} bytes, {expected} when the run ended")
        elif not (run / name).is_file():
            found.append(f"{run / name}: missing; running the spec again writes it anew")
        elif hash_file(run / name) != expected:
            found.append(f"{run / name}: changed since the run ended; running the spec again writes it anew")
    return found or _against_fold(run, view)


def _against_fold(run: Path, view: JournalView) -> list[str]:
    with (run / layout.MANIFEST).open("rb") as stream:
        folded = (encode(to_entry(entry)) + b"\n" for entry in view.entries())
        if any(line != next(folded, b"") for line in stream) or next(folded, None) is not None:
            return [f"{run / layout.MANIFEST}: is not the fold of the journal"]
    return []


def _of_ledger(run: Path, view: JournalView, *, is_going_on: bool) -> list[str]:
    """Completed + partial + discarded + failed + invalid + pending = rows x samples, here and as written."""
    try:
        plan, keys = read_plan(run)
    except UsageError as damage:
        return [str(damage)]
    counts: Counter[str] = Counter()
    planned = elsewhere = 0
    for key in planned_rollouts(plan, keys):
        planned += 1
        elsewhere += view.fold.is_line_elsewhere(key) and view.fold.status(key) in MERGED
        counts[view.fold.status(key) or "pending"] += 1
    invalid = len(plan.invalid) * plan.selection.samples
    found = []
    if planned + invalid != plan.total or sum(counts.values()) != planned:
        found.append(f"{run / layout.PLAN}: {planned} planned + {invalid} invalid are not {plan.total}")
    checkpoint = read_checkpoint(run)
    statistics = layout.read_json(run / layout.STATISTICS)
    if is_going_on or not checkpoint.get("files") or not statistics:
        return found
    expected = {each.value: counts[each.value] for each in Status}
    expected |= {"invalid": invalid, "pending": counts["pending"]}
    if statistics.get("outcomes") != expected:
        found.append(f"{run / layout.STATISTICS}: its outcomes are not those of the journal")
    if not (run / layout.TRAJECTORIES).is_file():
        return found  # told already: its hash is gone with it
    with (run / layout.TRAJECTORIES).open("rb") as stream:
        lines = sum(1 for _ in stream)
    if lines != sum(counts[status] for status in MERGED) - elsewhere:
        found.append(f"{run / layout.TRAJECTORIES}: {lines} lines, not one for each kept trajectory")
    return found


def hash_file(path: Path) -> str:
    """xxh3_128 (hex) of a file."""
    hasher = xxhash.xxh3_128()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest()
