"""Fetching a document through the proxy: bounded in size, time and redirects, whatever the server does.

Every redirect is a request of its own, so each of them passes the gate. Compressed bodies are unpacked
here, piece by piece, so that a small one that unpacks to gigabytes costs no more than the limit.
"""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from msgspec import Struct

from hermes_run.outside.gate import Refused
from hermes_run.outside.proxy import REFUSED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2

    from hermes_run.outside.proxy import Proxy

MOST_REDIRECTS = 10
TIMEOUT_S = 45.0
"""For one document, redirects included."""
SILENCE_S = 20.0
"""Longest wait for the next piece."""

_AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36"
"""Many sites answer nothing useful to what does not call itself a browser."""
_ACCEPT = "text/html,application/xhtml+xml,application/pdf;q=0.9,text/plain;q=0.8,*/*;q=0.5"
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class Document(Struct, frozen=True):
    """What an address gave.

    Attributes:
        url: where it was in the end.
        content_type: the header, as it was sent.
        body: unpacked; at most as long as asked for.
        is_cut: whether there was more.
    """

    url: str
    status: int
    content_type: str
    body: bytes
    is_cut: bool = False


class Downloads:
    """A client for addresses that models give. `aclose` at the end."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._made: httpx2.AsyncClient | None = None

    def _client(self) -> httpx2.AsyncClient:
        if self._made is None:
            import httpx2

            self._made = httpx2.AsyncClient(
                proxy=self._proxy.url,
                trust_env=False,
                follow_redirects=False,
                timeout=SILENCE_S,
                headers={
                    "User-Agent": _AGENT,
                    "Accept": _ACCEPT,
                    "Accept-Language": "en;q=0.9,*;q=0.5",
                    "Accept-Encoding": "gzip, deflate",
                },
                limits=httpx2.Limits(max_connections=64, max_keepalive_connections=0),
            )
        return self._made

    async def get(self, url: str, *, max_bytes: int, timeout_s: float = TIMEOUT_S) -> Document:
        """Fetch a document. Raises Refused with the reason when there is none."""
        import httpx2

        try:
            async with asyncio.timeout(timeout_s):
                return await self._follow(url, max_bytes)
        except TimeoutError:
            raise Refused(
                f"no end of {_host(url)}'s answer within {timeout_s:g} s; try another page"
            ) from None
        except httpx2.ProxyError as error:
            raise Refused(str(error).removeprefix("403 ")) from None
        except httpx2.TimeoutException:
            raise Refused(f"{_host(url)} does not answer; try again later or another page") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, zlib.error) as error:
            raise Refused(f"{_host(url)} gave no usable answer ({_said(error)}); try another page") from None

    async def _follow(self, url: str, max_bytes: int) -> Document:
        for _ in range(MOST_REDIRECTS + 1):
            check_url(url)
            request = self._client().build_request("GET", url)
            response = await self._client().send(request, stream=True)
            try:
                refused = response.headers.get(REFUSED)
                if refused and request.url.scheme == "http":  # over https it would be a server's own word
                    raise Refused(refused)
                where = response.headers.get("location")
                if response.status_code in _REDIRECTS and where:
                    url = urljoin(url, where)
                    continue
                body, is_cut = await _read(response, max_bytes)
                kind = response.headers.get("content-type", "")
                return Document(url, response.status_code, kind, body, is_cut)
            finally:
                await response.aclose()
        raise Refused(f"more than {MOST_REDIRECTS} redirects, perhaps for ever; try another address")

    async def aclose(self) -> None:
        """Close its connections."""
        if self._made is not None:
            await self._made.aclose()


def check_url(url: str) -> None:
    """Raises Refused for what is no address of the web."""
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        raise Refused(f"{url[:200]!r} is no URL; write it as https://HOST/PATH") from None
    if parts.scheme not in {"http", "https"}:
        raise Refused(f"{url[:200]!r} is no http or https URL; write it as https://HOST/PATH")
    if not parts.hostname or not has_port:
        raise Refused(f"{url[:200]!r} names no host; write it as https://HOST/PATH")
    if parts.username is not None or parts.password is not None:
        raise Refused("an address with a user name or password in it is not opened; leave that part out")


async def _read(response: httpx2.Response, max_bytes: int) -> tuple[bytes, bool]:
    """The body, unpacked, and whether it was cut."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    body = bytearray()
    async for piece in _unpacked(response, coding, max_bytes):
        body += piece
        if len(body) > max_bytes:
            return bytes(body[:max_bytes]), True
    return bytes(body), False


async def _unpacked(response: httpx2.Response, coding: str, max_bytes: int) -> AsyncIterator[bytes]:
    if coding in {"", "identity"}:
        async for piece in response.aiter_raw():
            yield piece
        return
    if coding not in {"gzip", "x-gzip", "deflate"}:
        raise ValueError(f"the unknown compression {coding[:20]!r}")
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
    is_first = True
    async for raw in response.aiter_raw():
        if is_first and coding == "deflate" and not _is_zlib(raw):
            unpack = zlib.decompressobj(-zlib.MAX_WBITS)  # as many servers understand "deflate"
        is_first = False
        yield unpack.decompress(raw, max_bytes + 1)
        while unpack.unconsumed_tail:
            yield unpack.decompress(unpack.unconsumed_tail, max_bytes + 1)


def _is_zlib(data: bytes) -> bool:
    return len(data) > 1 and data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0


def _host(url: str) -> str:
    return urlsplit(url).hostname or url[:80]


def _said(error: Exception) -> str:
    """What went wrong, without addresses and ports."""
    return str(error) if isinstance(error, ValueError) and len(str(error)) < 80 else type(error).__name__
