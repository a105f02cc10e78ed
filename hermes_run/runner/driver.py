"""The driver: feeds the engine with what is pending and writes down what comes back."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import msgspec

from hermes_run.core.registry import ENGINES, load
from hermes_run.core.trajectory import Status, StopReason
from hermes_run.errors import BudgetStop, DatasetChanged, EnvironmentStop
from hermes_run.formats.sharegpt import ShareGPT
from hermes_run.runner.pilot import Pilot
from hermes_run.runner.session import run_prompt
from hermes_run.runner.signals import GRACE_S, Interrupted, StopSignal
from hermes_run.store.batches import batch_numbers
from hermes_run.store.writer import SYNC_EVERY_S, Checkpoint, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hermes_run.core.contracts import Engine
    from hermes_run.core.task import PromptTask
    from hermes_run.core.trajectory import Outcome
    from hermes_run.runner.observe import Observer
    from hermes_run.runner.opening import OpenRun
    from hermes_run.runner.resources import Resources

BUGS_IN_A_ROW = 20
"""Outcomes `failed: internal` in a row (at least one a worker) that stop a run: it is a bug of ours."""


_PER_WORKER_AHEAD = 2
"""Prompts read before their turn, for each worker."""


class Driver:
    """Feeds the engine with what is pending and writes down what comes back."""

    def __init__(self, opened: OpenRun, observer: Observer) -> None:
        self._opened = opened
        self._observer = observer
        self.ran = 0
        self.stopped = ""
        self.exit_code = 0
        self._bugs = 0
        self._no_reasoning = 0
        self._sync_now = asyncio.Event()
        spec = opened.spec
        self.first_batch = 1 + max([-1, *batch_numbers(opened.folder), *opened.journal.batches])
        self.checkpoint = Checkpoint(opened.folder, spec.run_name, spec.samples)
        self.pending = self._count_pending()
        self.writer = Writer(opened.folder, opened.journal, self._form, self.checkpoint, self._size_of)

    def _form(self) -> ShareGPT:
        """The form of lines, once it is known which tools they count."""
        return ShareGPT(tuple(self._opened.extra))

    def _count_pending(self) -> int:
        opened, pending = self._opened, 0
        fold = opened.journal.fold
        for rollout in opened.plan.rollouts():
            status = fold.status(rollout.key)
            if status is None:
                pending += 1
                continue
            pending += status in opened.retry
            place = opened.plan.prompt_index(rollout.position)
            self.checkpoint.add(place, fold.batch(rollout.key), status)
        return pending

    def _size_of(self, batch: int) -> int:
        size = self._opened.spec.batch_size
        return min(size, self.pending - (batch - self.first_batch) * size)

    def tasks(self, see: Callable[[PromptTask], None] | None = None) -> Iterator[PromptTask]:
        """What is pending, in dataset order, cut into batches; rows are read as they are asked for.

        `see` is told of each a little ahead of its turn, so that its image can be fetched by then.
        """
        workers = self._opened.spec.workers
        return (
            ahead(self._numbered_tasks(), _PER_WORKER_AHEAD * workers, see) if see else self._numbered_tasks()
        )

    def _numbered_tasks(self) -> Iterator[PromptTask]:
        opened, size = self._opened, self._opened.spec.batch_size
        todo = (each for each in opened.plan.rollouts() if opened.is_pending(each.key))
        number = 0
        try:
            for task in opened.plan.read_tasks(todo):
                yield msgspec.structs.replace(task, batch=self.first_batch + number // size)
                number += 1
        except DatasetChanged as change:
            if not number:
                raise
            self.stopped, self.exit_code = str(change), change.exit_code  # what is in flight is paid for

    def announce(self) -> None:
        """Tell the observer of the plan."""
        total = self._opened.plan.planned
        self._observer.planned(
            total=total, done=total - self.pending, pending=self.pending, run_dir=self._opened.folder
        )

    async def run(self, resources: Resources, signals: StopSignal) -> None:
        """Run all that is pending, or as far as it goes."""
        gc.freeze()  # what is imported by now stays
        gc.enable()
        pool = ThreadPoolExecutor(1, thread_name_prefix="hermes-run-sync")
        syncing = asyncio.create_task(self._keep_synced(pool))
        try:
            await self._run_engine(resources, signals, syncing)
        finally:
            signals.listen(None)
            syncing.cancel()
            await asyncio.gather(syncing, return_exceptions=True)
            pool.shutdown()
            self.writer.begin_sync(final=True)()

    async def _run_engine(
        self, resources: Resources, signals: StopSignal, syncing: asyncio.Task[None]
    ) -> None:
        workers = min(self._opened.spec.workers, self.pending)
        pilot = Pilot(self._opened.pilot, self.pending, workers, self._opened.confirm)

        waiting: set[asyncio.Task[object]] = set()  # of those whose rollout has not begun

        async def roll_out(task: PromptTask) -> Outcome:
            with until_begun(waiting) as begun:
                await pilot.passed()
                async with resources.budget.place_for(task) as purse:
                    begun()
                    self._observer.started(task)
                    outcome = await run_prompt(task, resources, purse.spend)
                    purse.is_cut = (
                        outcome.status is Status.FAILED or outcome.reason == StopReason.PROMPT_TIMEOUT.value
                    )
                    return outcome

        async def deliver(outcome: Outcome) -> None:
            self._deliver(outcome)
            await pilot.ended(outcome)

        engine: Engine = load("engine", ENGINES, self._opened.spec.engine.name)(roll_out, workers)
        running = asyncio.ensure_future(engine.run(self.tasks(resources.prefetch), deliver))
        loop = asyncio.get_running_loop()

        def on_signal(count: int) -> None:
            if count > 1:
                running.cancel()
                return
            engine.drain()
            pilot.stop()
            for worker in waiting:
                worker.cancel()
            self._observer.warn(
                f"stopping: rollouts in flight may finish within {GRACE_S:g} s; once more leaves at once"
            )
            loop.call_later(GRACE_S, running.cancel)

        signals.listen(on_signal)
        try:
            await asyncio.wait({running, syncing}, return_when=asyncio.FIRST_COMPLETED)
            if syncing.done() and not running.done():
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await syncing
            await running
        except asyncio.CancelledError:
            if signals.count > 1:
                raise Interrupted(signals.signum) from None
            if not signals.count:
                raise
        except (EnvironmentStop, BudgetStop) as stop:
            self.stopped, self.exit_code = str(stop), stop.exit_code
        finally:
            if not running.done():
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    def _deliver(self, outcome: Outcome) -> None:
        if self.writer.write(outcome):
            self._sync_now.set()
        self.ran += 1
        self._observer.finished(outcome)
        self._watch(outcome)

    def _watch(self, outcome: Outcome) -> None:
        self._bugs = self._bugs + 1 if outcome.reason == "internal" else 0
        if self._bugs >= max(BUGS_IN_A_ROW, self._opened.spec.workers):
            raise RuntimeError(f"{self._bugs} rollouts in a row failed by a bug; the last: {outcome.error}")
        is_mute = outcome.status is Status.DISCARDED and outcome.reason == "no_reasoning"
        self._no_reasoning += is_mute
        if self.ran == 10 == self._no_reasoning:
            self._observer.warn(
                "the first ten prompts were all discarded as no_reasoning: the model's replies carry no "
                "reasoning. Ask for it (reasoning.effort), or keep such trajectories with "
                "--set filters.require_reasoning=false (what is kept already is then judged again, unpaid)"
            )

    async def _keep_synced(self, pool: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(SYNC_EVERY_S):
                    await self._sync_now.wait()
            except TimeoutError:
                pass
            self._sync_now.clear()
            await loop.run_in_executor(pool, self.writer.begin_sync())

    def ending(self, signals: StopSignal) -> tuple[int, str, int]:
        """Exit code so far (0: it ran to its end), why it stopped, and how many rollouts it ran."""
        if self.ran >= self.pending:
            return 0, "", self.ran
        if self.stopped:
            return self.exit_code, self.stopped, self.ran
        if signals.count:
            return signals.exit_code, f"stopped by {signal.Signals(signals.signum).name}", self.ran
        return 0, "", self.ran


@contextmanager
def until_begun(waiting: set[asyncio.Task[object]]) -> Iterator[Callable[[], None]]:
    """This task is among those that wait until what it yields is called."""
    task = cast("asyncio.Task[object]", asyncio.current_task())
    waiting.add(task)
    try:
        yield lambda: waiting.discard(task)
    finally:
        waiting.discard(task)


def ahead(tasks: Iterator[PromptTask], count: int, see: Callable[[PromptTask], None]) -> Iterator[PromptTask]:
    """The same tasks; `see` is told of each when no more than `count` others stand before it."""
    seen: deque[PromptTask] = deque()
    for task in tasks:
        see(task)
        seen.append(task)
        if len(seen) > count:
            yield seen.popleft()
    yield from seen
