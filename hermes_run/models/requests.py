"""The request on the wire: every message is encoded once, and what came first stays first.

A body is `{"model": …, "tools": […], …, "messages": [` + the messages so far + `]}`: between the
turns of a rollout it only grows at its end, so that prefix caches of providers and servers hit.
"""

from __future__ import annotations

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


def _encode_assistant(message: Assistant) -> bytes:
    """An assistant turn as providers want it back.

    With calls and no text the content is null, as the endpoints themselves write it: some refuse an
    empty text block. `wire` is added unmodified; it may hold the calls in the provider's own form.
    """
    turn: dict[str, Any] = {"role": "assistant", "content": message.text}
    if message.tool_calls:
        turn["content"] = message.text or None
        turn["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.wire:
        turn.update(message.wire)
    return encode_json(turn)


def encode_message(message: Message) -> bytes:
    """A message as one JSON object of the chat-completions API."""
    if isinstance(message, ToolResult):
        return encode_json({"role": "tool", "tool_call_id": message.call_id, "content": message.text})
    if isinstance(message, User):
        return encode_json({"role": "user", "content": message.text})
    if isinstance(message, System):
        return encode_json({"role": "system", "content": message.text})
    return _encode_assistant(message)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def check_extra_body(extra_body: Mapping[str, Any]) -> None:
    """Raises SpecError for a field that the client alone can set."""
    for name in UNSENDABLE:
        if name in extra_body:
            raise SpecError(
                f"model.extra_body.{name}: the client sets this field itself; take it out of extra_body"
            )


def opening_bytes(config: ModelConfig, tools: Sequence[ToolSpec]) -> bytes:
    """The body up to and including `"messages": [`. Tools are left out when there are none."""
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
    fields = _merged(fields, config.extra_body)
    return encode_json(fields)[:-1] + b',"messages":['


def request_body(opening: bytes, messages: Sequence[bytes]) -> bytes:
    """The whole body."""
    return opening + b",".join(messages) + b"]}"
