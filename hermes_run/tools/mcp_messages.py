"""Messages of MCP servers: read whatever is odd about them, so that no request waits for what never comes."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from hermes_run.core.text import clean

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    import httpx2

MOST_MESSAGE = 16_000_000
"""Bytes of one message: about 12 MB of pictures."""

TOO_LONG = f"its message is longer than {MOST_MESSAGE} bytes; ask for less"
_ODD = re.compile(rb"\\u[dD][89a-fA-F]|NaN|Infinity|[\x80-\xff]")
_MOST_WORDS = 300


def readable(data: bytes) -> bytes:
    """JSON as every reader takes it: no halves of characters, no numbers that JSON does not have.

    What is no JSON stays as it is. Raises RecursionError for what is nested too deeply.
    """
    if not _ODD.search(data):
        return data
    try:
        value = json.loads(data.decode("utf-8", "surrogateescape"))
    except ValueError:
        return data
    return json.dumps(_plain(value)).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {clean(name): _plain(item) for name, item in value.items()}
    return value


def messages_of(line: bytes, opened: Iterable[Any]) -> list[Any]:
    """What a session is given for a line of a server: its message, or nothing for what is none.

    An answer to a request of `opened` that cannot be read becomes the error that it failed with.
    """
    from mcp import types

    try:
        line = readable(line)
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except RecursionError:
        return [_unreadable(request, "it is nested too deeply") for request in opened]
    except ValueError as error:
        return [_unreadable(request, first_fault(error)) for request in opened if _answers(line, request)]
    return [message]


def _answers(line: bytes, request: Any) -> bool:
    """Whether a line that is no message answers a request all the same; a deep one may not be parsed."""
    try:
        value = json.loads(line)
    except RecursionError:
        return True
    except ValueError:
        return False
    return isinstance(value, dict) and "method" not in value and value.get("id") == request


def _unreadable(request: Any, why: str) -> Any:
    from mcp import types

    return types.JSONRPCError(
        jsonrpc="2.0", id=request, error=types.ErrorData(code=types.PARSE_ERROR, message=why)
    )


def first_fault(error: Exception) -> str:
    """The first thing that is wrong with an answer, in one line."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in fault["loc"])
        return f"{where}: {fault['msg']}"[:_MOST_WORDS] if where else str(fault["msg"])[:_MOST_WORDS]
    return (str(error) or type(error).__name__).split("\n")[0][:_MOST_WORDS]


def bounded(response: httpx2.Response) -> httpx2.AsyncByteStream:
    """The body of an answer over HTTP, of `MOST_MESSAGE` at most, read whole and made readable."""
    import httpx2

    class Body(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
                raise httpx2.StreamError("it is compressed, which was not asked for")
            body = bytearray()
            async for piece in self._stream:
                body += piece
                if len(body) > MOST_MESSAGE:
                    raise httpx2.StreamError(TOO_LONG)
            try:
                yield readable(bytes(body))
            except RecursionError:
                raise httpx2.StreamError("it is nested too deeply") from None

        async def aclose(self) -> None:
            await self._stream.aclose()

    return Body(response.stream)
