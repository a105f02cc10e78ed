"""HTTP/1.1 for many long calls to one host: an httpx2 transport without the pool.

Why not httpx2's own: its pool looks at every open connection for every request, and its layers cost
more CPU per call than everything else here together (`benchmarks/client.py` measures it). This one
keeps idle connections on a stack, so that a call costs the same at 1 and at 1,000 in flight, and there
is no ceiling: as many connections as calls. Requests are one write, replies are read whole.

What it leaves out on purpose: HTTP/2, proxies (httpx2's own transport does those), retries (`retry.py`
owns them), time limits of a whole request (the client sets them).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    from collections.abc import Callable

CONNECT_TIMEOUT_S = 10.0
IDLE_S = 55.0
"""Idle connections are given up after this; many servers and balancers close them at 60 s."""

_OPENING_AT_END_S = 1.0

_STAYS_OPEN_S = 1.0
"""A stream that said [DONE] and does not end: what it said is taken after so long."""
_DONE = (b"data: [DONE]", b"data:[DONE]")
_BEGINNING = b"HTTP/1."

_MAX_HEAD = 256 * 1024
_MAX_BODY = 256 * 1024 * 1024
"""Bytes. No honest reply comes near: a broken endpoint must not fill the memory."""


class Answer:
    """One answer being read. `feed` takes bytes and says whether it is whole."""

    __slots__ = ("_buffer", "_left", "_state", "body", "headers", "is_last", "status")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._left = 0
        self._state = "head"
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()
        self.is_last = False

    @property
    def has_begun(self) -> bool:
        """Whether any byte came."""
        return bool(self._buffer) or self._state != "head"

    def feed(self, data: bytes) -> bool:
        """Take what came. Raises ValueError when it is no HTTP."""
        self._buffer += data
        while self._state == "head":
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if not _BEGINNING.startswith(bytes(self._buffer[: len(_BEGINNING)])):
                    raise ValueError("no HTTP/1.1 answer")  # whoever greets like that may wait for an answer
                if len(self._buffer) > _MAX_HEAD:
                    raise ValueError("an endless head")
                return False
            head = bytes(self._buffer[:end])
            del self._buffer[: end + 4]
            self._read_head(head)
        if len(self.body) + len(self._buffer) > _MAX_BODY:
            raise ValueError("an endless body")
        if self._state == "chunks":
            return self._read_chunks()
        self.body += self._buffer
        self._buffer.clear()
        if self._state == "length":
            if len(self.body) > self._left:
                self.is_last = True
                del self.body[self._left :]
            return len(self.body) == self._left
        return False

    @property
    def is_done(self) -> bool:
        """Whether it is a stream of events that said its last word."""
        return self._state in ("chunks", "until-close") and self.body[-20:].rstrip().endswith(_DONE)

    def ended(self) -> bool:
        """The connection was closed: whether that makes the answer whole."""
        return self._state == "until-close"

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        version, _, rest = first.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise ValueError("no HTTP/1.1 answer")
        self.status = int(rest[:3])
        if 100 <= self.status < 200:
            return
        self.headers = []
        for line in lines:
            name, colon, value = line.partition(b":")
            if not colon:
                raise ValueError("a header without a colon")
            self.headers.append((name.strip(), value.strip()))
        found = {name.lower(): value.lower() for name, value in self.headers}
        connection = found.get(b"connection", b"")
        self.is_last = b"close" in connection or (version == b"HTTP/1.0" and b"keep-alive" not in connection)
        if self.status in (204, 304):
            self._state = "length"
        elif b"chunked" in found.get(b"transfer-encoding", b""):
            self._state = "chunks"
        elif b"content-length" in found:
            self._left = _size(found[b"content-length"], 10)
            self._state = "length"
        else:
            self._state, self.is_last = "until-close", True

    def _read_chunks(self) -> bool:
        buffer = self._buffer
        at = 0
        while (end := buffer.find(b"\r\n", at)) >= 0:
            size = _size(bytes(buffer[at:end]).split(b";")[0].strip(), 16)
            if size == 0:
                if buffer[end : end + 4] == b"\r\n\r\n":
                    return True
                if buffer.find(b"\r\n\r\n", end) >= 0:  # trailers
                    return True
                break
            if len(buffer) < end + 2 + size + 2:
                break
            self.body += buffer[end + 2 : end + 2 + size]
            at = end + 2 + size + 2
        del buffer[:at]
        return False


def _size(text: bytes, base: int) -> int:
    """A length in bytes. Raises ValueError for what is none."""
    try:
        size = int(text, base)
    except ValueError:
        size = -1
    if not 0 <= size <= _MAX_BODY:
        raise ValueError("a length that cannot be")
    return size


class _Connection(asyncio.Protocol):
    """One connection: a request at a time."""

    def __init__(self, forget: Callable[[_Connection], None]) -> None:
        self._forget = forget
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._done: asyncio.Future[Answer] | None = None
        self._heard_at = 0.0
        self.is_open = False
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type checker
        self._transport = transport
        self.is_open = True
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    async def ask(self, request: bytes, idle_s: float | None = None) -> Answer:
        """Send the request, return the whole answer. Raises httpx2.RequestError.

        With `idle_s`, silence for that long is a ReadTimeout.
        """
        if self._transport is None or not self.is_open:
            raise httpx2.ReadError("the connection was closed")
        self._answer = Answer()
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        if idle_s is not None:
            self._heard_at = asyncio.get_running_loop().time()
            self._watch(self._done, idle_s)
        try:
            return await self._done
        finally:
            self._answer = self._done = None

    def _watch(self, done: asyncio.Future[Answer], idle_s: float) -> None:
        """Look again when the silence could have lasted long enough."""
        if done.done():
            return
        loop = asyncio.get_running_loop()
        left_s = self._heard_at + idle_s - loop.time()
        if left_s <= 0:
            done.set_exception(httpx2.ReadTimeout("silence"))
        else:
            loop.call_later(left_s, self._watch, done, idle_s)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._done is None:
            self.close()  # bytes that nobody asked for: never to be taken for the next answer
            return
        if self._done.done():
            self._answer.is_last = True
            return
        self._heard_at = asyncio.get_running_loop().time()
        try:
            is_whole = self._answer.feed(data)
        except ValueError as error:
            self._done.set_exception(httpx2.RemoteProtocolError(str(error)))
            self.close()
            return
        if is_whole:
            self._done.set_result(self._answer)
        elif self._answer.is_done:
            loop = asyncio.get_running_loop()
            loop.call_later(_STAYS_OPEN_S, self._stayed_open, self._done, len(self._answer.body))

    def _stayed_open(self, done: asyncio.Future[Answer], length: int) -> None:
        if self._done is done and not done.done() and self._answer and len(self._answer.body) == length:
            self._answer.is_last = True
            done.set_result(self._answer)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self._forget(self)
        if self._answer is None or self._done is None or self._done.done():
            return
        if error is None and self._answer.ended():
            self._done.set_result(self._answer)
        else:
            where = "in the middle of the reply" if self._answer.has_begun else "before the reply"
            self._done.set_exception(httpx2.ReadError(f"connection dropped {where}"))

    def close(self) -> None:
        """At once, whatever is in flight."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()


def _request_bytes(request: httpx2.Request) -> bytes:
    lines = [b"%s %s HTTP/1.1\r\n" % (request.method.encode(), request.url.raw_path)]
    for name, value in request.headers.raw:
        if b"\n" in value or b"\r" in value:
            raise httpx2.LocalProtocolError(f"the header {name.decode()} holds a line break")
        lines.append(b"%s: %s\r\n" % (name, value))
    return b"".join((*lines, b"\r\n", request.content))


class DirectTransport(httpx2.AsyncBaseTransport):
    """Connections to wherever requests go, kept for the next one.

    Args:
        max_idle: how many are kept open unused.
        ssl_context: for https; None makes one with the system's certificates when first needed.
    """

    def __init__(self, max_idle: int, ssl_context: ssl.SSLContext | None = None) -> None:
        self._max_idle = max_idle
        self._ssl_context = ssl_context
        self._idle: dict[tuple[str, str, int], deque[_Connection]] = {}
        self._open: set[_Connection] = set()
        self._opening: set[asyncio.Task[_Connection]] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; the response is read already. Raises httpx2.RequestError."""
        url = request.url
        origin = (url.scheme, url.raw_host.decode(), url.port or (443 if url.scheme == "https" else 80))
        idle_s = request.extensions.get("timeout", {}).get("read")
        answer = await self.exchange(origin, _request_bytes(request), idle_s)
        return httpx2.Response(
            answer.status, headers=answer.headers, content=bytes(answer.body), request=request
        )

    async def exchange(
        self, origin: tuple[str, str, int], message: bytes, idle_s: float | None = None
    ) -> Answer:
        """Send a request's bytes to (scheme, host, port); the answer is read already.

        Raises httpx2.RequestError.
        """
        connection = self._take(origin) or await self._connect(origin)
        try:
            answer = await connection.ask(message, idle_s)
        except BaseException:  # a cancelled call leaves an answer under way: never reuse it
            connection.close()
            raise
        if answer.is_last or not connection.is_open:
            connection.close()
        else:
            self._give_back(origin, connection)
        return answer

    async def aclose(self) -> None:
        """Close every connection; those that are being opened, as soon as they are."""
        if self._opening:
            _, late = await asyncio.wait(tuple(self._opening), timeout=_OPENING_AT_END_S)
            for opening in late:
                opening.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for connection in tuple(self._open):
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # their connection_lost runs now

    def _take(self, origin: tuple[str, str, int]) -> _Connection | None:
        idle = self._idle.get(origin)
        if not idle:
            return None
        stale_before = asyncio.get_running_loop().time() - IDLE_S
        while idle and (not idle[0].is_open or idle[0].idle_since < stale_before):
            idle.popleft().close()
        while idle:
            connection = idle.pop()
            if connection.is_open:
                return connection
        return None

    def _give_back(self, origin: tuple[str, str, int], connection: _Connection) -> None:
        idle = self._idle.setdefault(origin, deque())
        connection.idle_since = asyncio.get_running_loop().time()
        idle.append(connection)
        if len(idle) > self._max_idle:
            idle.popleft().close()

    async def _connect(self, origin: tuple[str, str, int]) -> _Connection:
        """A new connection. A call that is cancelled meanwhile leaves it to the next one.

        Cancelling `create_connection` itself can lose a socket that is connected already.
        """
        if origin[0] not in ("http", "https"):
            raise httpx2.UnsupportedProtocol(f"{origin[0] or 'no scheme'}: neither http nor https")
        opening = asyncio.create_task(self._open_one(origin))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(lambda done: self._keep(origin, done))
            raise

    def _keep(self, origin: tuple[str, str, int], opening: asyncio.Task[_Connection]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._give_back(origin, opening.result())

    async def _open_one(self, origin: tuple[str, str, int]) -> _Connection:
        scheme, host, port = origin
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await loop.create_connection(
                    lambda: _Connection(self._open.discard),
                    host,
                    port,
                    ssl=self._context() if scheme == "https" else None,
                    happy_eyeballs_delay=0.25,
                )
        except TimeoutError:
            raise httpx2.ConnectTimeout("no connection in time") from None
        except ssl.SSLCertVerificationError as error:
            raise httpx2.ConnectError(f"certificate refused: {error.verify_message}") from None
        except socket.gaierror:
            raise httpx2.ConnectError("the host name is unknown") from None
        except (OSError, ssl.SSLError) as error:
            raise httpx2.ConnectError(_why(error)) from None
        self._open.add(connection)
        return connection

    def _context(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            try:
                self._ssl_context = httpx2.create_ssl_context()
            except OSError:  # SSLError, too
                raise httpx2.ConnectError(
                    "the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read"
                ) from None
            self._ssl_context.set_alpn_protocols(["http/1.1"])
        return self._ssl_context


def _why(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError) or "refused" in str(error):
        return "connection refused"
    if isinstance(error, ssl.SSLError):
        return "no TLS there"
    if isinstance(error, ConnectionResetError):  # what is no TLS server does, too, while TLS is begun
        return "no connection (it was reset)"
    return f"no connection ({error.strerror or type(error).__name__})".lower()
