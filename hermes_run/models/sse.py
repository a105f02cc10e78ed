"""A reply that came as a stream of events, put together to what a plain reply would have been.

Lenient about how servers cut it: whole messages instead of deltas, calls without an index, several calls
under one index with ids of their own. What ends without `[DONE]` and without a finish reason was cut.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
_TEXTS = ("content", "reasoning", "reasoning_content", "refusal", "text", "summary", "data", "thinking")
"""Fields whose pieces are joined; of any other field the last value counts."""
_OF_A_CHOICE = ("finish_reason", "native_finish_reason", "error", "usage")


def is_stream(body: bytes) -> bool:
    """Whether a body is a stream of events; JSON never begins like one."""
    return body[:64].lstrip(b"\xef\xbb\xbf \r\n\t").startswith(_FIELDS)


def assemble(body: bytes, decode: Callable[[bytes], Any]) -> dict[str, Any]:
    """The reply that the events of a body add up to.

    Raises ValueError when an event is no JSON object, or the stream was cut.
    """
    whole: dict[str, Any] = {}
    message: dict[str, Any] = {"role": "assistant", "content": None}
    choice: dict[str, Any] = {"index": 0, "message": message}
    has_choice = is_done = False
    for data in _events(body):
        if data == b"[DONE]":
            is_done = True
            continue
        chunk = decode(data)
        if not isinstance(chunk, dict):
            raise ValueError("an event that is no JSON object")  # noqa: TRY004 - the caller's one error
        _keep(whole, {name: value for name, value in chunk.items() if name != "choices"})
        pieces = chunk.get("choices")
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, dict) and not piece.get("index"):  # others are never asked for
                has_choice = True
                _add_piece(message, piece)
                _keep(choice, {name: piece[name] for name in _OF_A_CHOICE if piece.get(name)})
    if not is_done and not choice.get("finish_reason") and not whole.get("error"):
        raise ValueError("the stream broke off")
    whole["choices"] = [choice] if has_choice else []
    return whole


def _events(body: bytes) -> Iterator[bytes]:
    """The data of each event; comments and other fields are left out."""
    lines: list[bytes] = []
    for line in body.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
        elif not line and lines:
            if data := b"\n".join(lines).strip():  # an empty one keeps the connection alive
                yield data
            lines = []
    if data := b"\n".join(lines).strip():
        yield data


def _keep(target: dict[str, Any], fields: dict[str, Any]) -> None:
    """The last value of each field counts, but a usage of zeros takes no other one's place."""
    for name, value in fields.items():
        is_told = any(value.values()) if name == "usage" and isinstance(value, dict) else value is not None
        if is_told:
            target[name] = value


def _add_piece(message: dict[str, Any], piece: dict[str, Any]) -> None:
    """A delta goes on where the last one ended; a whole message takes the place of all before it."""
    whole = piece.get("message")
    if piece.get("delta") is None and isinstance(whole, dict):
        message.clear()
        message.update(role="assistant", content=None)
        _add(message, whole)
    else:
        _add(message, piece.get("delta"))


def _add(message: dict[str, Any], delta: Any) -> None:
    if not isinstance(delta, dict):
        return
    for name, value in delta.items():
        if value is None:
            continue
        if name == "tool_calls" and isinstance(value, list):
            for item in value:
                _add_call(message.setdefault("tool_calls", []), item)
        elif name == "function_call" and isinstance(value, dict):
            _add_function(message.setdefault("function_call", {}), value)
        elif name == "reasoning_details" and isinstance(value, list):
            for item in value:
                _add_detail(message.setdefault("reasoning_details", []), item)
        else:
            _join(message, name, value)


def _join(target: dict[str, Any], name: str, value: Any) -> None:
    before = target.get(name)
    if name == "content" and before and {type(before), type(value)} == {str, list}:
        before, value = _as_parts(before), _as_parts(value)
    if name in _TEXTS and isinstance(before, str) and isinstance(value, str):
        target[name] = before + value
    elif name in _TEXTS and isinstance(before, list) and isinstance(value, list):
        target[name] = [*before, *value]
    else:
        target[name] = value


def _as_parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _add_call(calls: list[dict[str, Any]], item: Any) -> None:
    """A piece belongs to the call of its id or index, else to the last one, unless it begins another."""
    if not isinstance(item, dict):
        return
    function = item.get("function")
    function = function if isinstance(function, dict) else {}
    call = _call_of(calls, item.get("index"), item.get("id"))
    if call is None or (function.get("name") and _begins_another(call, item.get("id"), function)):
        call = {"index": item.get("index"), "type": "function", "function": {}}
        calls.append(call)
    _add_function(call["function"], function)
    for name, value in item.items():
        if (
            name not in ("function", "index")
            and value not in (None, "")
            and not (name == "id" and call.get("id"))
        ):
            call[name] = value


def _call_of(calls: list[dict[str, Any]], place: Any, given: Any) -> dict[str, Any] | None:
    alike = [call for call in calls if place is None or call.get("index") == place]
    by_id = [call for call in alike if given and call.get("id") == given]
    return next(reversed(by_id or alike), None)


def _begins_another(call: dict[str, Any], given: Any, function: dict[str, Any]) -> bool:
    """Whether a piece with a name is not the same call: it has an id of its own, or that one is whole."""
    known, said = call.get("id"), call["function"]
    if given and known:
        return bool(given != known)
    if not said.get("arguments") or not function.get("arguments"):
        return False
    return said.get("name") != function["name"] or _is_whole(said["arguments"])


def _is_whole(arguments: Any) -> bool:
    try:
        return not isinstance(arguments, str) or isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _add_function(function: dict[str, Any], piece: dict[str, Any]) -> None:
    """Arguments grow; so does a name until they begin, where servers do not repeat it from the start."""
    for name, value in piece.items():
        before = function.get(name)
        if value is None or (value == "" and before is not None):
            continue
        is_text = isinstance(before, str) and isinstance(value, str)
        is_more = name == "arguments" or (
            name == "name" and is_text and not function.get("arguments") and not value.startswith(before)
        )
        function[name] = before + value if is_text and is_more else value


def _add_detail(details: list[Any], item: Any) -> None:
    """Pieces of one detail have its type and index; texts grow, the rest (a signature) is set."""
    last = details[-1] if details else None
    if (
        isinstance(item, dict)
        and isinstance(last, dict)
        and item.get("type") == last.get("type")
        and item.get("index") == last.get("index")
        and item.get("id") in (None, last.get("id"))
    ):
        for name, value in item.items():
            if value is not None and name not in ("type", "index"):
                _join(last, name, value)
    else:
        details.append(dict(item) if isinstance(item, dict) else item)
