"""Statistics as a fold: over the entries of a plan and the records behind them. Contract, section 5.

`Statistics` is a monoid: `statistics(a + b) == statistics(a) + statistics(b)`, so parts of a run,
shards and merged runs add up, and an interrupted run counts like a straight one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import msgspec

from hermes_run.core.messages import Usage
from hermes_run.core.trajectory import Status, ToolCount
from hermes_run.quality.filters import SCRATCHPAD

_SCRATCHPAD = SCRATCHPAD.encode()


class TurnGlance(msgspec.Struct, frozen=True, rename={"speaker": "from"}):
    """What statistics look at in a turn. `value` stays undecoded."""

    speaker: str
    value: msgspec.Raw
    reasoning: str


class MetadataGlance(msgspec.Struct, frozen=True):
    """What statistics look at in a line's metadata."""

    provider: str | None = ""


class RecordGlance(msgspec.Struct, frozen=True):
    """What statistics look at in a trajectory line: decoding only this is several times cheaper."""

    conversations: list[TurnGlance]
    tool_stats: dict[str, ToolCount]
    metadata: MetadataGlance = MetadataGlance()


glance = msgspec.json.Decoder(RecordGlance).decode


def _holds_scratchpad(value: bytes) -> bool:
    """Whether a JSON string has the mark; `<` may be spelled as an escape in it."""
    return _SCRATCHPAD in value or (b"\\u00" in value and SCRATCHPAD in msgspec.json.decode(value, type=str))


class Account(Protocol):
    """What statistics look at in a manifest entry."""

    @property
    def status(self) -> str: ...  # noqa: D102 - named as in the contract

    @property
    def reason(self) -> str: ...  # noqa: D102 - named as in the contract

    @property
    def work(self) -> str: ...  # noqa: D102 - named as in the contract

    @property
    def turns(self) -> int: ...  # noqa: D102 - named as in the contract

    @property
    def api_calls(self) -> int: ...  # noqa: D102 - named as in the contract

    @property
    def usage(self) -> Usage: ...  # noqa: D102 - named as in the contract

    @property
    def cost(self) -> float | None: ...  # noqa: D102 - named as in the contract

    @property
    def model(self) -> str: ...  # noqa: D102 - named as in the contract


@dataclass(slots=True)
class Statistics:
    """Sums over entries (all of the plan's) and over the records of those that have one."""

    outcomes: Counter[str] = field(default_factory=Counter)
    discarded: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    partial: Counter[str] = field(default_factory=Counter)
    works: Counter[str] = field(default_factory=Counter)
    served: Counter[str] = field(default_factory=Counter)
    providers: Counter[str] = field(default_factory=Counter)
    tools: dict[str, ToolCount] = field(default_factory=dict)
    assistant_turns: int = 0
    reasoned_turns: int = 0
    turns: int = 0
    api_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    known_cost: float = 0.0
    cost_unknown: int = 0
    cost_estimated: int = 0

    def count_entry(self, entry: Account) -> None:
        """Add one entry."""
        self.outcomes[entry.status] += 1
        by_reason = {
            Status.DISCARDED: self.discarded,
            Status.FAILED: self.failed,
            Status.PARTIAL: self.partial,
        }
        if entry.status in by_reason:
            by_reason[Status(entry.status)][entry.reason] += 1
        self.works[entry.work] += 1
        if entry.model:
            self.served[entry.model] += 1
        self.turns += entry.turns
        self.api_calls += entry.api_calls
        self.usage += entry.usage
        if entry.cost is None:
            self.cost_unknown += 1
        else:
            self.known_cost = round(self.known_cost + round(entry.cost, 10), 10)
        self.cost_estimated += entry.usage.calls_estimated > 0

    def count_record(self, record: RecordGlance) -> None:
        """Add the tool calls, turns and providers of one kept line."""
        if record.metadata.provider:
            self.providers[record.metadata.provider] += 1
        for name, count in record.tool_stats.items():
            before = self.tools.get(name)
            if before is None or count.count:
                self.tools[name] = before + count if before else count
        for turn in record.conversations:
            if turn.speaker == "gpt":
                self.assistant_turns += 1
                if turn.reasoning.strip() or _holds_scratchpad(bytes(turn.value)):
                    self.reasoned_turns += 1

    def __add__(self, other: Statistics) -> Statistics:
        merged = Statistics()
        for each in fields(Statistics):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if each.name == "tools":
                names = {**mine, **theirs}
                value: Any = {n: mine.get(n, ToolCount()) + theirs.get(n, ToolCount()) for n in names}
            elif each.name == "known_cost":
                value = round(mine + theirs, 10)
            else:
                value = mine + theirs
            setattr(merged, each.name, value)
        return merged


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0


def tool_table(tools: dict[str, ToolCount]) -> dict[str, dict[str, float]]:
    """`tool_statistics`: counts and rates in percent, tools by name, only those called."""
    return {
        name: {
            "count": c.count,
            "success": c.success,
            "failure": c.failure,
            "success_rate": _percent(c.success, c.count),
            "failure_rate": _percent(c.failure, c.count),
        }
        for name, c in sorted(tools.items())
        if c.count
    }


def describe(statistics: Statistics, *, total: int, invalid: int) -> dict[str, Any]:
    """The part of statistics.json that is a fold; `total` and `invalid` count rollouts."""
    s = statistics
    done = sum(s.outcomes.values())
    return {
        "tool_statistics": tool_table(s.tools),
        "reasoning_statistics": {
            "total_assistant_turns": s.assistant_turns,
            "turns_with_reasoning": s.reasoned_turns,
            "turns_without_reasoning": s.assistant_turns - s.reasoned_turns,
            "coverage": _percent(s.reasoned_turns, s.assistant_turns),
        },
        "outcomes": {status.value: s.outcomes[status.value] for status in Status}
        | {"invalid": invalid, "pending": total - invalid - done},
        "discarded": dict(sorted(s.discarded.items())),
        "failed": dict(sorted(s.failed.items())),
        "partial": dict(sorted(s.partial.items())),
        "tokens": {
            "prompt_tokens": s.usage.prompt_tokens,
            "completion_tokens": s.usage.completion_tokens,
            "total_tokens": s.usage.total_tokens,
            "cached_tokens": s.usage.cached_tokens,
            "reasoning_tokens": s.usage.reasoning_tokens,
            "calls_without_usage": s.usage.calls_without_usage,
        },
        "cost": s.known_cost or (None if s.cost_unknown else 0.0),
        "cost_unknown": s.cost_unknown,
        "cost_estimated": s.cost_estimated,
        "turns": {
            "total": s.turns,
            "per_trajectory": round(s.turns / kept, 2) if (kept := done - s.outcomes["failed"]) else 0.0,
        },
        "api_calls": s.api_calls,
        "served_models": dict(sorted(s.served.items())),
        "served_providers": dict(sorted(s.providers.items())),
        "works": dict(sorted(s.works.items())),
    }


def spent(usage: Usage) -> dict[str, Any]:
    """`spent` of statistics.json: the cost is None where calls were made and none reported it."""
    cost = usage.cost or (None if usage.calls_without_cost else 0.0)
    return {**msgspec.to_builtins(usage), "cost": cost}
