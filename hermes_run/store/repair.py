"""`repair`: a journal rebuilt from what is left of it and from the batch files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hermes_run.core.keys import split_key
from hermes_run.core.registry import FILTERS, load
from hermes_run.core.trajectory import Status
from hermes_run.dataset.plan import equal_rows, planned_keys
from hermes_run.errors import UsageError
from hermes_run.store import layout
from hermes_run.store.batches import BatchReader, batch_numbers
from hermes_run.store.checkpoint import forget_hashes, read_checkpoint
from hermes_run.store.disk import replace_file, replacing
from hermes_run.store.entry import LOST, JournalLine, decode_line, seal
from hermes_run.store.foreign import refuse_foreign
from hermes_run.store.journal import Journal, JournalView, Reading
from hermes_run.store.judging import judge_again
from hermes_run.store.lines import adopted_line
from hermes_run.store.manifest import write_manifest
from hermes_run.store.merge import MERGED
from hermes_run.store.planfile import PlanFile, places_of, planned_rollouts, read_plan
from hermes_run.store.rebuild import Rebuilt, pieces_of, rebuild
from hermes_run.store.verify import damages_of
from hermes_run.store.writer import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hermes_run.core.contracts import Filter


def repair(run: Path) -> list[str]:
    """Mend a run directory; what was mended, one line each (empty: it was sound).

    Sound journal lines are kept; a trajectory line that none of them describes is adopted; an entry
    whose trajectory is gone becomes pending. Failed rollouts whose journal line is damaged cannot be
    rebuilt and become pending too. The old journal is kept beside the new one; a sound one stays.

    Raises UsageError when there is nothing to repair from, RunLocked when a run is going on.
    """
    if not run.is_dir() or not layout.is_run_dir(run):
        raise UsageError(f"{run}: no run directory; RUN is <output.dir>/<run_name>")
    refuse_foreign(run)
    if not (run / layout.JOURNAL).exists() and not _has_a_line_of_ours(run):
        raise UsageError(f"{run}: no journal, and no batch file with a line of ours: nothing to repair from")
    with layout.locked(run):
        has_journal = (run / layout.JOURNAL).exists()
        if has_journal and not damages_of(run, is_going_on=False):
            return []
        done = _rebuild_journal(run)
        _judge(run)
        done += _rewrite_derived(run)
        return done


def _has_a_line_of_ours(run: Path) -> bool:
    for number in batch_numbers(run):
        for piece in pieces_of(run, number):
            try:
                adopted_line(piece.text, number, piece.offset, ())
            except (ValueError, RecursionError):
                continue
            return True
    return False


def remembered_filters(run: Path) -> tuple[Filter, ...] | None:
    """The filters that the run's entries were judged by; None when its spec.yaml cannot be read."""
    chosen = layout.read_spec(run).get("filters")
    if not isinstance(chosen, dict):
        return None
    names = {"require_reasoning": "no_reasoning", "reject_unknown_tools": "unknown_tool"}
    return tuple(load("filter", FILTERS, name)() for switch, name in names.items() if chosen.get(switch))


def _judge(run: Path) -> None:
    """Judge what is kept, adopted or not: verdicts that stood in damaged lines are not lost.

    Without spec.yaml the next run does so.
    """
    filters = remembered_filters(run)
    if filters is not None:
        journal = Journal(run / layout.JOURNAL)
        try:
            judge_again(run, journal, filters)
        finally:
            journal.close()


def _rebuild_journal(run: Path) -> list[str]:
    """Write the journal anew where it or what it describes is damaged; what was done."""
    path = run / layout.JOURNAL
    was_missing = not path.exists()
    known, dropped, is_sound = _sound_lines(path)
    found = rebuild(run, known)
    said = []
    if found.aside:
        kept = _count(found.aside, "piece")
        said.append(f"no lines, or copies of some: {kept} of batch files, kept in .bad files beside them")
    if is_sound and not found.is_changed:
        return said
    aside = _write_journal(path, found.lines)
    kept = f"; the old one is {aside}" if aside else ""
    said.insert(0, f"{path}: written anew with {_count(len(found.lines), 'line')}{kept}")
    return [*said, *_account(found, dropped, was_missing=was_missing)]


def _account(found: Rebuilt, dropped: int, *, was_missing: bool) -> Iterator[str]:
    if found.moved:
        moved = _count(found.moved, "trajectory", "trajectories")
        yield f"moved or spelled otherwise, and found again: {moved}"
    if found.adopted:
        adopted = _count(found.adopted, "trajectory", "trajectories")
        yield f"without an entry, and adopted from the batch files: {adopted}"
    if found.lost:
        lost = _count(found.lost, "trajectory", "trajectories")
        yield (
            f"missing or damaged: {lost}; such prompts are pending again, but for those that a later one "
            "replaced"
        )
    if was_missing:
        yield "what had failed cannot be rebuilt from the batch files and is pending again"
    if dropped:
        yield f"unreadable: {_count(dropped, 'journal line')}; what had failed there is pending again"


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def _sound_lines(path: Path) -> tuple[list[JournalLine], int, bool]:
    """The lines of a journal that can be trusted, how many cannot, and whether all of it is sound.

    Nothing that a line says is trusted where the chain breaks: a trajectory line tells the same of itself.
    """
    if not path.exists():
        return [], 0, False
    reading, sound, dropped = Reading(path), [], 0
    for offset, raw in reading.lines():
        is_chained = not any(damage.offset == offset for damage in reading.damages[-1:])
        line = _read_line(raw) if is_chained else None
        if line is None:
            dropped += 1
        else:
            sound.append(line)
    is_sound = not (dropped or reading.damages or reading.lacks_newline)
    return sound, dropped, is_sound and reading.end == path.stat().st_size


def _read_line(raw: bytes) -> JournalLine | None:
    try:
        line = decode_line(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    is_status = line.status == LOST or line.status in {each.value for each in Status}
    return line if is_status and split_key(line.key) is not None else None


def _write_journal(path: Path, lines: list[JournalLine]) -> str:
    """Write it; the name of the file that the old one is kept in, "" where there was none."""
    aside = None
    if path.exists():
        aside = _kept_aside(path)
    before = ""
    with replacing(path) as write:
        for line in lines:
            raw, before = seal(line, before)
            write(raw + b"\n")
    return "" if aside is None else aside.name


def _kept_aside(path: Path) -> Path:
    """A file with the same bytes beside this one: one that is there already, else a new one."""
    data = path.read_bytes()
    names = (path.with_name(f"{path.name}.bad-{number}") for number in range(1, 10_000))
    aside = next(name for name in names if not name.exists() or name.read_bytes() == data)
    if not aside.exists():
        replace_file(aside, data)
    return aside


def _rewrite_derived(run: Path) -> list[str]:
    """The derived files; the checkpoint vouches for the old ones until then, so that a cut is damage."""
    said = _write_derived(run)
    forget_hashes(run)
    return said


def _write_derived(run: Path) -> list[str]:
    """The manifest and, where the plan is known, the merged file in its order, and a lost checkpoint."""
    view = JournalView(run / layout.JOURNAL)
    try:
        write_manifest(run / layout.MANIFEST, view.entries())
        said = [f"{run / layout.MANIFEST}: written anew"]
        try:
            plan, keys = read_plan(run)
        except UsageError:
            return said  # which the next verify tells
        with BatchReader(run) as reader, replacing(run / layout.TRAJECTORIES) as write:
            for key in planned_rollouts(plan, keys):
                entry = view.find(key)
                line = reader.read(entry) if entry and entry.length and entry.status in MERGED else None
                if line is not None:
                    write(line + b"\n")
        if not read_checkpoint(run):
            _write_checkpoint(run, view, plan, keys)
            said.append(f"{run / layout.CHECKPOINT}: written anew")
    finally:
        view.close()
    return [*said, "run the spec again to write the merged file and the statistics from the dataset"]


def _write_checkpoint(run: Path, view: JournalView, plan: PlanFile, keys: bytes) -> None:
    """A checkpoint that vouches for no file: the run has to end first."""
    checkpoint = Checkpoint(run, run.name, plan.selection.samples)
    places = places_of(plan, len(keys) // 16)
    for row, packed in planned_keys(keys, equal_rows(keys), plan.selection.samples):
        entry = view.find(packed)
        if entry is not None:
            checkpoint.add(places[row], entry.batch, entry.status)
    checkpoint.begin(final=True)()
