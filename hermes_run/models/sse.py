"""A reply that came as a stream of events, put together to what a plain reply would have been.

Lenient about how servers cut it: whole messages instead of deltas, calls without an index, several calls
under one index with ids of their own. What ends without `[DONE]` and without a finish reason was cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
_TEXTS = ("content", "reasoning", "reasoning_content", "refusal", "text", "summary", "data", "thinking")
"""Fields whose pieces are joined; of any other field the last value counts."""


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
        whole.update((name, chunk[name]) for name in chunk if name != "choices" and chunk[name] is not None)
        piece = next(iter(chunk.get("choices") or ()), None)
        if isinstance(piece, dict) and not piece.get("index"):  # others are never asked for
            has_choice = True
            _add(message, piece.get("delta") or piece.get("message") or {})
            for name in ("finish_reason", "native_finish_reason", "error"):
                if piece.get(name):
                    choice[name] = piece[name]
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
            yield b"\n".join(lines).strip()
            lines = []
    if lines:
        yield b"\n".join(lines).strip()


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
    if name in _TEXTS and isinstance(before, str) and isinstance(value, str):
        target[name] = before + value
    elif name in _TEXTS and isinstance(before, list) and isinstance(value, list):
        target[name] = [*before, *value]
    else:
        target[name] = value


def _add_call(calls: list[dict[str, Any]], item: Any) -> None:
    """A piece belongs to the call of its index, unless it brings an id that this call does not have."""
    if not isinstance(item, dict):
        return
    place, given = item.get("index"), item.get("id")
    call = next((c for c in reversed(calls) if c.get("index") == place), None)
    if place is None and not given and calls:
        call = calls[-1]
    if call is None or (given and call.get("id") not in (None, "", given)):
        call = {"index": place, "type": "function", "function": {}}
        calls.append(call)
    for name, value in item.items():
        if name == "function" and isinstance(value, dict):
            _add_function(call["function"], value)
        elif name != "index" and value not in (None, ""):
            call[name] = value


def _add_function(function: dict[str, Any], piece: dict[str, Any]) -> None:
    for name, value in piece.items():
        if name == "arguments" and isinstance(value, str) and isinstance(function.get(name, ""), str):
            function[name] = function.get(name, "") + value
        elif value is not None and (value != "" or name not in function):
            function[name] = value


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
