"""Writes outcomes: artifacts, then the line, then the entry; syncs them; keeps the checkpoint."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_run.core.trajectory import Status
from hermes_run.store import layout
from hermes_run.store.artifacts import write_artifacts
from hermes_run.store.batches import batch_path
from hermes_run.store.checkpoint import sealed
from hermes_run.store.disk import Appender, replace_file
from hermes_run.store.lines import failed_line, kept_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hermes_run.core.trajectory import Outcome
    from hermes_run.formats.sharegpt import ShareGPT
    from hermes_run.store.journal import Journal

SYNC_EVERY_S = 1.0
"""Journal and batch files are on the disk at most about this long after a write. Contract, 4."""

_CHECKPOINT_SHARE = 50
"""A checkpoint is put off while its last writing took more than 1/50 of the time since then."""


class Writer:
    """The driver's hand: the only writer of outcomes.

    `size_of` tells how many outcomes a batch of this run will have; when they are all there its file
    is closed and a checkpoint is due.
    """

    def __init__(
        self,
        folder: Path,
        journal: Journal,
        form: Callable[[], ShareGPT],
        checkpoint: Checkpoint,
        size_of: Callable[[int], int],
    ) -> None:
        self._folder = folder
        self._journal = journal
        self._make_form = form
        self._form: ShareGPT | None = None
        self._checkpoint = checkpoint
        self._size_of = size_of
        self._files: dict[int, Appender] = {}
        self._complete: list[Appender] = []
        self._delivered: Counter[int] = Counter()

    def write(self, outcome: Outcome) -> bool:
        """Write one outcome down; whether its batch is complete now.

        Raises DiskFull; then nothing of it was written.
        """
        if outcome.trajectory is None:
            self._journal.append(failed_line(outcome))
        else:
            write_artifacts(self._folder, outcome.artifacts)
            form = self._form = self._form or self._make_form()
            line, entry = kept_line(outcome, outcome.trajectory, form)
            file = self._files.get(outcome.batch)
            if file is None:
                file = self._files[outcome.batch] = Appender(batch_path(self._folder, outcome.batch))
            offset = file.append(line)
            self._journal.append(msgspec.structs.replace(entry, batch=outcome.batch, offset=offset))
        self._checkpoint.count(outcome)
        self._delivered[outcome.batch] += 1
        is_complete = self._delivered[outcome.batch] == self._size_of(outcome.batch)
        if is_complete:
            del self._delivered[outcome.batch]
            closed = self._files.pop(outcome.batch, None)
            if closed is not None:
                self._complete.append(closed)
        return is_complete

    def begin_sync(self, *, final: bool = False) -> Callable[[], None]:
        """What brings all written so far to the disk, lines before entries, and then the checkpoint.

        May be called from another thread, once. Raises DiskFull from there.
        """
        complete, self._complete = self._complete, []
        if final:
            complete += self._files.values()
            self._files.clear()
        jobs = [file.begin_sync() for file in (*complete, *self._files.values())]
        jobs.append(self._journal.begin_sync())
        for file in complete:
            file.close()
        checkpoint = self._checkpoint.begin(final=final)

        def finish() -> None:
            for job in jobs:
                job()
            checkpoint()

        return finish


class Checkpoint:
    """What `checkpoint.json` says, and when it is written."""

    def __init__(self, folder: Path, run_name: str, samples: int) -> None:
        self._path = folder / layout.CHECKPOINT
        self._run_name = run_name
        self._samples = samples
        self._done: Counter[int] = Counter()
        self._batches: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._is_stale = True
        self._took_s = 0.0
        self._written_at = 0.0
        self.files: dict[str, Any] = {}

    def count(self, outcome: Outcome) -> None:
        """Take in an outcome."""
        self.add(outcome.prompt_index, outcome.batch, outcome.status.value)

    def add(self, prompt_index: int, batch: int, status: str) -> None:
        """Take in an entry of the plan."""
        if status != Status.FAILED.value:
            self._done[prompt_index] += 1
        self._batches[batch][status] += 1
        self._is_stale = True

    def begin(self, *, final: bool = False) -> Callable[[], None]:
        """What writes it, whole or not at all; nothing while that would take a notable share of the time."""
        start = time.monotonic()
        is_cheap = start - self._written_at > self._took_s * _CHECKPOINT_SHARE
        if not final and not (self._is_stale and is_cheap):
            return lambda: None
        content = {
            "run_name": self._run_name,
            "completed_prompts": sorted(i for i, done in self._done.items() if done >= self._samples),
            "batch_stats": {str(n): dict(sorted(c.items())) for n, c in sorted(self._batches.items())},
            "last_updated": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()),
            "files": self.files,
        }
        data = sealed(content)
        self._is_stale = False

        def write() -> None:
            replace_file(self._path, data)
            self._written_at = time.monotonic()
            self._took_s = self._written_at - start

        return write
