"""`--pilot N`: the first N rollouts run, the forecast is shown, and the rest runs when that is wanted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes_run.errors import BudgetStop
from hermes_run.runner.forecast import Experience

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hermes_run.core.trajectory import Outcome

    Confirm = Callable[[dict[str, Any] | None], Awaitable[bool]]

_STOPPED = "stopped after the pilot, whose rollouts count; the same command goes on (with --yes unasked)"


class Pilot:
    """Lets the first rollouts through, and the others once somebody has agreed.

    Args:
        count: how many come first; 0 lets everything through.
        pending: rollouts to run in all.
        workers: prompts in flight.
        confirm: is shown the forecast of the rest (None when there is nothing to forecast from).
    """

    def __init__(self, count: int, pending: int, workers: int, confirm: Confirm | None) -> None:
        self._left_to_begin = self._left_to_end = count if count < pending else 0
        self._rest = pending - count
        self._workers = workers
        self._confirm = confirm
        self._experience = Experience("the pilot")
        self._is_asked: asyncio.Future[bool] | None = None
        self._question: asyncio.Future[bool] | None = None
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Nothing more is to begin: nobody is asked any more, and an open question is taken back."""
        self._stopped.set()
        if self._question is not None:
            self._question.cancel()

    async def passed(self) -> None:
        """Wait until one more rollout may begin. Raises BudgetStop when the rest is not wanted."""
        if self._left_to_begin:
            self._left_to_begin -= 1
            return
        if not self._left_to_end and self._is_asked is None:
            return
        if self._is_asked is None:
            self._is_asked = asyncio.get_running_loop().create_future()
        if not await asyncio.shield(self._is_asked):
            raise BudgetStop(_STOPPED)

    async def ended(self, outcome: Outcome) -> None:
        """A rollout has its outcome; after the last of the pilot's it is asked whether to go on."""
        if not self._left_to_end:
            return
        usage = outcome.trajectory.usage if outcome.trajectory else outcome.usage
        calls = outcome.trajectory.api_calls if outcome.trajectory else outcome.api_calls
        self._experience.add(usage, calls, outcome.duration_s)
        self._left_to_end -= 1
        if self._left_to_end:
            return
        if self._is_asked is None:
            self._is_asked = asyncio.get_running_loop().create_future()
        self._is_asked.set_result(await self._is_wanted())

    async def _is_wanted(self) -> bool:
        if self._confirm is None or self._stopped.is_set():
            return False
        forecast = self._experience.forecast(self._rest, self._workers)
        self._question = asyncio.ensure_future(self._confirm(forecast))
        try:
            return await self._question
        except asyncio.CancelledError:
            if not self._stopped.is_set():
                raise
            return False
