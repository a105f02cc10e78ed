"""The filtering proxy: HTTP on a socket of ours, to whatever the gate lets through.

It serves our own client, which shows a token, and the browser, over a socket that exists in the
browser's own network namespace and nowhere else. CONNECT makes a tunnel; a plain request is forwarded,
one for each connection, so that no request can be smuggled to where another one went.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import secrets
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hermes_run.outside.gate import Refused

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine

    from hermes_run.outside.gate import Gate

    Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

REFUSED = "X-Hermes-Run-Refused"
"""Header of the proxy's own answers; its value is the reason."""

HEAD_TIMEOUT_S = 30.0
IDLE_TIMEOUT_S = 120.0
MOST_BYTES = 512 * 2**20
"""Of one connection: an endless stream ends here."""

_MOST_HEAD = 64 * 1024
_PIECE = 64 * 1024
_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authorization proxy-authenticate te trailer upgrade "
    b"expect http2-settings".split()
)


class Proxy:
    """An HTTP proxy over a gate. `start` before use; `close` ends every connection."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._token = secrets.token_urlsafe(24)
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        """Of the proxy for our own client, the token in it; "" before `start`."""
        return f"http://run:{self._token}@127.0.0.1:{self.port}" if self.port else ""

    async def start(self) -> None:
        """Listen on a free port of loopback, for those who have the token."""
        server = await asyncio.start_server(self._serve_ours, "127.0.0.1", 0, limit=_MOST_HEAD)
        self._servers.append(server)
        self.port = server.sockets[0].getsockname()[1]

    async def listen(self, sock: socket.socket) -> None:
        """Serve a listening socket that nobody else can reach, without a token."""
        self._servers.append(await asyncio.start_server(self._serve_anybody, sock=sock, limit=_MOST_HEAD))

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        for server in self._servers:
            server.close()
        for task in tuple(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        self._servers.clear()
        self.port = 0

    async def _serve_ours(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._tracked(reader, writer, f"run:{self._token}")

    async def _serve_anybody(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._tracked(reader, writer, "")

    async def _tracked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, login: str) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._open.add(task)
        try:
            await self._serve((reader, writer), login)
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError):
            pass  # one of the two ends is gone, or never spoke HTTP
        except asyncio.CancelledError:
            pass  # the run ends
        finally:
            self._open.discard(task)
            _drop(writer)

    async def _serve(self, client: Streams, login: str) -> None:
        async with asyncio.timeout(HEAD_TIMEOUT_S):
            head = await client[0].readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        method, target, _ = first.decode("latin-1").split(" ")
        headers = [
            (name.strip(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)
        ]
        if login and not _is_login(headers, login):
            await _answer(client[1], 407, "this proxy is the run's own", "Proxy-Authenticate: Basic\r\n")
            return
        try:
            if method == "CONNECT":
                host, _, port = target.rpartition(":")
                await self._tunnel(client, host, int(port))
            else:
                await self._forward(client, method, target, headers)
        except Refused as refused:
            await _answer(client[1], 403, str(refused))

    async def _tunnel(self, client: Streams, host: str, port: int) -> None:
        server = await self._gate.connect(host, port)
        try:
            client[1].write(b"HTTP/1.1 200 Connected\r\n\r\n")
            await _both(_pipe_to_end(client[0], server[1]), _pipe(server[0], client[1]))
        finally:
            _drop(server[1])

    async def _forward(
        self, client: Streams, method: str, target: str, headers: list[tuple[bytes, bytes]]
    ) -> None:
        named = next((value.decode("latin-1") for name, value in headers if name.lower() == b"host"), "")
        if named.startswith("["):  # some clients leave the brackets out of the target
            target = target.replace(named.replace("[", "").replace("]", ""), named, 1)
        parts = urlsplit(target)
        if parts.scheme != "http" or not parts.hostname:
            raise Refused(f"{target[:80]!r} is no http URL")
        host, port = parts.hostname, parts.port or 80
        kept = [(name, value) for name, value in headers if name.lower() not in _HOP | {b"host"}]
        lengths = {value for name, value in kept if name.lower() == b"content-length"}
        if any(name.lower() == b"transfer-encoding" for name, _ in kept) or len(lengths) > 1:
            raise Refused("a request body of unknown length cannot be sent from here")
        length = int(next(iter(lengths), b"0"))
        server = await self._gate.connect(host, port)
        try:
            path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
            kept = [(b"Host", parts.netloc.rpartition("@")[2].encode()), *kept, (b"Connection", b"close")]
            lines = b"".join(b"%s: %s\r\n" % pair for pair in kept)
            server[1].write(f"{method} {path} HTTP/1.1\r\n".encode("latin-1") + lines + b"\r\n")
            await _both(_pipe(client[0], server[1], length), _forward_answer(server[0], client[1]))
        finally:
            _drop(server[1])


async def _forward_answer(server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
    """Give a server's answer to the client as the last one of its connection."""
    while True:
        async with asyncio.timeout(IDLE_TIMEOUT_S):
            head = await server.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        status = first.split(b" ")[1:2]
        if not status or not status[0].startswith(b"1"):
            break  # interim answers (100, 103) are not for the client
    ours = REFUSED.lower().encode()  # no server speaks for the proxy
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in _HOP | {ours}]
    client.write(b"\r\n".join([first, *kept, b"Connection: close", b"", b""]))
    await _pipe(server, client)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int = MOST_BYTES) -> None:
    """Move bytes until the end, `most` of them, or too long a silence."""
    while most > 0:
        async with asyncio.timeout(IDLE_TIMEOUT_S):
            piece = await reader.read(min(_PIECE, most))
        if not piece:
            break
        most -= len(piece)
        writer.write(piece)
        async with asyncio.timeout(IDLE_TIMEOUT_S):
            await writer.drain()


async def _pipe_to_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Move bytes, then say that there are no more."""
    await _pipe(reader, writer)
    if writer.can_write_eof():
        writer.write_eof()


async def _both(up: Coroutine[None, None, None], down: Coroutine[None, None, None]) -> None:
    """Move bytes both ways, until nothing comes down any more."""
    sending = asyncio.ensure_future(up)
    try:
        await down
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


def _is_login(headers: list[tuple[bytes, bytes]], login: str) -> bool:
    wanted = b"Basic " + base64.b64encode(login.encode())
    given = [value for name, value in headers if name.lower() == b"proxy-authorization"]
    return len(given) == 1 and hmac.compare_digest(given[0], wanted)


async def _answer(writer: asyncio.StreamWriter, status: int, why: str, more: str = "") -> None:
    """An answer of the proxy itself. The reason stands in the status line too: CONNECT shows no more."""
    line = "".join(c if 31 < ord(c) < 127 else "?" for c in why)
    body = f"{why}\n".encode()
    head = (
        f"HTTP/1.1 {status} {line}\r\n{REFUSED}: {line}\r\n{more}Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    async with asyncio.timeout(HEAD_TIMEOUT_S):
        await writer.drain()


def _drop(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()
