"""From the body of an answer (whole, or events: `sse.py`) to a Reply: lenient, never inventing a word.

Reasoning is taken from the first of these places that holds any: `reasoning`, `reasoning_content`, the
texts in `reasoning_details[]`, thinking parts of the content, blocks in the text (`thinking.py`).
What a provider wants back unmodified is kept in the message's `wire`.

| how it ended | what comes of it |
|---|---|
| `length` and its like | a Reply with finish_reason `length`, without tool calls |
| `content_filter` and its like, a `refusal` | failed `filtered` |
| `MALFORMED_FUNCTION_CALL` and its like, a call without a name | retried, then failed `malformed_call` |
| no text (white space only) and no call | retried, then failed `empty_reply` |
| an `error` object, no choices, no JSON, a content that is none | retried, then failed `provider_error` |
| anything else | `tool_calls` when there are any, else `stop` |

A reply that was cut keeps its text and loses its calls: any of them may be cut, and a cut call is never
run.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from hermes_run.core.messages import Assistant, Reply, ToolCall, Usage
from hermes_run.core.secrets import MARK, forms_of
from hermes_run.core.text import clean
from hermes_run.models.requests import encode_json
from hermes_run.models.sse import assemble, is_stream
from hermes_run.models.thinking import split_thinking
from hermes_run.models.verdicts import UNKNOWN_USAGE, Unusable, Verdict, judge_inside

_SHORTEST_KEY = 16
_LENGTH = frozenset({"length", "max_tokens", "max_output_tokens", "model_context_window_exceeded"})
_FILTERED = frozenset(
    {"content_filter", "content-filter", "safety", "recitation", "prohibited_content", "blocklist", "spii"}
    | {"refusal", "sensitive", "moderation", "language", "image_safety"}
)
_MALFORMED = frozenset(
    {"malformed_function_call", "malformed_tool_call", "unexpected_tool_call", "too_many_tool_calls"}
)
_BROKEN_OFF = frozenset(
    {"error", "abort", "aborted", "cancelled", "insufficient_system_resource", "network_error"}
)
_SENT_BACK = ("reasoning_details", "thinking_blocks", "extra_content")
"""Message fields that providers want back as they were."""

_CACHED = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens")
"""Where some endpoints say how many prompt tokens came from their cache."""

_DECIMAL = re.compile(r"\d{1,15}(\.\d{1,30})?([eE]-?\d{1,2})?")
_MOST = 2**53
"""No count and no price comes near: what is beyond is no number of anything."""

_CALL_FIELDS = frozenset({"id", "type", "function", "index"})


def decode_body(body: bytes) -> Any:
    """The JSON value of a body.

    Pairs of surrogate escapes become their character, lone halves stay for `clean`; bytes that are no
    UTF-8 become lone halves. Raises ValueError when it is no JSON.
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = body.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    except RecursionError:
        raise ValueError("nested too deeply") from None
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _number(value: Any) -> float | None:
    """A number that can be a count or a price, also one that came as text; else None."""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = float(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < _MOST else None  # NaN is in no range


def _count(usage: dict[str, Any], *names: str) -> int:
    """The first of these counts that is told and not zero."""
    return next((int(number) for name in names if (number := _number(usage.get(name)))), 0)


def _part(usage: dict[str, Any], group: str, name: str) -> int:
    details = usage.get(group)
    return _count(details, name) if isinstance(details, dict) else 0


def _cost(usage: dict[str, Any]) -> float | None:
    """What was charged, in USD. With a provider's key of one's own (BYOK) that is a fee beside its bill."""
    told = usage.get("cost", usage.get("estimated_cost"))
    cost = _number(told.get("total_cost") if isinstance(told, dict) else told)
    if usage.get("is_byok") is not True or cost is None:
        return cost
    details = usage.get("cost_details")
    bill = _number(details.get("upstream_inference_cost")) if isinstance(details, dict) else None
    return None if bill is None else cost + bill


def read_usage(usage: Any) -> Usage:
    """What one call was billed; what was not reported is counted as unknown.

    Zeros alone are what endpoints write that did not count.
    """
    if not isinstance(usage, dict):
        return UNKNOWN_USAGE
    prompt = _count(usage, "prompt_tokens", "input_tokens")
    completion = _count(usage, "completion_tokens", "output_tokens")
    total = max(_count(usage, "total_tokens"), prompt + completion)
    cost = _cost(usage)
    if not total:
        return replace(UNKNOWN_USAGE, cost=cost, calls_without_cost=0) if cost else UNKNOWN_USAGE
    cached = _part(usage, "prompt_tokens_details", "cached_tokens") or _count(usage, *_CACHED)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=total,
        cached_tokens=min(cached, prompt),
        reasoning_tokens=_part(usage, "completion_tokens_details", "reasoning_tokens")
        or _count(usage, "reasoning_tokens"),
        cost=cost or 0.0,
        calls=1,
        calls_without_cost=1 if cost is None else 0,
    )


def _usage_in(data: Any) -> Usage:
    """What a reply says of its usage: beside the choices, or where Moonshot and Groq put that of streams."""
    if not isinstance(data, dict):
        return UNKNOWN_USAGE
    choices, groq = data.get("choices"), data.get("x_groq")
    places = [data, *(choices[:1] if isinstance(choices, list) else ()), groq]
    found = (place["usage"] for place in places if isinstance(place, dict) and place.get("usage"))
    return read_usage(next(found, None))


def _joined(parts: list[Any], *names: str) -> str:
    """The texts under `names` of a list of objects, or of plain texts."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            found = next((part[name] for name in names if part.get(name)), "")
            texts.append(_joined(found if isinstance(found, list) else [found], "text"))
    return "".join(texts)


def _read_content(content: Any) -> tuple[str, str] | None:
    """(text, thinking) of a content that is text, a list of parts, or absent; None when it is none."""
    if content is None:
        return "", ""
    if isinstance(content, str):
        return content, ""
    if not isinstance(content, list):
        return None
    thinking = [p for p in content if isinstance(p, dict) and p.get("type") in ("thinking", "reasoning")]
    said = [p for p in content if not any(p is t for t in thinking)]
    return _joined(said, "text"), _joined(thinking, "thinking", "reasoning", "text")


def _native_reasoning(message: dict[str, Any], thinking: str) -> str:
    for name in ("reasoning", "reasoning_content"):
        value = message.get(name)
        if isinstance(value, str) and value.strip():
            return value
    details = message.get("reasoning_details")
    if isinstance(details, list):
        text = "\n".join(filter(None, (_joined([part], "text", "summary", "content") for part in details)))
        if text.strip():
            return text
    return thinking


def _arguments(value: Any) -> str:
    """The JSON text of a call's arguments; providers leave them out when there are none."""
    if isinstance(value, str):
        return clean(value) if value.strip() else "{}"
    return "{}" if value is None else encode_json(value).decode()


def _raw_calls(message: dict[str, Any]) -> list[Any]:
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        return calls
    legacy = message.get("function_call")
    return [{"function": legacy}] if isinstance(legacy, dict) else []


def _free_id(given: Any, used: set[str], turn: int, place: int) -> str:
    """The provider's id, or nine letters and digits (the strictest form known) when it is no good."""
    wanted = clean(str(given)) if given not in (None, "") else ""
    while not wanted or wanted in used:
        wanted = f"call{turn:03d}{place:02d}"
        place += 1
    used.add(wanted)
    return wanted


def _read_calls(
    raw: list[Any], used: set[str], turn: int, usage: Usage
) -> tuple[tuple[ToolCall, ...], list[dict[str, Any]]]:
    """The calls, and the same in the provider's own form when that holds more than ours ([] if not)."""
    calls: list[ToolCall] = []
    wire: list[dict[str, Any]] = []
    has_more = False
    taken = set(used)
    for place, item in enumerate(raw):
        function = item.get("function") if isinstance(item, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str) or not name.strip():
            raise Unusable(Verdict("retry", "a tool call without a name", "malformed_call"), usage)
        call = ToolCall(
            _free_id(item.get("id"), taken, turn, place), clean(name), _arguments(function.get("arguments"))
        )
        calls.append(call)
        more = {key: value for key, value in item.items() if key not in _CALL_FIELDS and value is not None}
        has_more = has_more or bool(more)
        function_form = {"name": call.name, "arguments": call.arguments}
        wire.append({"id": call.id, "type": "function", "function": function_form, **more})
    used |= taken
    return tuple(calls), wire if has_more else []


def _wire_fields(message: dict[str, Any], wire_calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Reasoning goes back under the name that it came by, once; details win over their plain text."""
    fields = {name: message[name] for name in _SENT_BACK if message.get(name)}
    if "reasoning_details" not in fields:
        for name in ("reasoning_content", "reasoning"):
            if isinstance(message.get(name), str) and message[name]:
                fields[name] = message[name]
                break
    if wire_calls:
        fields["tool_calls"] = wire_calls
    return fields


def _first_choice(data: Any, usage: Usage, secret: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first choice and its message. Raises Unusable when there is none, or an error instead."""
    if not isinstance(data, dict):
        raise Unusable(Verdict("retry", "the reply is no JSON object"), usage)
    choices = data.get("choices")
    choices = choices if isinstance(choices, list) else []
    ours = (each for each in choices if isinstance(each, dict) and not each.get("index"))
    choice = next(ours, choices[0] if choices else None)  # others were never asked for
    error = data.get("error") or (choice.get("error") if isinstance(choice, dict) else None)
    if error:
        if choice is None and usage.calls_without_usage:
            usage = Usage()  # an error alone is not billed unless it says so
        raise Unusable(judge_inside(error, secret), usage)
    if choice is None:
        raise Unusable(Verdict("retry", "a reply without choices"), usage)
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        raise Unusable(Verdict("retry", "a reply without a message"), usage)
    return choice, message


def _refuses(message: dict[str, Any]) -> bool:
    """Whether the model says that it will not answer, in the field or the part that are for that."""
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    return bool(message.get("refusal")) or any(
        isinstance(part, dict) and part.get("type") == "refusal" for part in parts
    )


def _check_ending(choice: dict[str, Any], usage: Usage) -> bool:
    """Whether the reply was cut. Raises Unusable when the provider says that it is no reply."""
    endings = {
        str(choice[name]).lower() for name in ("finish_reason", "native_finish_reason") if choice.get(name)
    }
    if endings & _MALFORMED:
        raise Unusable(Verdict("retry", "the model wrote a malformed tool call", "malformed_call"), usage)
    if endings & _FILTERED:
        raise Unusable(Verdict("fail", "the provider filtered the reply", "filtered"), usage)
    if endings & _BROKEN_OFF:
        raise Unusable(Verdict("retry", "the provider broke off the reply"), usage)
    return bool(endings & _LENGTH)


def _without(secret: str, value: Any) -> Any:
    """The value without the key in any of its forms, which a proxy's echo would carry into the dataset.

    A short key is a placeholder (`EMPTY`, `none`), and may be any word of a reply.
    """
    return value if len(secret) < _SHORTEST_KEY else _masked(value, _forms(secret))


def _masked(value: Any, forms: tuple[str, ...]) -> Any:
    if isinstance(value, str):
        for form in forms:
            if form in value:
                value = value.replace(form, MARK)
        return value
    if isinstance(value, dict):
        return {name: _masked(item, forms) for name, item in value.items()}
    return [_masked(item, forms) for item in value] if isinstance(value, list) else value


@lru_cache(maxsize=16)
def _forms(secret: str) -> tuple[str, ...]:
    """The longest first: a form may hold another."""
    return tuple(sorted(forms_of(secret), key=len, reverse=True))


def _read_body(body: bytes, secret: str) -> Any:
    """The value of a plain reply or of a stream, without the key. Raises Unusable."""
    try:
        value = assemble(body, decode_body) if is_stream(body) else decode_body(body)
        return _without(secret, value)
    except ValueError as error:
        if body[:512].lstrip().lower().startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
            raise Unusable(Verdict("retry", "a web page instead of a reply", is_page=True)) from None
        is_cut = str(error) == "the stream broke off"
        raise Unusable(
            Verdict("retry", str(error) if is_cut else "the reply is no JSON"), UNKNOWN_USAGE
        ) from None


def read_reply(body: bytes, used_ids: set[str], turn: int, secret: str = "") -> Reply:
    """The reply in a 200's body.

    Args:
        body: as it came.
        used_ids: tool-call ids of the conversation so far; those of this reply are added.
        turn: number of replies before this one, for ids that the provider left out or used twice.
        secret: the key that was sent: masked wherever the reply repeats it.

    Raises Unusable with the verdict and what the call was billed.
    """
    data = _read_body(body, secret)
    usage = _usage_in(data)
    choice, message = _first_choice(data, usage, secret)
    is_cut = _check_ending(choice, usage)
    content = _read_content(message.get("content"))
    if content is None:
        raise Unusable(Verdict("retry", "a reply whose content is no text"), usage)
    text, thinking = content
    reasoning = _native_reasoning(message, thinking)
    if not reasoning:
        reasoning, text = split_thinking(text)
    raw_calls = _raw_calls(message)
    if _refuses(message) and not raw_calls and not text.strip():
        raise Unusable(Verdict("fail", "the model refused to answer", "filtered"), usage)
    raw_calls = [] if is_cut else raw_calls
    calls, wire_calls = _read_calls(raw_calls, used_ids, turn, usage)
    if not is_cut and not calls and not text.strip():
        raise Unusable(Verdict("retry", "an empty reply", "empty_reply"), usage)
    served, provider = data.get("model"), data.get("provider")
    return Reply(
        message=Assistant(clean(text), clean(reasoning), calls, _wire_fields(message, wire_calls) or None),
        finish_reason="length" if is_cut else "tool_calls" if calls else "stop",
        usage=usage,
        model=clean(served) if isinstance(served, str) else "",
        provider=clean(provider) if isinstance(provider, str) else "",
    )
