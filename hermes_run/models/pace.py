"""How fast an endpoint may be asked: a rate that is found out by being refused, and cut by what is known.

After a wave of refusals the rate is what the endpoint accepted just before, less a twelfth; then it follows
a cubic curve in time: back near the old rate within seconds, flat around it, a little beyond in the end.
So a limit that stands is touched about every 20 seconds. Where nothing is refused until then, the limit was
lifted: from there on the rate doubles every few seconds. A wave that nothing was accepted before says
little about the rate: it is halved, down to one a second, and doubles at once.

Some endpoints refuse by chance (one busy machine of many): however low the rate, one call in so many is told
to come back. Where cutting the rate again and again changes nothing, none is kept to for a while.

All numbers of it lie in one array of doubles, so that processes can share it (`board.py`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

INFINITE = math.inf

CUT = 0.92
"""After a wave the rate is this part of what was accepted."""
FLAT_AT_S = 20.0
"""Seconds after a wave at which the curve is back at the rate of that wave; more after long cool-downs."""
_FIRST_FLAT_AT_S = 5.0
"""The same after the first wave: what was accepted until then may have been far less than could be."""
_FLAT_PER_WAIT = 4.0
_FLAT_AT_MOST_S = 60.0
DOUBLES_IN_S = 2.0
LIFTED_DOUBLES_IN_S = 5.0
_FORGOTTEN = 2000.0
"""A rate (1/s) that has grown beyond this limits nothing any more."""
_EARLY_PART = 0.8
_EARLY_CUT = 0.95
"""A wave before so much of the way to the flat part: the rate was still too high."""
_ENOUGH = 5
"""Calls that a measurement needs to be one."""
_LONG_WAIT_S = 5.0
"""A cool-down beyond this stands for a window of about its length: what is measured next includes it."""
_LONGEST_WINDOW_S = 60.0

_USED_OVER_S = 10.0
_USED_MORE = 1.2
_CHANCE_CUT = 0.6
_CHANCE_ACCEPTED = 3
"""Refusals that come on at so much of a rate, one to so many accepted calls, come by chance."""
_FREE_AT_FIRST_S = 60.0
_FREE_AT_MOST_S = 600.0
"""For so long small waves cut nothing: they are waited for, and that is all."""

(_CEILING, _FLAT_FROM, _FLAT_AT, _DOUBLING, _PRIOR, _NEXT_AT, _TOKENS_NEXT_AT, _HINT, _HINT_UNTIL) = range(9)
(_SINCE, _NEXT_SINCE, _REFUSED, _LAST_CLOSED_AT, _CLOSED_AT, _FREE_S, _FREE_UNTIL) = range(9, 16)
(_LAST_PRIOR, _STREAK_RATE, _STREAK_ACCEPTED, _STREAK_REFUSED) = range(16, 20)
_METER = 20
_BUCKETS = 256
_BUCKET_S = 0.25
SIZE = _METER + 2 * _BUCKETS
"""Doubles that a pace takes in the array."""


class Wave(NamedTuple):
    """Refusals that belong together: when they closed the gate, when it opens, whether this is the first."""

    closed_at: float
    opens_at: float
    is_new: bool


class Pace:
    """When the next call may start.

    Args:
        cells: `SIZE` doubles, all zero at first; perhaps shared.
        per_minute: requests that the spec allows, or None.
        tokens_per_minute: tokens that the spec allows, or None.

    All times are seconds of one monotonic clock.
    """

    def __init__(
        self,
        cells: memoryview[float],
        per_minute: float | None = None,
        tokens_per_minute: float | None = None,
    ) -> None:
        self._cells = cells
        self._given = per_minute / 60 if per_minute else INFINITE
        self._tokens = tokens_per_minute / 60 if tokens_per_minute else INFINITE

    @property
    def counts_tokens(self) -> bool:
        """Whether calls have to say how many tokens they will take."""
        return self._tokens != INFINITE

    def rate(self, now: float) -> float:
        """Calls a second that may start now."""
        cells = self._cells
        found = self._given
        if cells[_CEILING]:
            found = min(found, self._found_out(now))
        if cells[_HINT_UNTIL] > now:
            found = min(found, cells[_HINT])
        return found

    def _found_out(self, now: float) -> float:
        """The curve."""
        cells = self._cells
        after_s = max(0.0, now - cells[_FLAT_FROM])
        if cells[_DOUBLING]:
            rate = cells[_CEILING] * 2 ** min(after_s / DOUBLES_IN_S, 64)
        else:
            flat_at = cells[_FLAT_AT]
            rate = cells[_CEILING] * (1 + (1 - CUT) * (min(after_s / flat_at, 2) - 1) ** 3)
            rate *= 2 ** min(max(0.0, after_s - 2 * flat_at) / LIFTED_DOUBLES_IN_S, 64)
        if rate > _FORGOTTEN:
            cells[_CEILING] = 0.0
            return INFINITE
        return rate

    def take(self, now: float, tokens: float) -> float:
        """Start a call of about `tokens`. Returns 0, or the moment at which to try again."""
        cells = self._cells
        rate = self.rate(now)
        if rate != INFINITE and cells[_NEXT_AT] > now:
            return cells[_NEXT_AT]
        if self._tokens != INFINITE:
            if cells[_TOKENS_NEXT_AT] > now:
                return cells[_TOKENS_NEXT_AT]
            cells[_TOKENS_NEXT_AT] = max(cells[_TOKENS_NEXT_AT], now) + tokens / self._tokens
        if rate != INFINITE:
            late_at_most = min(0.05, 0.25 / rate)
            cells[_NEXT_AT] = max(cells[_NEXT_AT], now - late_at_most) + 1 / rate
        self._count(now, 1)
        return 0.0

    def settle(self, tokens: float) -> None:
        """A call took so many tokens more (or fewer) than `take` was told."""
        if self._tokens != INFINITE:
            self._cells[_TOKENS_NEXT_AT] += tokens / self._tokens

    def hold(self, rate: float, until: float) -> None:
        """The endpoint itself said how many calls a second it allows, until then."""
        self._cells[_HINT] = rate
        self._cells[_HINT_UNTIL] = until

    def refused(self, passed_at: float, wave: Wave, *, is_explained: bool = False) -> bool:
        """A call that started at `passed_at` was refused: cut the rate, unless refusals come at any rate.

        Args:
            passed_at: within what this wave measures.
            wave: what it belongs to.
            is_explained: whether something else than the rate was the reason.

        Returns whether the refusal says something about limits.
        """
        cells = self._cells
        closed_at, opens_at = wave.closed_at, wave.opens_at
        self._count(passed_at, -1)
        if wave.is_new:
            cells[_SINCE] = cells[_NEXT_SINCE]
            cells[_PRIOR] = self._ran_at(closed_at)
            cells[_LAST_CLOSED_AT], cells[_CLOSED_AT] = cells[_CLOSED_AT], closed_at
            self._look_for_chance(closed_at)
            cells[_REFUSED] = 0.0
        cells[_REFUSED] += 1
        is_long = opens_at - closed_at > _LONG_WAIT_S
        cells[_NEXT_SINCE] = closed_at + _BUCKET_S if is_long else opens_at
        if is_explained:
            return True
        if cells[_FREE_UNTIL] > closed_at:
            if cells[_REFUSED] <= max(_ENOUGH, self._accepted(closed_at - 1.0, closed_at)):
                return False
            cells[_FREE_UNTIL] = cells[_FREE_S] = 0.0  # most of them: there is a limit after all
        cells[_FLAT_AT] = min(max(FLAT_AT_S, _FLAT_PER_WAIT * (opens_at - closed_at)), _FLAT_AT_MOST_S)
        self._cut(cells[_PRIOR], closed_at, opens_at)
        return True

    def _ran_at(self, closed_at: float) -> float:
        """The rate before a wave: as allowed, or as used where that was less."""
        cells = self._cells
        if not cells[_CEILING]:
            return INFINITE
        window_s = min(closed_at - cells[_SINCE], _USED_OVER_S)
        used = self._accepted(closed_at - window_s, closed_at) / window_s if window_s >= 1 else INFINITE
        return min(self._found_out(closed_at), max(_USED_MORE * used, 1.0))

    def _look_for_chance(self, closed_at: float) -> None:
        """Small waves at an ever lower rate: no rate helps, so none is kept to for a while.

        Under a limit the rate is cut below it after a few of them, and then comes back up to it.
        """
        cells = self._cells
        is_free = cells[_FREE_UNTIL] > closed_at
        if not is_free and not cells[_PRIOR] < cells[_LAST_PRIOR] < INFINITE:
            cells[_STREAK_RATE] = cells[_PRIOR]
            cells[_STREAK_ACCEPTED] = cells[_STREAK_REFUSED] = 0.0
        else:
            cells[_STREAK_ACCEPTED] += self._accepted(cells[_SINCE], closed_at)
            cells[_STREAK_REFUSED] += cells[_REFUSED]
        cells[_LAST_PRIOR] = cells[_PRIOR]
        accepted, refused = cells[_STREAK_ACCEPTED], cells[_STREAK_REFUSED]
        if is_free and refused >= _ENOUGH and accepted < _CHANCE_ACCEPTED * refused:
            cells[_FREE_UNTIL] = 0.0
        elif (
            not is_free
            and refused >= _ENOUGH
            and cells[_PRIOR] < _CHANCE_CUT * cells[_STREAK_RATE] < INFINITE
            and accepted >= _CHANCE_ACCEPTED * refused
        ):
            cells[_CEILING] = cells[_STREAK_ACCEPTED] = cells[_STREAK_REFUSED] = 0.0
            cells[_FREE_S] = min(max(2 * cells[_FREE_S], _FREE_AT_FIRST_S), _FREE_AT_MOST_S)
            cells[_FREE_UNTIL] = closed_at + cells[_FREE_S]

    def _cut(self, prior: float, closed_at: float, opens_at: float) -> None:
        """Set the rate by what was accepted before the wave, and by the rate that it ran at."""
        observed_s = min(closed_at - self._cells[_SINCE], _LONGEST_WINDOW_S)
        if prior == INFINITE:
            accepted = self._accepted(closed_at - 1.0, closed_at)
            self._set(max(accepted, 1.0), opens_at, is_measured=accepted >= _ENOUGH)
            self._cells[_FLAT_AT] = min(self._cells[_FLAT_AT], _FIRST_FLAT_AT_S)
            return
        window_s = min(max(1.0, 10 / prior), observed_s)
        accepted = self._accepted(closed_at - window_s, closed_at)
        since_wave_s = max(1.0, min(closed_at - self._cells[_LAST_CLOSED_AT], _LONGEST_WINDOW_S))
        since_wave = self._accepted(closed_at - since_wave_s, closed_at)
        if since_wave < 1:  # hardly any news about the rate
            self._set(max(prior / 2, min(prior, 1.0)), opens_at, is_measured=False)
        elif self._cells[_REFUSED] > since_wave:
            self._set(min(prior, since_wave / since_wave_s), opens_at, is_measured=True)
        elif window_s >= 1 and accepted >= _ENOUGH and accepted / window_s < 0.7 * prior:
            self._set(accepted / window_s, opens_at, is_measured=True)
        else:
            is_early = observed_s < _EARLY_PART * self._cells[_FLAT_AT]
            self._set(_EARLY_CUT * prior if is_early else prior, opens_at, is_measured=True)

    def _set(self, ceiling: float, opens_at: float, *, is_measured: bool) -> None:
        cells = self._cells
        cells[_CEILING] = max(ceiling, 1 / _LONGEST_WINDOW_S)
        cells[_FLAT_FROM] = opens_at
        cells[_DOUBLING] = 0.0 if is_measured else 1.0

    def _count(self, at: float, step: int) -> None:
        number = int(at / _BUCKET_S)
        place = _METER + 2 * (number % _BUCKETS)
        cells = self._cells
        if cells[place] == number:
            cells[place + 1] += step
        elif step > 0:
            cells[place] = number
            cells[place + 1] = step

    def _accepted(self, since: float, until: float) -> float:
        first, last = int(since / _BUCKET_S), int(until / _BUCKET_S)
        cells = self._cells
        return sum(
            cells[_METER + 2 * at + 1] for at in range(_BUCKETS) if first <= cells[_METER + 2 * at] <= last
        )
