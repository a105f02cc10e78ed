"""A model endpoint on loopback for tests: scripted replies by a marker in the prompt, faults, a log.

::

    with ModelServer() as server:
        server.script("[k1]", says(calls=[("terminal", {"command": "ls"})]), says("done"))
        server.script("[k2]", fails(500), says("at last"))
        ... run something against server.url ...
        assert [r.prompt for r in server.requests] == [...]

Replies of a marker are taken in order, whichever connection asks; the last one repeats. `respond` (a
function of the request) is asked first. Without either, the answer is the text "ok".
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Drop = str
"""`before` (no byte), `middle` (half of the body, then a reset), `hang` (never answers)."""


@dataclass(frozen=True)
class Answer:
    """What the server does with one request. `is_chunked` sends the body in small chunks."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    until: threading.Event | None = None
    """It is held back until this is set: a test's own end of waiting, whatever the load."""
    drop: Drop = ""
    is_chunked: bool = False
    closes: bool = False
    """Announces `Connection: close` and does so."""
    pieces: tuple[bytes, ...] = ()
    """The body in chunks of its own, with `pause_s` before each."""
    pause_s: float = 0.0
    raw: tuple[bytes, ...] = ()
    """Instead of all this: these bytes, one after the other, then the end of the connection (or a `hang`)."""


@dataclass(frozen=True)
class Request:
    """What the server received."""

    method: str
    path: str
    headers: dict[str, str]
    """With lower-case names."""
    body: bytes
    arrived_at: float
    """`time.monotonic`."""
    connection: int
    """Number of the connection that it came by."""

    @property
    def json(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed

    @property
    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.json["messages"]
        return found

    @property
    def prompt(self) -> str:
        """The texts of all user messages (prefill has some too), where markers are looked for."""
        return "\n".join(str(m["content"]) for m in self.messages if m["role"] == "user")

    @property
    def turn(self) -> int:
        """How many assistant messages it holds."""
        return sum(m["role"] == "assistant" for m in self.messages)


USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def says(
    text: str | None = "ok",
    *,
    calls: Sequence[tuple[str, Any]] = (),
    finish_reason: str | None = None,
    usage: Mapping[str, Any] | None = USAGE,
    delay_s: float = 0.0,
    until: threading.Event | None = None,
    **message: Any,
) -> Answer:
    """A chat completion. `message` are further fields of the assistant message (`reasoning`, …)."""
    message = {"role": "assistant", "content": text, **message}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"c{place}",
                "type": "function",
                "function": {"name": name, "arguments": a if isinstance(a, str) else json.dumps(a)},
            }
            for place, (name, a) in enumerate(calls)
        ]
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": finish_reason or ("tool_calls" if calls else "stop"),
    }
    reply: dict[str, Any] = {"id": "x", "object": "chat.completion", "model": "served", "choices": [choice]}
    if usage is not None:
        reply["usage"] = dict(usage)
    return Answer(body=json.dumps(reply).encode(), delay_s=delay_s, until=until)


def fails(status: int, message: str = "no", headers: Mapping[str, str] | None = None, **error: Any) -> Answer:
    """An error answer; `error` are further fields of its error object (`code`, `param`, `metadata`)."""
    body = json.dumps({"error": {"message": message, **error}}).encode()
    return Answer(status=status, body=body, headers=headers or {})


def events(*chunks: Mapping[str, Any], pause_s: float = 0.0, is_done: bool = True) -> Answer:
    """A stream of server-sent events, one for each chunk, with a pause before each."""
    lines = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]
    if is_done:
        lines.append(b"data: [DONE]\n\n")
    return Answer(
        body=b"".join(lines),
        headers={"Content-Type": "text/event-stream"},
        pieces=tuple(lines),
        pause_s=pause_s,
    )


class ModelServer:
    """See the module. A context manager; its loop runs in a thread of its own.

    Attributes:
        requests: all chat requests, in the order of their arrival.
        peak_in_flight: most requests under way at once.
        open_connections: how many there are now.
        respond: asked before the scripts; None passes on to them.
    """

    def __init__(self, port: int = 0) -> None:
        self.requests: list[Request] = []
        self.peak_in_flight = 0
        self.open_connections = 0
        self.respond: Callable[[Request], Answer | None] = lambda _: None
        self._in_flight = 0
        self._connections = 0
        self._scripts: dict[str, list[Answer]] = {}
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def port(self) -> int:
        number: int = self._socket.getsockname()[1]
        return number

    @property
    def url(self) -> str:
        """The base URL of the API."""
        return f"http://127.0.0.1:{self.port}/v1"

    def script(self, marker: str, *answers: Answer) -> None:
        """What prompts with `marker` get, in order; the last one repeats."""
        with self._lock:
            self._scripts[marker] = list(answers)

    def asked(self, marker: str) -> list[Request]:
        """The requests whose prompt holds `marker`."""
        return [request for request in self.requests if marker in request.prompt]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(10)

    def _stop(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serve())
        late = asyncio.all_tasks(self._loop)
        self._loop.run_until_complete(asyncio.wait(late, timeout=5) if late else asyncio.sleep(0))
        self._loop.run_until_complete(asyncio.sleep(0))  # what was closed is closed now
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        self._socket.close()  # one that was stopped before it served

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connection, sock=self._socket, limit=64 * 2**20)
        async with server:
            await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        self.open_connections += 1
        number = self._connections
        try:
            while (request := await self._read(reader, number)) is not None:
                self._in_flight += 1
                self.peak_in_flight = max(self.peak_in_flight, self._in_flight)
                try:
                    is_kept = await self._answer(request, writer)
                finally:
                    self._in_flight -= 1
                if not is_kept:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open_connections -= 1
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader, number: int) -> Request | None:
        try:
            first_byte = await reader.readexactly(1)
            if first_byte == b"\x16":  # TLS, which is not spoken here
                return None
            head = (first_byte + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.rstrip().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        request = Request(method, path, headers, body, time.monotonic(), number)
        self.requests.append(request)
        return request

    def _choose(self, request: Request) -> Answer:
        answer = self.respond(request)
        if answer is not None:
            return answer
        with self._lock:
            for marker, answers in self._scripts.items():
                if marker in request.prompt:
                    return answers.pop(0) if len(answers) > 1 else answers[0]
        return says()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        answer = self._choose(request)
        if answer.delay_s:
            await asyncio.sleep(answer.delay_s)
        while answer.until is not None and not answer.until.is_set():  # noqa: ASYNC110 - it is set in a thread
            await asyncio.sleep(0.02)
        if answer.drop == "hang" and not answer.raw:
            await asyncio.sleep(3600)
        if answer.drop == "before":
            return False
        if answer.raw:
            for piece in answer.raw:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            await asyncio.sleep(3600 if answer.drop == "hang" else 0)
            return False
        headers = {"Content-Type": "application/json", **answer.headers}
        if answer.closes:
            headers["Connection"] = "close"
        if answer.is_chunked or answer.pieces:
            headers["Transfer-Encoding"] = "chunked"
        else:
            headers["Content-Length"] = str(len(answer.body))
        head = (
            f"HTTP/1.1 {answer.status} X\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n"
        )
        if answer.drop == "middle":
            writer.write(head.encode("latin-1") + answer.body[: len(answer.body) // 2])
            await writer.drain()
            _reset(writer)
            return False
        if answer.pieces:
            writer.write(head.encode("latin-1"))
            for piece in answer.pieces:
                await asyncio.sleep(answer.pause_s)
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return not answer.closes
        body = _chunked(answer.body) if answer.is_chunked else answer.body
        writer.write(head.encode("latin-1") + body)  # one write: two would wait for an acknowledgement
        await writer.drain()
        return not answer.closes


def _chunked(body: bytes) -> bytes:
    chunks = [body[at : at + 7] for at in range(0, len(body), 7)]
    return (
        b"".join(b"%x;ext=1\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
        + b"0\r\nX-Trailer: 1\r\n\r\n"
    )


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
