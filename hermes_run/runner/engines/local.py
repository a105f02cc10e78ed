"""Rollouts in this process: `workers` of them at a time, on one event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_run.errors import HermesRunError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hermes_run.core.contracts import Deliver, RunPrompt
    from hermes_run.core.task import PromptTask


class LocalEngine:
    """See Engine. Each worker takes the next task when it is free: a slow prompt holds nobody up."""

    def __init__(self, run_prompt: RunPrompt, workers: int) -> None:
        self._run_prompt = run_prompt
        self._workers = workers
        self._is_draining = False

    async def run(self, tasks: Iterable[PromptTask], deliver: Deliver) -> None:
        """See Engine."""
        source = iter(tasks)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._workers):
                    group.create_task(self._work(source, deliver))
        except BaseExceptionGroup as several:  # what stops a run is told as itself
            raise first_cause(several) from None

    def drain(self) -> None:
        """See Engine."""
        self._is_draining = True

    async def _work(self, source: Iterator[PromptTask], deliver: Deliver) -> None:
        for task in source:
            await deliver(await self._run_prompt(task))
            if self._is_draining:
                return


def first_cause(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """What ended the run: a bug before what was raised on purpose, the first of its kind."""
    causes: list[BaseException] = []
    todo: list[BaseException] = [several]
    while todo:
        each = todo.pop(0)
        if isinstance(each, BaseExceptionGroup):
            todo += each.exceptions
        else:
            causes.append(each)
    bugs = [each for each in causes if not isinstance(each, HermesRunError)]
    return (bugs or causes)[0]
