"""Judging kept records again, when filters or checks have changed: no model calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hermes_run.formats.record import decode_record
from hermes_run.formats.sharegpt import from_record
from hermes_run.quality.filters import judge
from hermes_run.store.batches import BatchReader
from hermes_run.store.entry import JUDGED, REUSED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hermes_run.core.contracts import Filter
    from hermes_run.store.journal import Journal


def judge_again(folder: Path, journal: Journal, filters: Sequence[Filter]) -> int:
    """Append an entry for every kept record that is judged otherwise now; how many.

    A record whose line is damaged is left to the merge, which finds it.
    """
    changed = 0
    with BatchReader(folder) as reader:
        for key in journal.fold.sorted_keys():
            entry = journal.at(journal.fold.offset(key))
            line = reader.read(entry) if entry.length else None
            if line is None:
                continue
            status, reason = judge(from_record(decode_record(line)), filters)
            if (entry.status, entry.reason) != (status.value, reason):
                source = REUSED if entry.source == REUSED else JUDGED  # whoever judges, another run paid
                again = msgspec.structs.replace(
                    entry, status=status.value, reason=reason, source=source, sum=""
                )
                journal.append(again)
                changed += 1
    return changed
