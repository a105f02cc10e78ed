"""A run directory that is none: somebody else's folder under the name of the run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hermes_run.core.keys import split_key
from hermes_run.core.text import command_line
from hermes_run.errors import UsageError
from hermes_run.runner.snapshot import remembered
from hermes_run.store import layout
from hermes_run.store.batches import batch_numbers, batch_path

if TYPE_CHECKING:
    from pathlib import Path

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


def refuse_foreign(folder: Path) -> None:
    """Refuse a folder with files that the run would overwrite, and that no run of ours wrote.

    A run's first file is its journal, so files of its other names without one are another program's
    (the predecessor's names are the same) or the user's. Raises UsageError.
    """
    if (folder / layout.JOURNAL).exists() or (folder / layout.PLAN_KEYS).exists() or remembered(folder):
        return
    numbers = batch_numbers(folder) if folder.is_dir() else []
    if any(_is_ours(batch_path(folder, number)) for number in numbers):
        return  # a run whose journal is lost: opening it names the repair
    found = [f"batch_{number}.jsonl" for number in numbers]
    found += [name for name in WRITTEN if (folder / name).exists()]
    if found:
        names = ", ".join(found[:4]) + (", …" if len(found) > 4 else "")
        raise UsageError(
            f"{folder}: holds {names}, which no run of hermes-run wrote there, and a run would write over. "
            "Give this run another run_name, or set that folder aside: --fresh. What hermes-agent left there "
            f"can be taken over: {command_line('import', folder)}"
        )


def _is_ours(batch: Path) -> bool:
    """Whether the first line of a batch file names a rollout key."""
    with batch.open("rb") as stream:
        line = stream.readline()
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and split_key(str(content.get("key", ""))) is not None
