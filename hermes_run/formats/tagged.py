"""Tagged text: reasoning, calls and results inside a turn's value, as the predecessor wrote them.

A gpt turn is `<think>`…`</think>`, the text, then each call as `<tool_call>` newline
`{"name", "arguments"}` newline `</tool_call>`; a tool turn holds all results, each as
`<tool_response>` newline `{"tool_call_id", "name", "content"}` newline `</tool_response>`.

Reading never loses text: what is no well-formed block stays in the text that it stands in. Calls are
the blocks at the end of a turn; a block that text follows is something that the model talked about.
Writing spells the `<` of a tag inside a block's JSON as an escape, so that no block ends too early.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from hermes_run.core.messages import ToolCall, ToolResult
from hermes_run.core.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hermes_run.core.messages import Assistant

_SPACE = re.compile(r"\s*")
_THINK = re.compile(r"\s*<think>(.*?)</think>\n?", re.DOTALL)
_THOUGHT = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_SCRATCHPAD, _END_OF_SCRATCHPAD = "<REASONING_SCRATCHPAD>", "</REASONING_SCRATCHPAD>"
_CALL, _END_OF_CALL = "<tool_call>", "</tool_call>"
_RESULT, _END_OF_RESULT = "<tool_response>", "</tool_response>"
_TAG = re.compile("<(?=/?(?:think|tools|tool_call|tool_response)>)")
_ESCAPED_TAG = re.compile(r"(\\\\)|\\u003c(?=/?(?:think|tools|tool_call|tool_response)>)")

_scan = json.JSONDecoder(strict=False).raw_decode
_raw_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _Block(Struct, frozen=True):
    """A `<tool_call>` of a turn: where it is, and its call, or None where it cannot be read."""

    start: int
    end: int
    call: ToolCall | None


# --------------------------------------------------------------------------- writing


def write_turn(turn: Assistant) -> str:
    """The value of a gpt turn; one without reasoning has an empty think block.

    A scratchpad in the text becomes a think block where it stands.
    """
    text = turn.text
    if _SCRATCHPAD in text:
        text = text.replace(_SCRATCHPAD, "<think>").replace(_END_OF_SCRATCHPAD, "</think>")
    parts = []
    if turn.reasoning:
        parts.append(f"<think>\n{turn.reasoning}\n</think>")
    elif not _THOUGHT.search(text):
        parts.append("<think>\n</think>")
    if text:
        parts.append(text)
    for call in turn.tool_calls:
        payload = f'{{"name": {_quoted(call.name)}, "arguments": {_inline(call.arguments, "{")}}}'
        parts.append(f"{_CALL}\n{_safe(payload)}\n{_END_OF_CALL}")
    return "\n".join(parts)


def write_results(results: Sequence[ToolResult]) -> str:
    """The value of the tool turn that answers a turn's calls."""
    parts = []
    for result in results:
        payload = (
            f'{{"tool_call_id": {_quoted(result.call_id)}, "name": {_quoted(result.name)}, '
            f'"content": {_inline(result.text, "{[")}}}'
        )
        parts.append(f"{_RESULT}\n{_safe(payload)}\n{_END_OF_RESULT}")
    return "\n".join(parts)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _inline(text: str, openings: str) -> str:
    """JSON (an object, a list) as it is written; any other text as a JSON string."""
    return text if text[:1] in tuple(openings) and _is_json(text) else _quoted(text)


def _is_json(text: str) -> bool:
    """Whether a text is one JSON value, to its last character, for strict readers and for this one."""
    try:
        msgspec.json.decode(text)
        return bool(_scan(text)[1] == len(text))
    except (ValueError, RecursionError):
        return False


def _safe(payload: str) -> str:
    return _TAG.sub(r"\\u003c", payload)


# --------------------------------------------------------------------------- reading


def read_turn(value: str, answers: int) -> tuple[str, str, tuple[ToolCall, ...]]:
    """Reasoning, text and calls of a gpt turn; a call has no id unless its block has one.

    Args:
        value: the turn's.
        answers: how many results follow: where there are some and no call stands at the end, the calls
            are looked for in the text.
    """
    reasoning = ""
    while not reasoning and (found := _THINK.match(value)):
        reasoning = found[1].removeprefix("\n").removesuffix("\n")
        value = value[found.end() :]
    blocks = list(_blocks(value))
    chosen = [block for block in _at_the_end(value, blocks) if block.call]
    if not chosen and answers:
        chosen = [block for block in blocks if block.call][-answers:]
    text = _without(value, chosen)
    text = _THOUGHT.sub(rf"{_SCRATCHPAD}\1{_END_OF_SCRATCHPAD}", text)
    return reasoning, text, tuple(block.call for block in chosen if block.call)


def read_results(value: str) -> tuple[ToolResult, ...]:
    """The results of a tool turn, in order; text outside of readable blocks is a result of its own."""
    results: list[ToolResult] = []
    at = 0
    while True:
        start = value.find(_RESULT, at)
        loose = value[at : start if start >= 0 else len(value)].strip()
        if loose:
            results.append(ToolResult("", "", loose))
        if start < 0:
            return tuple(results)
        result, at = _result_at(value, start + len(_RESULT))
        results.append(result)


def _blocks(value: str) -> Iterator[_Block]:
    at = 0
    while (start := value.find(_CALL, at)) >= 0:
        inside = start + len(_CALL)
        call, end = _call_at(value, inside)
        if call is None:
            close, following = value.find(_END_OF_CALL, inside), value.find(_CALL, inside)
            has_end = close >= 0 and (following < 0 or close < following)
            end = close + len(_END_OF_CALL) if has_end else inside
        yield _Block(start, end, call)
        at = end


def _at_the_end(value: str, blocks: list[_Block]) -> list[_Block]:
    """The blocks that nothing but blocks and white space follows."""
    edge, found = len(value), []
    for block in reversed(blocks):
        if value[block.end : edge].strip():
            break
        found.append(block)
        edge = block.start
    return found[::-1]


def _without(value: str, blocks: list[_Block]) -> str:
    """The text with some blocks taken out, and the line break that stood before the first of them."""
    if not blocks:
        return value
    starts = [*(block.start for block in blocks[1:]), len(value)]
    between = [value[block.end : start] for block, start in zip(blocks, starts, strict=True)]
    first = value[: blocks[0].start].removesuffix("\n")
    return "\n".join([*([first] if first else []), *(part.strip() for part in between if part.strip())])


def _call_at(value: str, at: int) -> tuple[ToolCall | None, int]:
    payload, raw, end = _object_at(value, at, _END_OF_CALL)
    name, call_id = payload.get("name"), payload.get("id", "")
    is_call = isinstance(name, str) and name and isinstance(call_id, str)
    if not is_call or not payload.keys() <= {"name", "arguments", "id"}:
        return None, at
    arguments = "{}" if payload.get("arguments") is None else _member(payload, raw, "arguments")
    return ToolCall(clean(call_id), clean(str(name)), arguments), end


def _result_at(value: str, at: int) -> tuple[ToolResult, int]:
    payload, raw, end = _object_at(value, at, _END_OF_RESULT)
    if "content" in payload and payload.keys() <= {"tool_call_id", "name", "content"}:
        call_id, name = (payload.get(key) or "" for key in ("tool_call_id", "name"))
        if isinstance(call_id, str) and isinstance(name, str):
            return ToolResult(clean(call_id), clean(name), _member(payload, raw, "content")), end
    close, following = value.find(_END_OF_RESULT, at), value.find(_RESULT, at)
    edge = min(place for place in (close, following, len(value)) if place >= 0)
    return ToolResult("", "", value[at:edge].strip()), edge + (len(_END_OF_RESULT) if edge == close else 0)


def _object_at(value: str, at: int, closing: str) -> tuple[dict[str, Any], str, int]:
    """A block's JSON object, its spelling, and where the block ends; {} where there is none.

    At the very end of a turn the closing tag may be missing.
    """
    start = _skip_space(value, at)
    try:
        payload, end = _scan(value, start)
    except (ValueError, RecursionError):
        return {}, "", at
    after = _skip_space(value, end)
    if not isinstance(payload, dict) or not (after == len(value) or value.startswith(closing, after)):
        return {}, "", at
    return payload, value[start:end], min(after + len(closing), len(value))


def _skip_space(value: str, at: int) -> int:
    match = _SPACE.match(value, at)
    return match.end() if match else at


def _member(payload: dict[str, Any], raw: str, name: str) -> str:
    """A string as text; anything else as the JSON that it is written in."""
    value = payload[name]
    if isinstance(value, str):
        return clean(value)
    try:
        spelled = bytes(_raw_members(raw.encode())[name]).decode()
    except (ValueError, RecursionError):  # NaN and what else only a lenient reader takes
        return clean(json.dumps(value, ensure_ascii=False))
    return _ESCAPED_TAG.sub(lambda match: match[1] or "<", spelled)
