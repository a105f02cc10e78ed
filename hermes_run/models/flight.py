"""How many calls may be in flight at an endpoint: down at once, up in steps, never stuck.

The first wave of refusals leaves what the endpoint kept in flight. From there one more is tried after a
second, then two, four, eight. A trial that is refused takes its own step back, and nothing else: the next
one comes ten seconds later, and the following ones every five. So a limit that stands is touched rarely,
and one that was lifted is left behind within a minute. The refusal of every fourth trial in a row is
taken to be due to the rate as well: its calls start together. Refusals that no trial explains mean
something only where they are most of a wave: they leave what was kept. A few among many come by chance,
and one alone says nothing of how many may be in flight. Only calls that had to wait for room make room.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PROOFS = 5
"""Replies to calls beyond the proven level that prove the level of a trial."""
_DOUBTED = 4
"""Of so many refused trials in a row the last one is no explanation."""
_BY_CHANCE = 2
"""Refusals by which those of a small wave may be the majority without meaning anything."""
_FIRST_TRY_S = 10.0
_PAUSE_S = 5.0
_FIRST_PAUSE_S = 1.0


class Flight:
    """The limit of calls in flight of one process. There is none until something is refused."""

    def __init__(self) -> None:
        self._most = math.inf
        self._proved = math.inf
        self._is_first = False
        self._asked = self._refused = 0
        self._in_vain = 0
        self._step = 1.0
        self._pause_s = _FIRST_PAUSE_S
        self._try_at = 0.0
        self._is_short = False
        self._kept_above = 0

    @property
    def most(self) -> float:
        """Calls that may be in flight; infinity without a limit."""
        return self._most

    def has_room(self, in_flight: int) -> bool:
        """Whether one more may start."""
        if in_flight + 1 <= self._most:
            return True
        self._is_short = True
        return False

    def was_trial(self, in_flight: int) -> bool:
        """Whether a refusal can be due to a trial: more are in flight than are known to be kept."""
        return self._proved < in_flight <= self._most < math.inf

    def explains(self, in_flight: int) -> bool:
        """Whether a trial alone is the reason of a refusal: of every fourth one in a row that is doubted."""
        return self.was_trial(in_flight) and (self._in_vain + 1) % _DOUBTED != 0

    def refused(self, in_flight: int, now: float, *, is_new: bool) -> None:
        """One of the calls in flight was refused; `is_new` if it is the first one of its wave."""
        if is_new:
            self._asked, self._refused = in_flight, 0
        self._refused += 1
        kept = self._asked - self._refused  # of those in flight when the first one was refused
        if self.was_trial(in_flight):
            limit, self._pause_s = self._proved, _PAUSE_S
            self._in_vain += 1
            self._try_at = now + _FIRST_TRY_S
        elif self._most == math.inf or (self._is_first and not is_new):
            self._is_first, limit = True, float(kept)
            self._try_at = now + self._pause_s
        elif self._refused - _BY_CHANCE > kept > 0:
            self._is_first, limit = False, float(kept)
        else:
            self._is_first = self._is_first and not is_new
            return
        self._most = max(1.0, min(self._most, limit))
        self._proved = self._most
        self._step = 1.0
        self._is_short = False
        self._kept_above = 0

    def succeeded(self, level: int, clock: Callable[[], float]) -> None:
        """A reply came to a call that was the `level`th in flight when it started."""
        if self._proved < level <= self._most < math.inf:
            self._kept_above += 1
            if self._kept_above >= _PROOFS:
                self._proved = self._most
                self._in_vain = 0
        if not self._is_short:
            return
        self._is_short = False
        if (now := clock()) >= self._try_at:
            self._proved = self._most
            self._kept_above = 0
            self._most += self._step
            self._step *= 2
            self._try_at = now + self._pause_s
