"""`plan.json` and `plan.keys`: the plan as a run directory remembers it, for reading without the dataset."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from hermes_run.core.keys import KEY_VERSION
from hermes_run.dataset.plan import InvalidRow, Plan, Selection, equal_rows, planned_keys
from hermes_run.errors import UsageError
from hermes_run.store import layout
from hermes_run.store.disk import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


MOST_ROLLOUTS = 10_000_000
"""Of one prompt: ten times the samples that a spec can ask for. What a damaged file says fits no memory."""
_MOST_ROWS = 1 << 62


class PlanFile(Struct, frozen=True):
    """The contents of plan.json.

    Attributes:
        dataset: the dataset's file name; `dataset_hash` tells whether it is the same.
        rows: rows counted for the ledger; `total` = rows x samples.
        planned: rollouts that can be run; invalid rows have none.
        removed: rows that `dedupe` removed.
        key_version: version of the content keys in plan.keys (16 bytes a row that can be run).
        places: where the rows of plan.keys stand in the dataset, as runs of (first place, how many).
    """

    dataset: str
    dataset_hash: str
    rows: int
    total: int
    planned: int
    removed: int
    selection: Selection
    invalid: list[InvalidRow]
    key_version: int = 1
    places: list[tuple[int, int]] = []


def plan_file(plan: Plan) -> PlanFile:
    """What plan.json says of a plan."""
    return PlanFile(
        dataset=plan.path.name,
        dataset_hash=plan.dataset_hash,
        rows=plan.rows,
        total=plan.total,
        planned=plan.planned,
        removed=plan.removed,
        selection=plan.selection,
        invalid=plan.invalid,
        places=runs_of(plan.indexes),
    )


def write_plan(folder: Path, plan: Plan) -> None:
    """Write both files, each whole or not at all."""
    write_plan_file(folder, plan_file(plan), plan.packed_keys)


def write_plan_file(folder: Path, content: PlanFile, keys: bytes) -> None:
    """Write both files of a plan that is there already, each whole or not at all."""
    data = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    for name, new in ((layout.PLAN_KEYS, keys), (layout.PLAN, data)):
        path = folder / name
        if not path.exists() or path.read_bytes() != new:
            replace_file(path, new)


def runs_of(places: array[int]) -> list[tuple[int, int]]:
    """Ascending places as runs of (first place, how many): one run where none is left out."""
    if places and places == array("Q", range(places[0], places[0] + len(places))):
        return [(places[0], len(places))]
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and sum(runs[-1]) == place:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((place, 1))
    return runs


def places_of(plan: PlanFile, rows: int) -> array[int]:
    """The place in the dataset of each of the `rows` rows of plan.keys."""
    places = array("Q")
    for first, count in plan.places:
        places.extend(range(first, first + count))
    if len(places) != rows:  # written by a version that did not keep them
        taken = {bad.prompt_index for bad in plan.invalid}
        places = array("Q", (place for place in range(rows + len(taken)) if place not in taken))[:rows]
    return places


def _are_places(runs: list[tuple[int, int]], rows: int) -> bool:
    """Whether so many rows can stand there; a version that kept no places had none."""
    are_numbers = all(first >= 0 <= count and first + count < _MOST_ROWS for first, count in runs)
    return not runs or (are_numbers and sum(count for _, count in runs) == rows)


def read_plan(folder: Path) -> tuple[PlanFile, bytes]:
    """The plan of a run directory and its packed content keys. Raises UsageError when it has none."""
    try:
        content = msgspec.json.decode((folder / layout.PLAN).read_bytes(), type=PlanFile)
        keys = (folder / layout.PLAN_KEYS).read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"{folder}: there is no plan here. RUN is <output.dir>/<run_name>; if this is one, "
            "running its spec again writes the plan anew"
        ) from None
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{folder / layout.PLAN}: damaged ({error}); running the spec again writes it anew"
        ) from None
    selection = content.selection
    is_possible = 1 <= selection.samples <= MOST_ROLLOUTS and 0 <= (selection.max_samples or 0) < _MOST_ROWS
    if not is_possible or not _are_places(content.places, len(keys) // 16):
        what = "no such places" if is_possible else "no such selection"
        raise UsageError(f"{folder / layout.PLAN}: damaged ({what}); running the spec again writes it anew")
    if len(keys) * content.selection.samples != content.planned * 16:
        raise UsageError(
            f"{folder / layout.PLAN_KEYS}: does not fit plan.json; running the spec again writes both anew"
        )
    return content, keys


def refuse_other_keys(run: Path, plan: PlanFile) -> None:
    """Raises UsageError when a run's keys are of another version than ours."""
    if plan.key_version != KEY_VERSION:
        raise UsageError(
            f"{run}: its keys are of version {plan.key_version}, those of this hermes-run of version "
            f"{KEY_VERSION}; equal prompts have other keys there, so the two cannot be compared"
        )


def planned_rollouts(plan: PlanFile, keys: bytes) -> Iterator[bytes]:
    """The packed rollout keys of a plan, in dataset order."""
    for _, packed in planned_keys(keys, equal_rows(keys), plan.selection.samples):
        yield packed
