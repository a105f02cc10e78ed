"""The sum of very many usages, at a sixth of the cost of adding one to the other."""

from __future__ import annotations

import operator

from msgspec.structs import astuple

from hermes_run.core.messages import Usage

_NAMES = Usage.__struct_fields__
_COST = _NAMES.index("cost")
_UNITS = 10**10
"""Costs are whole multiples of 1e-10 USD, so that the order of a sum changes nothing (`core.messages`)."""
_AT_ONCE = 256


class UsageSum:
    """Equals `a + b + ...` over the same usages."""

    def __init__(self) -> None:
        self._waiting: list[Usage] = []
        self._sums = [0] * len(_NAMES)

    def add(self, usage: Usage) -> None:
        """Take in one."""
        self._waiting.append(usage)
        if len(self._waiting) == _AT_ONCE:
            self._settle()

    def total(self) -> Usage:
        """The sum so far."""
        if self._waiting:
            self._settle()
        sums = dict(zip(_NAMES, self._sums, strict=True))
        return Usage(**sums | {"cost": self._sums[_COST] / _UNITS})  # type: ignore[arg-type]

    def _settle(self) -> None:
        columns = list(zip(*map(astuple, self._waiting), strict=True))
        columns[_COST] = tuple(round(cost * _UNITS) for cost in columns[_COST])
        self._sums = [*map(operator.add, self._sums, map(sum, columns))]
        self._waiting.clear()
