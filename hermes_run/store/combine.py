"""merge, select, subtract, intersect: chosen entries of some runs become a run of their own.

Two passes, so that nothing but packed keys is held in memory: the first chooses, over the manifests in
order of keys; the second writes, in the order of the new plan. Where there are manifest files alone,
with neither plan nor lines, one pass does both (`store.bare`).
"""

from __future__ import annotations

import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_run.store.algebra import POLICIES, Renumbered, Union, in_all, matching, only_first
from hermes_run.store.assemble import assembling, refuse_out
from hermes_run.store.bare import write_bare
from hermes_run.store.gather import Gathered
from hermes_run.store.origin import about_parts, remember_parts, warnings_of
from hermes_run.store.parts import opened_parts
from hermes_run.store.rows_out import RowsWish, refuse_rows_file, rows_file, write_rows
from hermes_run.store.unionplan import UnionPlan, rows_of_keys, rows_of_plan, union_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from hermes_run.store.algebra import Candidate
    from hermes_run.store.assemble import Assembly
    from hermes_run.store.entry import Entry
    from hermes_run.store.parts import Part
    from hermes_run.store.unionplan import Rows

__all__ = ["POLICIES", "RowsWish", "intersect_runs", "merge_runs", "select_run", "subtract_runs"]


def merge_runs(
    paths: Sequence[Path], out: Path, policy: str = "best", *, renumber: bool = False
) -> dict[str, Any]:
    """The union of some runs as a new run directory. Returns the summary that `--json` prints.

    Raises UsageError for what is no run, damaged, of another key version, or (policy `error`) came to
    different results, RunLocked, DiskFull. `out` is there whole or not at all.
    """
    refuse_out(out, paths)
    with opened_parts(paths) as parts:
        if renumber:
            return _renumbered(parts, out)
        union = Union(parts, policy)
        if all(part.plan is None and part.view is None for part in parts):
            found = _of_manifests(parts, union.chosen_blocks(), out)
        else:
            rows = [_rows(part) for part in parts]
            found = _put_together(
                parts, out, _as_they_are(union.chosen()), lambda _: union_plan(parts, rows, _most(rows))
            )
        return found | {"policy": policy, "overlaps": union.overlaps, "conflicts": union.conflicts}


def select_run(
    path: Path, out: Path | None, wanted: Callable[[Entry], bool], rows: RowsWish | None = None
) -> dict[str, Any]:
    """The entries of a run that are wanted, as a run (`out`), as dataset rows, or both."""
    return _choose([path], out, lambda parts: matching(parts[0], wanted), rows)


def subtract_runs(paths: Sequence[Path], out: Path | None, rows: RowsWish | None = None) -> dict[str, Any]:
    """The entries of the first run whose keys no other has."""
    return _choose(paths, out, only_first, rows)


def intersect_runs(paths: Sequence[Path], out: Path | None, rows: RowsWish | None = None) -> dict[str, Any]:
    """The entries of the first run whose keys every other has."""
    return _choose(paths, out, in_all, rows)


def _choose(
    paths: Sequence[Path],
    out: Path | None,
    choose: Callable[[Sequence[Part]], Iterator[Candidate]],
    rows: RowsWish | None,
) -> dict[str, Any]:
    if out is not None:
        refuse_out(out, paths)
    if rows is not None:
        refuse_rows_file(rows.file, paths)
    with opened_parts(paths) as parts:
        first, chosen = parts[:1], _as_they_are(choose(parts))

        def plan(gathered: Gathered) -> UnionPlan:
            planned = _rows(parts[0])
            return union_plan(first, [planned], planned.counts(), gathered.contents().__contains__)

        with rows_file(rows) as write:
            take = None if rows is None else partial(write_rows, parts[0], wish=rows, write=write)
            if out is not None:
                return _put_together(first, out, chosen, plan, take)
            gathered = Gathered(first, None)
            gathered.take(chosen)
            found = take(gathered.index) if take is not None else {}
            return {"out": None, "chosen": len(gathered.index), **found, "warnings": parts[0].warnings}


def _put_together(
    parts: Sequence[Part],
    out: Path,
    chosen: Iterable[tuple[Candidate, bytes]],
    plan: Callable[[Gathered], UnionPlan],
    take_rows: Callable[[Iterable[bytes]], dict[str, Any]] | None = None,
    payers: Sequence[Part] | None = None,
) -> dict[str, Any]:
    about = about_parts(parts)
    found: dict[str, Any] = {}
    with assembling(out, about) as new:
        with tempfile.TemporaryFile(dir=new.folder) as spool:
            gathered = Gathered(parts, spool, payers)
            gathered.take(chosen)
            keys = list(gathered.index)
            gathered.write(new, plan(gathered))
            if take_rows is not None:
                found = take_rows(keys)
        works = new.works()
        remember_parts(about, parts, works)
    return {
        **_summary(parts, out, new, gathered.taken),
        "chosen": len(keys),
        **found,
        "warnings": list(warnings_of(parts, works, new.lines_elsewhere)),
    }


def _of_manifests(parts: Sequence[Part], chosen: Iterable[list[Candidate]], out: Path) -> dict[str, Any]:
    about = about_parts(parts)
    with assembling(out, about) as new:
        taken = write_bare(new, parts, chosen)
        works = new.works()
        remember_parts(about, parts, works)
    return {
        **_summary(parts, out, new, taken),
        "chosen": sum(taken),
        "warnings": list(warnings_of(parts, works, new.lines_elsewhere)),
    }


def _renumbered(parts: Sequence[Part], out: Path) -> dict[str, Any]:
    rows = [_rows(part) for part in parts]
    counts = [each.counts() for each in rows]
    samples = Renumbered(parts, counts)

    def plan(_: Gathered) -> UnionPlan:
        planned: dict[bytes, int] = {}
        for each in counts:
            for content, count in each.items():
                planned[content] = planned.get(content, 0) + count
        for content, count in planned.items():
            planned[content] = max(count, samples.widths.get(content, 0))
        return union_plan(parts, rows, planned, renumber=True)

    return _put_together(parts, out, samples.chosen(), plan, payers=()) | {"policy": "renumber"}


def _as_they_are(chosen: Iterable[Candidate]) -> Iterator[tuple[Candidate, bytes]]:
    return ((candidate, candidate[0]) for candidate in chosen)


def _rows(part: Part) -> Rows:
    """The rows of a part: of its plan, else those that its keys are of."""
    return rows_of_plan(part) or rows_of_keys(packed for packed, _ in part.lines())


def _most(rows: Sequence[Rows]) -> dict[bytes, int]:
    """Content key -> how often the part plans it that plans it most often."""
    counts: dict[bytes, int] = {}
    for each in rows:
        for content, count in each.counts().items():
            counts[content] = max(count, counts.get(content, 0))
    return counts


def _summary(parts: Sequence[Part], out: Path, new: Assembly, taken: Sequence[int]) -> dict[str, Any]:
    return {
        "out": str(out),
        "parts": [{"path": str(p.path), "taken": count} for p, count in zip(parts, taken, strict=True)],
        "outcomes": new.content["outcomes"],
        "without_trajectory": new.lines_elsewhere,
    }
