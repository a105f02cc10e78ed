"""The request on the wire: every message is encoded once, and what came first stays first.

A body is `{"model": …, "tools": […], …, "messages": [` + the messages so far + `]}`: between the
turns of a rollout it only grows at its end, so that prefix caches of providers and servers hit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_run.core.messages import Assistant, Message, System, ToolResult, User
from hermes_run.core.text import clean
from hermes_run.errors import SpecError
from hermes_run.models.config import UNSENDABLE
from hermes_run.models.dialects import dialect_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_run.core.contracts import ToolSpec
    from hermes_run.models.config import ModelConfig


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_cleaned(name): _cleaned(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value


def encode_json(value: Any) -> bytes:
    """JSON in UTF-8; half characters, which UTF-8 cannot hold, by the rule of `core.text`."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_cleaned(value))


CACHE_MARK = {"type": "ephemeral"}
"""Claude's cache mark: what stands before it is cached (five minutes, renewed by each hit)."""


def _encode_assistant(message: Assistant, mark: Mapping[str, Any] | None) -> bytes:
    """An assistant turn as providers want it back.

    With calls and no text the content is null, as the endpoints themselves write it: some refuse an
    empty text block. `wire` is added unmodified; it may hold the calls in the provider's own form.
    """
    turn: dict[str, Any] = {"role": "assistant", "content": _content(message.text, mark)}
    if message.tool_calls:
        turn["content"] = _content(message.text, mark) if message.text else None
        turn["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.wire:
        turn.update(message.wire)
    return encode_json(turn)


_REASONING = frozenset({"reasoning", "reasoning_content", "reasoning_details", "thinking_blocks"})


def without_reasoning(message: Assistant) -> Assistant:
    """The same turn for an endpoint that does not take its reasoning back."""
    wire = {name: value for name, value in (message.wire or {}).items() if name not in _REASONING}
    return Assistant(message.text, message.reasoning, message.tool_calls, wire or None)


def _content(text: str, mark: Mapping[str, Any] | None) -> Any:
    return text if mark is None else [{"type": "text", "text": text, "cache_control": mark}]


def _with_images(message: User, mark: Mapping[str, Any] | None) -> Any:
    content = _content(message.text, mark)
    if not message.images:
        return content
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [*parts, *({"type": "image_url", "image_url": {"url": image}} for image in message.images)]


def encode_message(message: Message, mark: Mapping[str, Any] | None = None) -> bytes:
    """A message as one JSON object of the chat-completions API, with a cache mark if one is given."""
    if isinstance(message, ToolResult):
        content = _content(message.text, mark)
        return encode_json({"role": "tool", "tool_call_id": message.call_id, "content": content})
    if isinstance(message, User):
        return encode_json({"role": "user", "content": _with_images(message, mark)})
    if isinstance(message, System):
        return encode_json({"role": "system", "content": _content(message.text, mark)})
    return _encode_assistant(message, mark)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def check_extra_body(extra_body: Mapping[str, Any]) -> None:
    """Raises SpecError for a field that the client alone can set."""
    for name, instead in UNSENDABLE.items():
        if name in extra_body:
            raise SpecError(
                f"model.extra_body.{name}: the client sets this field itself; take it out of extra_body"
                f"{instead}"
            )


@dataclass(frozen=True, slots=True)
class Variant:
    """What an endpoint taught the client about its requests while the run goes on.

    Attributes:
        max_tokens: no reply may be longer, for all that credit allows; None for no such bound.
        length_field: the name under which it wants `max_tokens`.
        is_stream: whether the reply is asked for as a stream.
        takes_reasoning: whether it takes back the reasoning that it gave.
    """

    max_tokens: int | None = None
    length_field: str = "max_tokens"
    is_stream: bool = False
    takes_reasoning: bool = True


class Opening:
    """A rollout's body up to and including `"messages": [`: its `fields`, tools only when there are any."""

    def __init__(self, config: ModelConfig, tools: Sequence[ToolSpec]) -> None:
        fields: dict[str, Any] = {"model": config.name}
        if tools:
            fields["tools"] = [
                {
                    "type": "function",
                    "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
                }
                for t in tools
            ]
        if config.max_tokens is not None:
            fields["max_tokens"] = config.max_tokens
        fields.update((name, value) for name, value in config.sampling.items() if value is not None)
        fields.update(dialect_fields(config))
        self.fields = _merged(fields, config.extra_body)
        self._encoded: dict[Variant, bytes] = {}

    def encoded(self, variant: Variant) -> bytes:
        """Its bytes: the same ones through a rollout, as long as the endpoint teaches nothing new."""
        found = self._encoded.get(variant)
        if found is None:
            found = encode_json(_varied(self.fields, variant))[:-1] + b',"messages":['
            self._encoded[variant] = found
        return found


def _varied(fields: dict[str, Any], variant: Variant) -> dict[str, Any]:
    name = variant.length_field
    varied = {name if field == "max_tokens" else field: value for field, value in fields.items()}
    if variant.max_tokens is not None:
        given = varied.get(name)
        varied[name] = min(given, variant.max_tokens) if isinstance(given, int) else variant.max_tokens
    if variant.is_stream:
        varied["stream"] = True
        varied.setdefault("stream_options", {"include_usage": True})
        if varied["stream_options"] is None:
            del varied["stream_options"]
    return varied


def request_body(opening: bytes, messages: Sequence[bytes]) -> bytes:
    """The whole body."""
    return opening + b",".join(messages) + b"]}"
