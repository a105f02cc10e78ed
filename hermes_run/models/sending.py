"""Sending a request's bytes and getting the answer: straight, or through an HTTP proxy.

What is the same in all requests to an address is encoded once. No variable of the environment changes what
is sent or where it goes (SSL_CERT_FILE and SSL_CERT_DIR, which name the machine's certificates, hold as
everywhere).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import httpx2
from msgspec import Struct

from hermes_run import __version__
from hermes_run.models.transport import DirectTransport

if TYPE_CHECKING:
    from hermes_run.models.config import ModelConfig
    from hermes_run.models.transport import Origin

_ACCEPT = {False: "application/json", True: "text/event-stream"}


class Answered(Struct, frozen=True):
    """What came back: status, headers as they came, and the body, unpacked."""

    status: int
    raw_headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """With lower-case names."""
        return {n.decode("latin-1").lower(): v.decode("latin-1") for n, v in self.raw_headers}


def _headers(key: str, *, is_stream: bool) -> dict[str, str]:
    headers = {
        "Accept": _ACCEPT[is_stream],
        "Accept-Encoding": "gzip, deflate",
        "Connection": "keep-alive",
        "Content-Type": "application/json",
        "User-Agent": f"hermes-run/{__version__}",
    }
    return headers | {"Authorization": f"Bearer {key}"} if key else headers


class Sender:
    """The way to an endpoint."""

    def __init__(self, config: ModelConfig, key: str) -> None:
        self._headers = {kind: _headers(key, is_stream=kind) for kind in (False, True)}
        self._idle_s = {False: None, True: config.idle_timeout_s}
        self._direct = DirectTransport(max_idle=config.max_concurrency)
        self._heads: dict[tuple[str, bool], tuple[Origin, bytes]] = {}
        self._proxied: httpx2.AsyncClient | None = None
        if config.proxy:
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=config.max_concurrency)
            self._proxied = httpx2.AsyncClient(
                transport=httpx2.AsyncHTTPTransport(proxy=config.proxy, limits=limits, trust_env=False),
                timeout=None,
                trust_env=False,
                follow_redirects=False,
            )

    async def post(self, url: str, body: bytes, *, is_stream: bool) -> Answered:
        """The answer, whatever its status. Raises httpx2.RequestError."""
        idle_s = self._idle_s[is_stream]
        if self._proxied is not None:
            response = await self._proxied.post(
                url,
                content=body,
                headers=self._headers[is_stream],
                timeout=httpx2.Timeout(None, read=idle_s),
            )
            return Answered(response.status_code, response.headers.raw, response.content)
        origin, head = self._heads.get((url, is_stream)) or self._head(url, is_stream=is_stream)
        answer = await self._direct.exchange(origin, b"%s%d\r\n\r\n%s" % (head, len(body), body), idle_s)
        return Answered(answer.status, answer.headers, answer.unpacked())

    def _head(self, url: str, *, is_stream: bool) -> tuple[Origin, bytes]:
        """Where requests to `url` go, and what they begin with, up to the length of the body."""
        parts = httpx2.URL(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        lines = [b"POST %s HTTP/1.1" % parts.raw_path, b"Host: %s" % parts.netloc]
        lines += [f"{name}: {value}".encode() for name, value in self._headers[is_stream].items()]
        head = b"\r\n".join([*lines, b"Content-Length: "])
        found = (parts.scheme, parts.raw_host.decode(), port), head
        self._heads[url, is_stream] = found
        return found

    async def aclose(self) -> None:
        """Close all connections."""
        await self._direct.aclose()
        if self._proxied is not None:
            await self._proxied.aclose()
