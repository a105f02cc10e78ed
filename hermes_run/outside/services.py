"""Answers of services that hermes.yaml names: bounded in size, and read whatever is odd about them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

    from hermes_run.spec.keys_and_hosts import Secret

MOST_BYTES = 40 * 2**20
WAIT_S = 1.0
"""Before a service is asked again that says nothing of it."""
_HEADERS = (b"content-type", b"retry-after")
_MOST_NUMBER = 2**53
_MOST_WAIT_S = 10.0


class TooLarge(Exception):
    """A service answers more than `MOST_BYTES`; in words."""


async def bounded(client: httpx2.AsyncClient, method: str, url: str, **asked: Any) -> httpx2.Response:
    """An answer with its body. Raises TooLarge, and what httpx2 raises."""
    import httpx2

    async with client.stream(method, url, **_sendable(asked)) as answer:
        content = bytearray()
        async for piece in answer.aiter_bytes():
            content += piece
            if len(content) > MOST_BYTES:
                raise TooLarge(f"the answer is larger than {MOST_BYTES >> 20} MiB")
        headers = [each for each in answer.headers.raw if each[0].lower() in _HEADERS]
        return httpx2.Response(answer.status_code, headers=headers, content=bytes(content))


def _sendable(value: Any) -> Any:
    """What is asked, with halves of characters, which no UTF-8 has, as what stands for the unreadable."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_sendable(item) for item in value]
    if isinstance(value, dict):
        return {name: _sendable(item) for name, item in value.items()}
    return value


def json_object(answer: httpx2.Response, key: Secret | None = None) -> dict[str, Any] | None:
    """The JSON object of an answer; None when it is none, or nested too deeply.

    An answer that shows the key that it was asked with goes on without it: onto the cassette, too.
    """
    data = answer.content if key is None else answer.content.replace(key.reveal().encode(), b"[key]")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def wait_s(answer: httpx2.Response) -> float:
    """How long a service wants to be left alone, within reason."""
    header = answer.headers.get("retry-after", "")
    return min(float(header), _MOST_WAIT_S) if header.isascii() and header.isdigit() else WAIT_S


def number(value: Any) -> float | None:
    """A number that can be a count or a price, else None: NaN, less than nothing and the like are none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < _MOST_NUMBER else None
