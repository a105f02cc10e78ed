"""What is said in a conversation, in our own words. The wire form is `models/`' business."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct


class ToolCall(Struct, frozen=True):
    """A call as the model wrote it. `arguments` is its JSON text, unparsed."""

    id: str
    name: str
    arguments: str


class System(Struct, frozen=True, tag="system"):
    """The instructions before the conversation."""

    text: str


class User(Struct, frozen=True, tag="user"):
    """A human turn. `images` are addresses or data URLs; they are sent, and saved with the row alone."""

    text: str
    images: tuple[str, ...] = ()


class Assistant(Struct, frozen=True, tag="assistant"):
    """A model's turn: its text, its reasoning and its tool calls, each possibly empty.

    `wire` holds fields that the provider wants back unmodified (`reasoning_details` and the like);
    it is sent again within the rollout and never saved.
    """

    text: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    wire: dict[str, Any] | None = None


class ToolResult(Struct, frozen=True, tag="tool"):
    """The one answer to one tool call. `text` is what the model reads."""

    call_id: str
    name: str
    text: str


Message: TypeAlias = System | User | Assistant | ToolResult


class Usage(Struct, frozen=True, gc=False):
    """Tokens and money of some model calls. Sums with `+`.

    Unknown is not zero: `calls_without_usage` and `calls_without_cost` count what is not in the sums, and
    `calls_estimated` the calls whose cost is an estimate, since their tokens were not reported.
    `prompt_tokens` contain `cached_tokens`, and `completion_tokens` contain `reasoning_tokens`.
    `cost` is in USD; sums are rounded to 1e-10 part by part, so that their order changes nothing.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float = 0.0
    calls: int = 0
    calls_without_usage: int = 0
    calls_without_cost: int = 0
    calls_estimated: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.total_tokens + other.total_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            round(round(self.cost, 10) + round(other.cost, 10), 10),
            self.calls + other.calls,
            self.calls_without_usage + other.calls_without_usage,
            self.calls_without_cost + other.calls_without_cost,
            self.calls_estimated + other.calls_estimated,
        )

    @property
    def known_cost(self) -> float | None:
        """The cost in USD, or None when any call's cost is unknown."""
        return self.cost if self.calls_without_cost == 0 else None


class Reply(Struct, frozen=True):
    """What a model answered.

    `finish_reason` is `stop`, `tool_calls` or `length`: every other way to end is an error that
    the client raises. `model` is the one that really served, `provider` who served it, where the reply
    tells. `usage` includes billed retries.
    """

    message: Assistant
    finish_reason: str
    usage: Usage = Usage()
    model: str = ""
    provider: str = ""
