"""A run directory that this run must not write over: somebody else's, a manifest alone, another part's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hermes_run.core.keys import split_key
from hermes_run.core.text import command_line
from hermes_run.errors import UsageError
from hermes_run.runner.snapshot import remembered
from hermes_run.store import layout
from hermes_run.store.batches import batch_numbers, batch_path
from hermes_run.store.planfile import read_plan

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_run.dataset.plan import Plan

WRITTEN = (
    layout.TRAJECTORIES,
    layout.MANIFEST,
    layout.STATISTICS,
    layout.CHECKPOINT,
    layout.TOOLS,
    layout.PLAN,
    layout.SPEC,
    layout.CARD,
)
"""Files that a run writes anew, whatever they hold."""


def refuse_foreign(folder: Path, plan: Plan) -> None:
    """Refuse a folder with files that the run would overwrite, and that no run of this plan wrote.

    A run's first file is its journal, so files of its other names without one are another program's
    (the predecessor's names are the same), the user's, or what git keeps of a run. Raises UsageError.
    """
    if (folder / layout.JOURNAL).exists():
        _refuse_other_part(folder, plan.selection.shard)
        return
    numbers = batch_numbers(folder) if folder.is_dir() else []
    if any(_is_ours(batch_path(folder, number)) for number in numbers):
        return  # a run whose journal is lost: opening it names the repair
    if not numbers and _is_ours(folder / layout.MANIFEST):
        raise UsageError(
            f"{folder}: holds a manifest without its trajectories, as a clone does, and a run would pay for "
            "them again and write over it. To go on with that run, copy its whole directory here; to run "
            "all anew, set the manifest aside (--fresh), or give this run another run_name"
        )
    if (folder / layout.PLAN_KEYS).exists() or remembered(folder):
        return
    found = [f"batch_{number}.jsonl" for number in numbers]
    found += [name for name in WRITTEN if (folder / name).exists()]
    if found:
        names = ", ".join(found[:4]) + (", …" if len(found) > 4 else "")
        raise UsageError(
            f"{folder}: holds {names}, which no run of hermes-run wrote there, and a run would write over. "
            "Give this run another run_name, or set that folder aside: --fresh. What hermes-agent left there "
            f"can be taken over: {command_line('import', folder)}"
        )


def _refuse_other_part(folder: Path, shard: str) -> None:
    """A part's directory is named after it; its spec.yaml without --shard would run the other parts, too."""
    try:
        held = read_plan(folder)[0].selection.shard
    except UsageError:  # the run writes it anew
        return
    name, _, part = folder.name.rpartition(".")
    if held and held != shard and part == held.replace("/", "-of-"):
        raise UsageError(
            f"{folder}: holds part {held} of the dataset, and this run is of {shard or 'the whole'}. "
            f"To go on with the part, run the spec with run_name {name} and --shard {held}"
        )


def _is_ours(file: Path) -> bool:
    """Whether the first line of a batch file or a manifest names a rollout key."""
    try:
        with file.open("rb") as stream:
            content = json.loads(stream.readline())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and split_key(str(content.get("key", ""))) is not None
