"""Statistics of very many entries: the sums of `quality.statistics`, several times cheaper per entry."""

from __future__ import annotations

import operator
from collections import Counter
from math import fsum
from typing import TYPE_CHECKING

from hermes_run.core.messages import Usage
from hermes_run.core.trajectory import Status
from hermes_run.quality.statistics import Statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.store.entry import Entry

_UNITS = 10**10
"""Costs are whole multiples of 1e-10 USD, so that the order of a sum changes nothing (`core.messages`)."""


_COST = Usage.__struct_fields__.index("cost")
_ESTIMATED = Usage.__struct_fields__.index("calls_estimated")


def _units_of(costs: Sequence[float]) -> int:
    """The sum of some costs: exact, since `fsum` is and there are too few for their own errors to show."""
    return round(fsum(costs) * _UNITS)


class Tally:
    """Sums over entries; `statistics()` equals a fold of `Statistics.count_entry` over the same ones."""

    def __init__(self) -> None:
        self._kinds: Counter[tuple[str, str, str, str]] = Counter()
        self._sums = [0] * len(Usage.__struct_fields__)
        self._turns = self._api_calls = self._known_units = self._costs_unknown = self._estimated = 0

    def add(self, entry: Entry) -> None:
        """Take in one entry."""
        self.add_all((entry,))

    def add_all(self, entries: Sequence[Entry]) -> None:
        """Take in some entries, at least one: field by field, at half of the cost of entry by entry."""
        statuses, reasons = [each.status for each in entries], [each.reason for each in entries]
        works, models = [each.work for each in entries], [each.model for each in entries]
        if works.count(works[0]) == len(works) and models.count(models[0]) == len(models):
            for kind, count in Counter(zip(statuses, reasons, strict=True)).items():
                self._kinds[(*kind, works[0], models[0])] += count
        else:
            self._kinds.update(zip(statuses, reasons, works, models, strict=True))
        self._turns += sum([each.turns for each in entries])
        self._api_calls += sum([each.api_calls for each in entries])
        costs = [each.cost for each in entries]
        self._costs_unknown += costs.count(None)
        used = [each.usage for each in entries]
        estimated = [each.calls_estimated for each in used]
        self._estimated += len(estimated) - estimated.count(0)
        money = [each.cost for each in used]
        units = _units_of(money)
        is_same = costs == money  # as it is when every call told its cost
        self._known_units += units if is_same else _units_of([cost for cost in costs if cost])
        sums = (
            sum([each.prompt_tokens for each in used]),
            sum([each.completion_tokens for each in used]),
            sum([each.total_tokens for each in used]),
            sum([each.cached_tokens for each in used]),
            sum([each.reasoning_tokens for each in used]),
            units,
            sum([each.calls for each in used]),
            sum([each.calls_without_usage for each in used]),
            sum([each.calls_without_cost for each in used]),
            sum(estimated),
        )  # in the order of `Usage`
        self._sums = [*map(operator.add, self._sums, sums)]

    def outcomes(self) -> Counter[str]:
        """Status -> how many."""
        found: Counter[str] = Counter()
        for (status, *_), count in self._kinds.items():
            found[status] += count
        return found

    def works(self) -> set[str]:
        """The work fingerprints of all of them."""
        return {work for _, _, work, _ in self._kinds}

    def usage(self) -> Usage:
        """What all of them used."""
        sums = dict(zip(Usage.__struct_fields__, self._sums, strict=True))
        return Usage(**sums | {"cost": self._sums[_COST] / _UNITS})  # type: ignore[arg-type]

    def statistics(self) -> Statistics:
        """The sums, without those that need the records."""
        found = Statistics(
            turns=self._turns,
            api_calls=self._api_calls,
            usage=self.usage(),
            known_cost=self._known_units / _UNITS,
            cost_unknown=self._costs_unknown,
            cost_estimated=self._estimated,
        )
        by_reason = {
            Status.DISCARDED.value: found.discarded,
            Status.FAILED.value: found.failed,
            Status.PARTIAL.value: found.partial,
        }
        for (status, reason, work, model), count in self._kinds.items():
            found.outcomes[status] += count
            if status in by_reason:
                by_reason[status][reason] += count
            found.works[work] += count
            if model:
                found.served[model] += count
        return found
