"""The run's budget: a rollout begins only while what it may come to fits, and none is cut for it.

What a rollout may come to is the most that one has come to so far (in this run, before its resumes,
too), at least its own limit (`limits.prompt_cost`, `limits.prompt_tokens`) where there is one. Before
anything is known one rollout runs alone. So the run ends within its budget unless a rollout comes to
more than every one before it; a rollout's own limit makes that impossible.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_run.core.messages import Usage
from hermes_run.errors import BudgetStop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hermes_run.core.task import PromptTask
    from hermes_run.spec.model import LimitsSpec
    from hermes_run.store.spending import Spending


@dataclass(slots=True)
class Purse:
    """What one rollout has used so far."""

    task: PromptTask
    budget: Budget
    used: Usage = field(default_factory=Usage)

    def spend(self, usage: Usage) -> None:
        """Called by the turn loop for everything that is billed."""
        self.used += usage
        self.budget.note(self.task, usage)


@dataclass(slots=True)
class Cap:
    """One limit of a run: of money or of tokens.

    Attributes:
        name: key of the spec.
        limit: of the run.
        own: of a rollout, or None.
        spent: by rollouts that are over.
        largest: the most that one of them came to.
        unknown: whether calls were made whose amount nobody told.
    """

    name: str
    unit: str
    limit: float
    own: float | None = None
    spent: float = 0.0
    largest: float = 0.0
    unknown: bool = False

    def of(self, usage: Usage) -> float:
        """The amount of a usage."""
        return usage.cost if self.unit == "USD" else usage.total_tokens

    def is_unknown(self, usage: Usage) -> bool:
        """Whether a part of a usage has no amount."""
        return bool(usage.calls_without_cost if self.unit == "USD" else usage.calls_without_usage)

    def estimate(self, others: float) -> float | None:
        """What one more rollout may come to, given the most of those in flight; None before any is known."""
        known = max(self.largest, others)
        if self.own is not None:
            return max(self.own, known)
        return known or None

    def amount(self, value: float) -> str:
        """For people."""
        return f"{value:,.4f} USD" if self.unit == "USD" else f"{value:,.0f} tokens"


class Budget:
    """Admits rollouts while they fit.

    Args:
        limits: the spec's.
        before: what the run has used before, over all its processes.
        largest: the most that one rollout came to before: (USD, tokens).
        ledger: where what calls use is written down at once; None without a total limit.
    """

    def __init__(
        self,
        limits: LimitsSpec,
        before: Usage | None = None,
        largest: tuple[float, float] = (0.0, 0.0),
        ledger: Spending | None = None,
    ) -> None:
        self._ledger = ledger
        self._in_flight: list[Purse] = []
        self._changed = asyncio.Condition()
        self._caps: list[Cap] = []
        if limits.total_cost is not None:
            self._caps.append(Cap("limits.total_cost", "USD", limits.total_cost, limits.prompt_cost))
        if limits.total_tokens is not None:
            self._caps.append(Cap("limits.total_tokens", "tokens", limits.total_tokens, limits.prompt_tokens))
        for cap in self._caps:
            cap.spent = cap.of(before or Usage())
            cap.largest = largest[0] if cap.unit == "USD" else largest[1]

    @asynccontextmanager
    async def place_for(self, task: PromptTask) -> AsyncIterator[Purse]:
        """A place for one rollout, once it fits.

        Raises BudgetStop when it does not, and nothing is in flight whose end could change that.
        """
        purse = Purse(task, self)
        if self._caps:
            async with self._changed:
                while (obstacle := self._obstacle()) is not None:
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
        if self._ledger is not None:
            self._ledger.add(task.key, task.batch, usage)

    def _settle(self, purse: Purse) -> None:
        self._in_flight.remove(purse)
        for cap in self._caps:
            used = cap.of(purse.used)
            cap.spent += used
            cap.largest = max(cap.largest, used)
            cap.unknown = cap.unknown or cap.is_unknown(purse.used)

    def _obstacle(self) -> str | None:
        """Why no rollout can begin now; None when one can."""
        for cap in self._caps:
            uses = [cap.of(purse.used) for purse in self._in_flight]
            estimate = cap.estimate(max(uses, default=0.0))
            if cap.unknown:
                return self._why_unknown(cap)
            if estimate is None:
                if self._in_flight or cap.spent >= cap.limit:
                    return self._why_full(cap, 0.0)
                continue
            reserved = sum(max(used, estimate) for used in uses)
            if cap.spent + reserved + estimate > cap.limit * (1 + 1e-12):
                return self._why_full(cap, estimate)
        return None

    def _why_full(self, cap: Cap, estimate: float) -> str:
        spent = cap.spent + sum(cap.of(purse.used) for purse in self._in_flight)
        may_take = f", and one more rollout may take {cap.amount(estimate)}" if estimate else ""
        return (
            f"the budget is used up: {cap.amount(spent)} of {cap.amount(cap.limit)} are spent "
            f"({cap.name}){may_take}. What is left stays pending; raise it and run the same command again: "
            f"--set {cap.name}=…"
        )

    def _why_unknown(self, cap: Cap) -> str:
        if cap.unit == "USD":
            cure = "add the model to `prices` in hermes.yaml, or set limits.total_tokens instead"
            return f"{cap.name} cannot be kept: the endpoint does not say what its calls cost; {cure}"
        return (
            f"{cap.name} cannot be kept: the endpoint does not say how many tokens its calls take; "
            "take the limit out, or use an endpoint that reports usage"
        )
