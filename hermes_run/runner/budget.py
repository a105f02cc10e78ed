"""The run's budget: a rollout begins only while what it may come to fits, and none is cut for it.

What a rollout may come to is the most that one has come to so far (in this run, before its resumes,
too), at least its own limit (`limits.prompt_cost`, `limits.prompt_tokens`) where there is one, and the
call that passes it. Before anything is known one rollout runs alone, if what it is asked does not cost
more by itself. So the run ends within its budget
unless a rollout comes to more than every one before it; with a limit of its own only its last call can.

Calls that did not tell their amount (a reply that broke off has no bill) are taken to come to what the
others of their rollout came to, else those of the run. Where more calls are silent than tell in rollouts
that came to their end, nobody can keep the limit, and the run stops.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_run.core.messages import Usage
from hermes_run.errors import BudgetStop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from hermes_run.core.task import PromptTask
    from hermes_run.spec.model import LimitsSpec
    from hermes_run.store.spending import Spending


@dataclass(slots=True)
class Purse:
    """What one rollout has used so far.

    Attributes:
        is_cut: it is over before its end, failed or out of time: its calls say little of what replies tell.
    """

    task: PromptTask
    budget: Budget
    used: Usage = field(default_factory=Usage)
    is_cut: bool = False

    def spend(self, usage: Usage) -> None:
        """Called by the turn loop for everything that is billed."""
        self.used += usage
        self.budget.note(self.task, usage)


@dataclass(slots=True)
class Cap:
    """One limit of a run: of money or of tokens.

    Attributes:
        name: key of the spec.
        limit: of the run; without end where only rollouts have one.
        own: of a rollout, or None.
        spent: by rollouts that are over.
        largest: the most that one of them came to.
        largest_call: the most that one call came to.
        told: what the calls that told it came to, those of earlier processes too.
        telling: how many they are.
        silent: how many calls of this process told nothing, in rollouts that were not cut.
        tellers: how many told it.
    """

    name: str
    unit: str
    limit: float
    own: float | None = None
    spent: float = 0.0
    largest: float = 0.0
    largest_call: float = 0.0
    told: float = 0.0
    telling: int = 0
    silent: int = 0
    tellers: int = 0

    def of(self, usage: Usage) -> float:
        """The amount of a usage, with what its silent calls are taken to have come to."""
        told, silent = self._told(usage), self._silent(usage)
        telling = usage.calls - silent
        if silent <= 0:
            return told
        per_call = told / telling if telling > 0 else self.told / self.telling if self.telling else 0.0
        return told + silent * per_call

    def begin(self, before: Usage, largest: float) -> None:
        """What the run has used before."""
        self.told, self.telling = self._told(before), max(0, before.calls - self._silent(before))
        self.spent, self.largest = self.of(before), largest

    def note(self, usage: Usage) -> None:
        """A call was billed, with the retries that it took."""
        self.largest_call = max(self.largest_call, self.of(usage) / max(1, usage.calls))

    def settle(self, used: Usage, *, is_cut: bool) -> None:
        """A rollout is over."""
        silent = self._silent(used)
        self.silent += 0 if is_cut else silent
        self.tellers += max(0, used.calls - silent)
        self.told += self._told(used)
        self.telling += max(0, used.calls - silent)
        amount = self.of(used)
        self.spent += amount
        self.largest = max(self.largest, amount)

    @property
    def is_unknown(self) -> bool:
        """Whether so few calls tell their amount that the limit cannot be kept."""
        return self.silent > self.tellers

    def _told(self, usage: Usage) -> float:
        return usage.cost if self.unit == "USD" else usage.total_tokens

    def _silent(self, usage: Usage) -> int:
        return usage.calls_without_cost if self.unit == "USD" else usage.calls_without_usage

    def estimate(self, others: float) -> float | None:
        """What one more rollout may come to, given the most of those in flight; None before any is known."""
        known = max(self.largest, others)
        if not known and not self.telling:
            return None
        return known if self.own is None else max(self.own + self.largest_call, known)

    def amount(self, value: float) -> str:
        """For people."""
        if self.unit != "USD":
            return f"{value:,.0f} tokens"
        return f"{value:,.4f} USD" if value >= 0.001 or not value else f"{value:.2g} USD"


class Budget:
    """Admits rollouts while they fit.

    Args:
        limits: the spec's.
        before: what the run has used before, over all its processes.
        largest: the most that one rollout came to before: (USD, tokens).
        ledger: where what calls use is written down at once; None without a total limit.
        least: what a rollout's first call takes at least: (USD, tokens).
    """

    def __init__(
        self,
        limits: LimitsSpec,
        before: Usage | None = None,
        largest: tuple[float, float] = (0.0, 0.0),
        ledger: Spending | None = None,
        least: Callable[[PromptTask], tuple[float, float]] = lambda _: (0.0, 0.0),
    ) -> None:
        self._least = least
        self._ledger = ledger
        self._in_flight: list[Purse] = []
        self._changed = asyncio.Condition()
        self._caps = _caps_of(limits)
        for cap in self._caps:
            cap.begin(before or Usage(), largest[0] if cap.unit == "USD" else largest[1])

    @asynccontextmanager
    async def place_for(self, task: PromptTask) -> AsyncIterator[Purse]:
        """A place for one rollout, once it fits.

        Raises BudgetStop when it does not, and nothing is in flight whose end could change that.
        """
        purse = Purse(task, self)
        if self._caps:
            async with self._changed:
                while (obstacle := self._obstacle(task)) is not None:
                    if not self._in_flight:
                        raise BudgetStop(obstacle)
                    await self._changed.wait()
                self._in_flight.append(purse)
        try:
            yield purse
        finally:
            if self._caps:
                self._settle(purse)
                async with self._changed:
                    self._changed.notify_all()

    def close(self) -> None:
        """Close the ledger."""
        if self._ledger is not None:
            self._ledger.close()

    def note(self, task: PromptTask, usage: Usage) -> None:
        """A call was billed."""
        for cap in self._caps:
            cap.note(usage)
        if self._ledger is not None:
            self._ledger.add(task.key, task.batch, usage)

    def _settle(self, purse: Purse) -> None:
        self._in_flight.remove(purse)
        for cap in self._caps:
            cap.settle(purse.used, is_cut=purse.is_cut)

    def _obstacle(self, task: PromptTask) -> str | None:
        """Why no rollout can begin now; None when this one can."""
        for cap in self._caps:
            if cap.is_unknown:
                return self._why_unknown(cap)
            if cap.limit == math.inf:
                continue
            uses = [cap.of(purse.used) for purse in self._in_flight]
            estimate = cap.estimate(max(uses, default=0.0))
            if estimate is None:
                if self._in_flight or cap.spent >= cap.limit:
                    return self._why_full(cap, 0.0)
                least = self._least(task)[cap.unit != "USD"]
                if cap.spent + least > cap.limit:
                    return self._why_too_small(cap, least)
                continue
            reserved = sum(max(used, estimate) for used in uses)
            if cap.spent + reserved + estimate > cap.limit * (1 + 1e-12):
                return self._why_full(cap, estimate)
        return None

    def _why_full(self, cap: Cap, estimate: float) -> str:
        spent = cap.spent + sum(cap.of(purse.used) for purse in self._in_flight)
        what = "is used up" if spent >= cap.limit or not estimate else "has no room for one more rollout"
        may_take = f", and one may take {cap.amount(estimate)}" if spent < cap.limit and estimate else ""
        return (
            f"the budget {what}: {cap.amount(spent)} of {cap.amount(cap.limit)} are spent ({cap.name})"
            f"{may_take}. What is left stays pending; raise it and run the same command again: --set"
            f" {cap.name}=…"
        )

    def _why_too_small(self, cap: Cap, least: float) -> str:
        return (
            f"{cap.name} is less than one call takes: {cap.amount(cap.limit)}, and the next prompt alone "
            f"takes {cap.amount(least)} or more; raise it: --set {cap.name}=…"
        )

    def _why_unknown(self, cap: Cap) -> str:
        if cap.unit == "USD":
            instead = cap.name.replace("cost", "tokens")
            cure = f"add the model to `prices` in hermes.yaml, or set {instead} instead"
            return f"{cap.name} cannot be kept: the endpoint does not say what its calls cost; {cure}"
        return (
            f"{cap.name} cannot be kept: the endpoint does not say how many tokens its calls take; "
            "take the limit out, or use an endpoint that reports usage"
        )


def _caps_of(limits: LimitsSpec) -> list[Cap]:
    """The limits that there are; a rollout's own one can be kept only where calls tell their amount."""
    caps = []
    for unit, total, own in (
        ("USD", limits.total_cost, limits.prompt_cost),
        ("tokens", limits.total_tokens, limits.prompt_tokens),
    ):
        if total is not None or own is not None:
            whose = "prompt" if total is None else "total"
            name = f"limits.{whose}_{'cost' if unit == 'USD' else 'tokens'}"
            caps.append(Cap(name, unit, math.inf if total is None else total, own))
    return caps
