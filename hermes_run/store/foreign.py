"""A folder with files of our names that no run of ours wrote, such as one of the predecessor's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hermes_run.core.text import command_line
from hermes_run.errors import JournalDamaged, UsageError
from hermes_run.store import layout
from hermes_run.store.batches import batch_numbers, batch_path

if TYPE_CHECKING:
    from pathlib import Path

_OURS = (layout.JOURNAL, layout.MANIFEST, layout.PLAN_KEYS)
_KEY = re.compile(rb'"key":\s*"[0-9a-f]{32}#[0-9]+"')
"""No text of a line can hold this: a quote is escaped there."""
_LOOKED_AT = 1 << 20


def refuse_foreign(run: Path) -> None:
    """Raises UsageError, naming `import`, for a folder whose trajectories are none of ours."""
    if not run.is_dir() or any((run / name).exists() for name in _OURS):
        return
    paths = [*(batch_path(run, number) for number in batch_numbers(run)), run / layout.TRAJECTORIES]
    found = [path for path in paths if path.is_file() and path.stat().st_size]
    if found and not any(_has_key(path) for path in found):
        raise UsageError(
            f"{run}: no run of hermes-run wrote what is in it. What hermes-agent left there can be taken "
            f"over: {command_line('import', run)}"
        )


def lost_journal(run: Path) -> JournalDamaged:
    """What is said of a run of ours whose journal is missing."""
    return JournalDamaged(f"{run / layout.JOURNAL}: missing; rebuild it first: {command_line('repair', run)}")


def _has_key(path: Path) -> bool:
    with path.open("rb") as stream:
        return _KEY.search(stream.read(_LOOKED_AT)) is not None
