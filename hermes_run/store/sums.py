"""What very many entries come to, for a comparison: outcomes, turns, tokens, cost, served models."""

from __future__ import annotations

from collections import Counter
from math import fsum
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct
from msgspec.structs import astuple

from hermes_run.core.trajectory import Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_run.store.entry import Entry

_UNITS = 10**10
"""Costs are whole multiples of 1e-10 USD, so that the order of a sum changes nothing (`core.messages`)."""

_TOKENS = ("prompt_tokens", "completion_tokens", "total_tokens")

Columns: TypeAlias = dict[str, tuple[Any, ...]]
"""Some entries by fields: name -> its values. At least one entry."""


def columns_of(entries: Sequence[Counted] | Sequence[Entry]) -> Columns:
    """The columns of some entries, at a third of the cost of reading field by field."""
    names = entries[0].__struct_fields__
    return dict(zip(names, zip(*map(astuple, entries), strict=True), strict=True))


class Tokens(Struct, frozen=True, gc=False):
    """The part of an entry's usage that is summed."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Counted(Struct, frozen=True, gc=False):
    """The part of an entry that is summed: cheaper to decode than all of it."""

    key: str
    status: str
    reason: str
    turns: int
    api_calls: int
    usage: Tokens
    cost: float | None
    model: str


class Sums:
    """Sums over entries. `a + b` is what the entries of both come to."""

    def __init__(self) -> None:
        self._reasons: Counter[tuple[str, str]] = Counter()
        self._models: Counter[str] = Counter()
        self._figures: Counter[str] = Counter()
        self._cost_units = self._cost_unknown = 0

    def take(self, columns: Columns) -> None:
        """Take in some entries: column by column, which costs a third of one by one."""
        self._reasons.update(zip(columns["status"], columns["reason"], strict=True))
        models = columns["model"]
        if models.count(models[0]) == len(models):
            self._models[models[0]] += len(models)
        else:
            self._models.update(models)
        costs, used, figures = columns["cost"], columns["usage"], self._figures
        self._cost_unknown += costs.count(None)
        self._cost_units += round(fsum([cost for cost in costs if cost]) * _UNITS)
        figures["turns"] += sum(columns["turns"])
        figures["api_calls"] += sum(columns["api_calls"])
        figures["prompt_tokens"] += sum([usage.prompt_tokens for usage in used])
        figures["completion_tokens"] += sum([usage.completion_tokens for usage in used])
        figures["total_tokens"] += sum([usage.total_tokens for usage in used])

    def __add__(self, other: Sums) -> Sums:
        both = Sums()
        for each in (self, other):
            both._reasons.update(each._reasons)
            both._models.update(each._models)
            both._figures.update(each._figures)
            both._cost_units += each._cost_units
            both._cost_unknown += each._cost_unknown
        return both

    def outcomes(self) -> Counter[str]:
        """Status -> how many."""
        found: Counter[str] = Counter()
        for (status, _), count in self._reasons.items():
            found[status] += count
        return found

    def reasons(self) -> Counter[tuple[str, str]]:
        """(status, reason) -> how many."""
        return self._reasons

    def models(self) -> dict[str, int]:
        """Served model -> how many; those that failed before any reply have none."""
        return {name: count for name, count in self._models.items() if name}

    def figure(self, name: str) -> int:
        """`turns`, `api_calls`, or one of the tokens."""
        return self._figures[name]

    def cost(self) -> float | None:
        """What is known of the cost, in USD; None when nothing is: unknown is not zero."""
        return self._cost_units / _UNITS or (None if self._cost_unknown else 0.0)

    def cost_unknown(self) -> int:
        """Of how many entries the cost is unknown."""
        return self._cost_unknown


def side_by_side(a: Sums, b: Sums) -> dict[str, Any]:
    """Two sums as `{name: [of a, of b]}`, as `diff --json` has them."""
    reasons: dict[str, dict[str, list[int]]] = {}
    for (status, reason), pair in paired(a.reasons(), b.reasons()).items():
        reasons.setdefault(status, {})[reason] = pair
    mine, theirs = a.outcomes(), b.outcomes()
    return {
        "outcomes": {status.value: [mine[status.value], theirs[status.value]] for status in Status},
        "reasons": reasons,
        **{name: [a.figure(name), b.figure(name)] for name in ("turns", "api_calls")},
        "tokens": {name: [a.figure(name), b.figure(name)] for name in _TOKENS},
        "cost": [a.cost(), b.cost()],
        "cost_unknown": [a.cost_unknown(), b.cost_unknown()],
        "served_models": paired(a.models(), b.models()),
    }


def paired(a: Mapping[Any, Any], b: Mapping[Any, Any], missing: Any = 0) -> dict[Any, list[Any]]:
    """Name -> [in a, in b], for the names of both, sorted."""
    return {name: [a.get(name, missing), b.get(name, missing)] for name in sorted(a.keys() | b.keys())}
