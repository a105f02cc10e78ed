"""`reuse`: rollouts of other runs that are this run's too: equal key, equal work fingerprint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hermes_run.core.trajectory import Status
from hermes_run.errors import UsageError
from hermes_run.formats.record import decode_record
from hermes_run.formats.sharegpt import from_record
from hermes_run.quality.filters import judge
from hermes_run.store import layout
from hermes_run.store.artifacts import copy_artifacts
from hermes_run.store.batches import BatchReader, batch_numbers, batch_path
from hermes_run.store.disk import Appender
from hermes_run.store.entry import REUSED
from hermes_run.store.journal import JournalView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from hermes_run.core.contracts import Filter
    from hermes_run.store.entry import JournalLine
    from hermes_run.store.journal import Journal


def is_reusable(entry: JournalLine, work: str) -> bool:
    """Whether a run with this work fingerprint takes over an entry of another one, if it has its key."""
    return entry.work == work and entry.status != Status.FAILED.value and entry.length > 0


def count_reusable(runs: Iterable[Path], work: str, untried: Iterable[bytes]) -> int:
    """How many of the untried rollouts (packed keys) runs would give, as far as their journals tell.

    Raises UsageError when one is no run directory, or its journal is damaged.
    """
    left = list(untried)
    count = len(left)
    for run in runs:
        view = _opened(run)
        try:
            left = [key for key in left if not ((entry := view.find(key)) and is_reusable(entry, work))]
        finally:
            view.close()
    return count - len(left)


def _opened(run: Path) -> JournalView:
    source = run / layout.JOURNAL
    if not source.is_file():
        raise UsageError(f"reuse: {run} is no run directory: it has no {layout.JOURNAL}; take it out")
    view = JournalView(source)
    try:
        view.refuse_damage()
    except BaseException:
        view.close()
        raise
    return view


class Reuse:
    """Takes over what other runs have, into batch files of its own, line before entry.

    Args:
        folder, journal: of the run that takes over.
        work: its work fingerprint; entries made under another are left alone.
        filters: judge what is taken over.
        batch_size: trajectories per batch file.
    """

    def __init__(
        self, folder: Path, journal: Journal, work: str, filters: Sequence[Filter], batch_size: int
    ) -> None:
        self._folder = folder
        self._journal = journal
        self._work = work
        self._filters = filters
        self._batch_size = batch_size
        self._number = max([-1, *batch_numbers(folder), *journal.batches])
        self._file: Appender | None = None
        self._in_file = 0

    def take_over(self, run: Path, pending: Iterator[bytes]) -> int:
        """Take over what `run` has of the pending rollouts (packed keys); how many that were.

        Raises UsageError when `run` is no run directory, or its journal is damaged.
        """
        view, taken = _opened(run), 0
        try:
            with BatchReader(run) as reader:
                for key in pending:
                    entry = view.find(key)
                    line = (
                        reader.read(entry) if entry is not None and is_reusable(entry, self._work) else None
                    )
                    if entry is not None and line is not None:
                        copy_artifacts(run, self._folder, line)
                        self._append(entry, line)
                        taken += 1
        finally:
            view.close()
            self._finish()
        return taken

    def _append(self, entry: JournalLine, line: bytes) -> None:
        if self._file is None or self._in_file == self._batch_size:
            self._finish()
            self._number += 1
            self._file, self._in_file = Appender(batch_path(self._folder, self._number)), 0
        status, reason = judge(from_record(decode_record(line)), self._filters)
        place = {"batch": self._number, "offset": self._file.append(line)}
        judged = {"status": status.value, "reason": reason}
        self._journal.append(msgspec.structs.replace(entry, **place, **judged, source=REUSED, sum=""))
        self._in_file += 1

    def _finish(self) -> None:
        if self._file is not None:
            self._file.begin_sync()()
            self._file.close()
            self._file = None
            self._journal.begin_sync()()
