"""The gate in front of an endpoint: what all rollouts that ask the same model there wait for together.

One gate stands for one (endpoint, model). It lets calls through in the order in which they came, as far
as three things allow:

- **The cool-down.** An answer that says "too many requests" closes it for everybody, for as long as
  Retry-After asks, else 1 s, doubled with each cool-down that follows without a success, up to 60 s.
- **The rate** (`pace.py`): found out by being refused, cut by the spec's limits and the endpoint's hints.
- **Calls in flight.** A wave of refusals cuts them to those that the endpoint kept; each round of
  successes that could have used one more adds one.

Cool-down and rate lie on a board (`board.py`) that the processes of a run can share; how many calls are in
flight each process finds out for itself. Without refusals, hints and limits a call passes at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from hermes_run.models import pace
from hermes_run.models.board import Board
from hermes_run.models.flight import Flight

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_run.models.hints import Hint

_log = logging.getLogger("hermes_run.models")

_FIRST_S = 1.0
_LONGEST_S = 60.0
_SPREAD = 0.05
"""Waiting calls start up to this part of a cool-down late, so that processes do not march in step."""
_SOON_S = 2.0
"""When nothing is left and the endpoint says when there is more again: waited for if it is this soon."""

_OPENS_AT, _CLOSED_AT, _IN_A_ROW, _REFUSED_SINCE = range(4)
_PACE = 8
SIZE = _PACE + pace.SIZE
"""Doubles that a gate takes on its board."""


class Pass(NamedTuple):
    """When a call was let in, and how many were in flight then, itself included."""

    at: float
    level: int = 1


class Dismissed(Exception):
    """A call that waited at a gate is to look for another one."""


class Gate:
    """Open, or closed until a moment that all calls wait for.

    Args:
        name: what it stands for, for the log.
        clock: seconds, monotonic; never 0.
        board: `SIZE` cells; None for one of its own.
        per_minute: requests a minute that the spec allows, or None.
        tokens_per_minute: tokens a minute that the spec allows, or None.

    Attributes:
        in_flight: calls that passed and have not left.
    """

    def __init__(
        self,
        name: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        board: Board | None = None,
        per_minute: float | None = None,
        tokens_per_minute: float | None = None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._board = board or Board(SIZE)
        self._cells = self._board.cells
        self._pace = pace.Pace(self._cells[_PACE:], per_minute, tokens_per_minute)
        self._flight = Flight()
        self._waiting: deque[tuple[asyncio.Future[Pass], float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.in_flight = 0

    @property
    def load(self) -> int:
        """Calls in flight and waiting."""
        return self.in_flight + len(self._waiting)

    @property
    def counts_tokens(self) -> bool:
        """Whether `passed` has to be told how many tokens a call will take."""
        return self._pace.counts_tokens

    def closed_for_s(self) -> float:
        """For how long the cool-down goes on."""
        return max(0.0, self._cells[_OPENS_AT] - self._clock())

    async def passed(self, tokens: float = 0.0) -> Pass:
        """Wait for one's turn, with a call of about `tokens`. Whoever passed calls `left` in the end.

        Raises Dismissed.
        """
        if not self._waiting:
            now = self._clock()
            again_at = self._take(now, tokens)
            if not again_at:
                return Pass(now, self.in_flight)
            self._wake_at(again_at, now)
        turn: asyncio.Future[Pass] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, tokens))
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.left()
            raise

    def dismiss(self) -> None:
        """Send everybody away who waits."""
        for turn, _ in self._waiting:
            if not turn.done():
                turn.set_exception(Dismissed)
        self._waiting.clear()

    def left(self) -> None:
        """A call that passed is over, however it ended (tell `cool_down` first if it was refused)."""
        self.in_flight -= 1
        self._let_in()

    def _take(self, now: float, tokens: float) -> float:
        """Start a call. Returns 0, or when to try again (infinity: when another call is over)."""
        with self._board:
            opens_at = self._cells[_OPENS_AT]
            if opens_at > now:
                return opens_at + random.uniform(0, _SPREAD * (opens_at - now))  # noqa: S311 - timing only
            if not self._flight.has_room(self.in_flight):
                return pace.INFINITE
            again_at = self._pace.take(now, tokens)
        if not again_at:
            self.in_flight += 1
        return again_at

    def _let_in(self) -> None:
        """Start as many of the waiting calls as may."""
        while self._waiting:
            turn, tokens = self._waiting[0]
            if not turn.done():
                now = self._clock()
                again_at = self._take(now, tokens)
                if again_at:
                    self._wake_at(again_at, now)
                    return
                turn.set_result(Pass(now, self.in_flight))
            self._waiting.popleft()

    def _wake_at(self, at: float, now: float) -> None:
        if at == pace.INFINITE:
            return
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + (at - now):
                return
            self._timer.cancel()
        self._timer = loop.call_later(at - now, self._woken)

    def _woken(self) -> None:
        self._timer = None
        self._let_in()

    def cool_down(self, passed: Pass, wait_s: float | None, why: str) -> None:
        """Close the gate: a call was told to come back later.

        Calls that passed before it was closed last belong to the same wave: they can only prolong it.
        """
        cells = self._cells
        now = self._clock()
        is_new = passed.at > cells[_CLOSED_AT]
        is_explained = self._flight.explains(self.in_flight)
        with self._board:
            cells[_REFUSED_SINCE] = cells[_REFUSED_SINCE] or now
            if is_new:
                length = min(_LONGEST_S, _FIRST_S * 2 ** cells[_IN_A_ROW]) if wait_s is None else wait_s
                cells[_IN_A_ROW] = min(cells[_IN_A_ROW] + 1, 16)
                cells[_CLOSED_AT] = now
                cells[_OPENS_AT] = max(cells[_OPENS_AT], now + length)
            elif wait_s is not None:
                cells[_OPENS_AT] = max(cells[_OPENS_AT], now + wait_s)
            wave = pace.Wave(cells[_CLOSED_AT], cells[_OPENS_AT], is_new)
            is_limit = self._pace.refused(passed.at, wave, is_explained=is_explained)
        if is_limit:
            self._flight.refused(self.in_flight, now, is_new=is_new)
        if is_new:
            _log.warning("%s: %s; all calls wait %.1f s", self._name, why, length, extra={"wait_s": length})

    def hinted(self, hint: Hint, tokens_per_call: float = 0.0) -> None:
        """The endpoint said how much is left. Acted upon when calls in flight could use it up."""
        if hint.reset_s <= 0:
            return
        left, limit = hint.remaining, hint.limit
        if hint.is_tokens:
            if tokens_per_call <= 0:
                return
            left, limit = left / tokens_per_call, limit / tokens_per_call
        if left > self.load:
            return
        now = self._clock()
        with self._board:
            if left < 1 and hint.reset_s <= _SOON_S:
                self._cells[_OPENS_AT] = max(self._cells[_OPENS_AT], now + hint.reset_s)
            else:
                self._pace.hold(max(left, limit, 1.0) / hint.reset_s, now + hint.reset_s)

    def refused_for_s(self) -> float:
        """For how long nothing but refusals has come."""
        since = self._cells[_REFUSED_SINCE]
        return self._clock() - since if since else 0.0

    def answered(self) -> None:
        """Something other than a refusal came."""
        self._cells[_REFUSED_SINCE] = 0.0

    def succeeded(self, passed: Pass, tokens_more: float = 0.0) -> None:
        """A reply came to a call; it took `tokens_more` than `passed` was told."""
        self._cells[_REFUSED_SINCE] = 0.0
        self._cells[_IN_A_ROW] = 0.0
        if tokens_more and self._pace.counts_tokens:
            with self._board:
                self._pace.settle(tokens_more)
        self._flight.succeeded(passed.level, self._clock)
