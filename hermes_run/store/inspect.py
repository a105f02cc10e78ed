"""Looking at a run without touching it: status, statistics, difference."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hermes_run.core.keys import pack_key
from hermes_run.core.text import command_line
from hermes_run.core.trajectory import Status
from hermes_run.errors import UsageError
from hermes_run.store import layout
from hermes_run.store.comparison import compare as diff
from hermes_run.store.entry import JournalLine
from hermes_run.store.foreign import refuse_foreign
from hermes_run.store.journal import JournalView
from hermes_run.store.manifest import manifest_of, read_manifest
from hermes_run.store.planfile import planned_rollouts, read_plan
from hermes_run.store.repair import repair
from hermes_run.store.verify import verify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hermes_run.store.entry import Entry

__all__ = ["diff", "read_statistics", "repair", "status", "verify"]


@contextmanager
def opened_entries(run: Path) -> Iterator[Iterator[Entry]]:
    """The entries of a run, sorted by key: of a folder its journal's fold, of a file the file's.

    Raises UsageError when there are none to read.
    """
    journal = run / layout.JOURNAL
    if not journal.is_file():
        yield read_manifest(manifest_of(run))
        return
    view = JournalView(journal)
    try:
        if view.damages:
            raise UsageError(f"{journal}: damaged; rebuild it first: {command_line('repair', run)}")
        yield view.entries()
    finally:
        view.close()


def status(run: Path) -> dict[str, Any]:
    """`{outcomes, pending, outside_plan, running}`; of a manifest alone (a clone's), pending is None.

    `without_trajectory` is there when entries came from manifests alone: they are pending for a run.
    """
    statuses: dict[bytes, str] = {}
    elsewhere = 0
    with opened_entries(run) as entries:
        for entry in entries:
            statuses[pack_key(entry.key)] = entry.status
            elsewhere += isinstance(entry, JournalLine) and bool(entry.hash) and not entry.length
    counts: Counter[str] = Counter()
    pending: int | None = None
    if (run / layout.JOURNAL).is_file() or (run / layout.PLAN).is_file():
        plan, keys = read_plan(run)
        pending = 0
        for key in planned_rollouts(plan, keys):
            found = statuses.pop(key, None)
            if found is None:
                pending += 1
            else:
                counts[found] += 1
        invalid = len(plan.invalid) * plan.selection.samples
        outside = len(statuses)
    else:
        counts.update(statuses.values())
        invalid = outside = 0
    outcomes = {each.value: counts[each.value] for each in Status} | {"invalid": invalid}
    running = run.is_dir() and layout.is_locked(run)
    told: dict[str, Any] = {"without_trajectory": elsewhere} if elsewhere else {}
    return {"outcomes": outcomes, "pending": pending, "outside_plan": outside, "running": running, **told}


def read_statistics(run: Path) -> dict[str, Any]:
    """statistics.json of a run directory. Raises UsageError when there is none that can be read."""
    refuse_foreign(run)
    path = run / layout.STATISTICS
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{path}: not there; statistics are written when a run ends (or is stopped by a signal)"
        ) from None
    except ValueError:
        raise UsageError(f"{path}: damaged; running the spec again writes it anew") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path}: no statistics; running the spec again writes them anew")
    return content
