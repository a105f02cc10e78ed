"""The gate in front of an endpoint: one cool-down for all rollouts that ask the same model there.

A client has one gate, so a gate stands for one (endpoint, model). When an answer says "too many
requests", the gate closes for everybody; when it opens, the waiting calls start spread over a short
while instead of all at once. How many calls may be in flight is the runner's business so far: `passed`
and `succeeded` are the places where an adaptive limit would count them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("hermes_run.models")

_FIRST_S = 1.0
_LONGEST_S = 60.0
"""Without Retry-After: 1 s, doubled with each cool-down that follows without a success, up to 60 s."""
_SPREAD_S = 2.0


class Gate:
    """Open, or closed until a moment that all calls wait for.

    Args:
        name: what it stands for, for the log.
        clock: seconds, monotonic.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._opens_at = 0.0
        self._closed_at = float("-inf")
        self._in_a_row = 0
        self._refused_since: float | None = None

    async def passed(self) -> float:
        """Wait until the gate is open. Returns the moment of passing, for `cool_down`."""
        while (wait_s := self._opens_at - self._clock()) > 0:
            spread = min(_SPREAD_S, wait_s)
            await asyncio.sleep(wait_s + random.uniform(0, spread))  # noqa: S311 - timing only
        return self._clock()

    def cool_down(self, passed_at: float, wait_s: float | None, why: str) -> None:
        """Close the gate: a call that passed it at `passed_at` was told to come back later.

        Calls that passed before it was closed last belong to the same wave: they can only prolong it.
        """
        now = self._clock()
        if self._refused_since is None:
            self._refused_since = now
        if passed_at <= self._closed_at:
            if wait_s is not None:
                self._opens_at = max(self._opens_at, now + wait_s)
            return
        length = min(_LONGEST_S, _FIRST_S * 2**self._in_a_row) if wait_s is None else wait_s
        self._in_a_row = min(self._in_a_row + 1, 16)
        self._closed_at = now
        self._opens_at = max(self._opens_at, now + length)
        _log.warning("%s: %s; all calls wait %.1f s", self._name, why, length)

    def refused_for_s(self) -> float:
        """For how long nothing but refusals has come."""
        return 0.0 if self._refused_since is None else self._clock() - self._refused_since

    def answered(self) -> None:
        """Something other than a refusal came."""
        self._refused_since = None

    def succeeded(self) -> None:
        """A reply came."""
        self._refused_since = None
        self._in_a_row = 0
