"""Statistics of very many entries: the sums of `quality.statistics`, several times cheaper per entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.core.messages import Usage
from hermes_run.core.trajectory import Status
from hermes_run.quality.statistics import Statistics

if TYPE_CHECKING:
    from hermes_run.store.entry import Entry

_UNITS = 10**10
"""Costs are whole multiples of 1e-10 USD, so that the order of a sum changes nothing (`core.messages`)."""


class Tally:
    """Sums over entries; `statistics()` equals a fold of `Statistics.count_entry` over the same ones."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str, str, bool], int] = {}
        self._sums = [0] * 9
        self._turns = self._api_calls = self._known_units = 0

    def add(self, entry: Entry) -> None:
        """Take in one entry."""
        kind = (entry.status, entry.reason, entry.work, entry.model, entry.cost is None)
        self._kinds[kind] = self._kinds.get(kind, 0) + 1
        self._turns += entry.turns
        self._api_calls += entry.api_calls
        if entry.cost:
            self._known_units += round(entry.cost * _UNITS)
        used, sums = entry.usage, self._sums
        sums[0] += used.prompt_tokens
        sums[1] += used.completion_tokens
        sums[2] += used.total_tokens
        sums[3] += used.cached_tokens
        sums[4] += used.reasoning_tokens
        sums[6] += used.calls
        if used.cost:
            sums[5] += round(used.cost * _UNITS)
        if used.calls_without_usage:
            sums[7] += used.calls_without_usage
        if used.calls_without_cost:
            sums[8] += used.calls_without_cost

    def works(self) -> set[str]:
        """The work fingerprints of all of them."""
        return {work for _, _, work, _, _ in self._kinds}

    def usage(self) -> Usage:
        """What all of them used."""
        sums = self._sums
        return Usage(
            prompt_tokens=sums[0],
            completion_tokens=sums[1],
            total_tokens=sums[2],
            cached_tokens=sums[3],
            reasoning_tokens=sums[4],
            cost=sums[5] / _UNITS,
            calls=sums[6],
            calls_without_usage=sums[7],
            calls_without_cost=sums[8],
        )

    def statistics(self) -> Statistics:
        """The sums, without those that need the records."""
        found = Statistics(
            turns=self._turns,
            api_calls=self._api_calls,
            usage=self.usage(),
            known_cost=self._known_units / _UNITS,
        )
        by_reason = {
            Status.DISCARDED.value: found.discarded,
            Status.FAILED.value: found.failed,
            Status.PARTIAL.value: found.partial,
        }
        for (status, reason, work, model, is_cost_unknown), count in self._kinds.items():
            found.outcomes[status] += count
            if status in by_reason:
                by_reason[status][reason] += count
            found.works[work] += count
            if model:
                found.served[model] += count
            found.cost_unknown += count * is_cost_unknown
        return found
