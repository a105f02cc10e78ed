"""What was said in a rollout, as it goes over the wire: each message is encoded once.

For Claude models at an endpoint that honours cache marks, the system message and the last messages carry
one: the last one, so that this request is cached, and the ones before, which the last request ended with,
so that it is found again. A mark moves; what it says stands still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.core.messages import Assistant, Message, System
from hermes_run.models.requests import (
    CACHE_MARK,
    Opening,
    Variant,
    encode_message,
    request_body,
    without_reasoning,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hermes_run.core.contracts import ToolSpec
    from hermes_run.models.config import ModelConfig

_LAST_MARKED = 3
"""With the system message's, the four marks that a request to Claude may hold."""


class Conversation:
    """One rollout's requests, which only grow at their end."""

    def __init__(self, config: ModelConfig, opening: Iterable[Message], tools: Sequence[ToolSpec]) -> None:
        self._opening = Opening(config, tools)
        self._marks = config.cache_marks
        self._said: list[bytes] = []
        self._marked: list[tuple[int, bytes]] = []
        self._wired: list[tuple[int, Assistant]] = []
        self.add(opening)

    def add(self, messages: Iterable[Message]) -> None:
        """Put messages at the end."""
        for message in messages:
            is_system = self._marks and not self._said and isinstance(message, System)
            if self._marks and not is_system and _has_text(message):
                self._marked.append((len(self._said), encode_message(message, CACHE_MARK)))
                del self._marked[:-_LAST_MARKED]
            if isinstance(message, Assistant) and message.wire:
                self._wired.append((len(self._said), message))
            self._said.append(encode_message(message, CACHE_MARK if is_system else None))

    def body(self, variant: Variant) -> bytes:
        """The request that asks for the next turn."""
        said = self._said
        if self._marked or not variant.takes_reasoning:
            said = said.copy()
        for place, encoded in self._marked:
            said[place] = encoded
        for place, message in () if variant.takes_reasoning else self._wired:
            said[place] = encode_message(without_reasoning(message))
        return request_body(self._opening.encoded(variant), said)


def _has_text(message: Message) -> bool:
    """Whether a mark finds a text to stand on: an empty one is refused."""
    return bool(message.text.strip())
