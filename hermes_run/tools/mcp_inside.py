"""A stdio MCP server inside a sandbox, over nothing but `exec`: its messages as the SDK's streams.

The server is a background command: its stdin is the session's FIFO, its stdout a FIFO `out`. A sandbox runs
one command at a time, so nobody waits for the server all the time: while a request of ours is open, each
command gives the server what we have to say and waits for one line of it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import structs

from hermes_run.errors import ToolError
from hermes_run.tools.background import Background
from hermes_run.tools.background_shell import STATUS
from hermes_run.tools.mcp_messages import MOST_MESSAGE, TOO_LONG, messages_of
from hermes_run.tools.shell import PRELUDE, bytes_of, mark, quote, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from hermes_run.core.contracts import ExecResult, Sandbox
    from hermes_run.tools.background import Running

WAIT_S = 180.0
"""How long one message of the server may take."""
_LAST_WORDS = 2_000
_ENDED = "hermes-run:server-ended"

# The variables' values come by stdin, a line each, so that they stand in no file. When the server has ended,
# a line waits for whoever opens `out` after that.
_COMMAND = r"""
d=$HERMES_SESSION
mkfifo "$d/out" || exit 75
{reads}{words} 1<>"$d/out"
echo "$?" >"$d/code"
echo {ended} >"$d/out"
"""
_ALIVE = r"""
status
[ "$c" = running ] || exit 70
"""
_SEND = 'cat >"$d/in" || exit 71\n'
# `out` is open before the server is told anything: a server that ends is then the end of the file. It is told
# from the background, since nobody may be there any more who hears it.
_SEND_AND_WAIT = r"""
until [ -p "$d/out" ]; do sleep 0.01 2>/dev/null || sleep 1; done
{{
cat <&5 >"$d/in" 2>/dev/null 3<&- 5<&- &
IFS= read -r line <&3 || {{ kill "$!" 2>/dev/null; exit 72; }}
[ "$line" != {ended} ] || kill "$!" 2>/dev/null
printf "%s\n" "$line"
}} 3<"$d/out" 5<&0
"""
_LAST = r"""
i=0
until [ -s "$d/code" ] || [ "$i" -ge 20 ]; do sleep 0.05 2>/dev/null || sleep 1; i=$((i + 1)); done
cat "$d/code" || echo unknown
tail -c {most} "$d/log"
"""


class ServerGone(ToolError):
    """The server has ended; the text says what it said last."""


class InsideServer:
    """One server in one sandbox."""

    def __init__(self, sandbox: Sandbox, key: str) -> None:
        self._sandbox = sandbox
        self._background = Background(sandbox, key)
        self._running: Running | None = None

    async def start(self, words: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start it, in the place of one that was started before. Raises ToolError."""
        await self.kill()
        reads = "".join(f"IFS= read -r {name}; export {name}\n" for name in variables)
        said = " ".join(quote(bytes_of(word)) for word in words)
        command = _COMMAND.format(reads=reads, words=said, ended=_ENDED)
        self._running = await self._background.start(command.encode("utf-8", "surrogateescape"))
        values = "".join(f"{value}\n" for value in variables.values())
        if values:
            await self.exchange(values.encode("utf-8", "surrogateescape"), wants_line=False)

    async def exchange(self, data: bytes, *, wants_line: bool) -> bytes:
        """Give it some lines, and wait for one if it is wanted. Raises ServerGone, ToolError."""
        running = self._running
        if running is None:
            raise ServerGone("it was not started")
        body = _ALIVE + (_SEND_AND_WAIT.format(ended=_ENDED) if wants_line else _SEND)
        result = await self._run(running, body, data)
        if result.timed_out:
            await self.kill()
            raise ToolError(
                f"no answer within {WAIT_S:g} s; it was ended, and starts anew with the next call"
            )
        line = result.output
        if result.exit_code or line.strip() == _ENDED.encode():
            raise ServerGone(await self._last_words(running))
        if result.omitted:
            await self.kill()
            raise ToolError(TOO_LONG)
        return line

    async def _run(self, running: Running, body: str, data: bytes = b"") -> ExecResult:
        begin = mark()
        place = f"d={quote(bytes_of(running.folder))}\npid={running.pid}\n"
        result = await self._sandbox.exec(
            f"{PRELUDE}{place}{STATUS}echo {begin}\n{body}",
            timeout_s=WAIT_S,
            stdin=data,
            max_output=MOST_MESSAGE,
        )
        return structs.replace(result, output=result.output.partition(f"{begin}\n".encode())[2])

    async def _last_words(self, running: Running) -> str:
        result = await self._run(running, _LAST.format(most=_LAST_WORDS))
        code, _, log = text_of(result.output).partition("\n")
        said = log.strip().split("\n")[-1][:300]
        return f"it has ended (exit code {code}){': ' if said else ''}{said}"

    async def kill(self) -> None:
        """End it and all it started."""
        if self._running is not None:
            running, self._running = self._running, None
            await self._background.kill(running)


@asynccontextmanager
async def streams(server: InsideServer) -> AsyncIterator[tuple[Any, Any]]:
    """The SDK's two streams over a server that was started."""
    import anyio

    to_session, read_stream = anyio.create_memory_object_stream[Any](100)
    write_stream, from_session = anyio.create_memory_object_stream[Any](100)
    async with anyio.create_task_group() as group, to_session, read_stream, write_stream, from_session:
        group.start_soon(_pump, server, from_session, to_session)
        yield read_stream, write_stream
        group.cancel_scope.cancel()


async def _pump(server: InsideServer, from_session: Any, to_session: Any) -> None:
    """Carry messages while a request is open; sleep otherwise."""
    import anyio

    opened: set[Any] = set()
    while True:
        try:
            messages = [] if opened else [await from_session.receive()]
        except anyio.EndOfStream:
            return  # the session has ended, which says why
        for _ in range(5):  # what the session has to say to what it has just heard
            await anyio.lowlevel.checkpoint()
        while from_session.statistics().current_buffer_used:
            messages.append(from_session.receive_nowait())
        data = b""
        for each in messages:
            if hasattr(each.message, "method") and hasattr(each.message, "id"):
                opened.add(each.message.id)
            data += each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        line = await server.exchange(data, wants_line=bool(opened))
        if line:
            await _deliver(line, opened, to_session)


async def _deliver(line: bytes, opened: set[Any], to_session: Any) -> None:
    """Give the session a line of the server, if it is a message; what else servers print is passed over."""
    from mcp.shared.message import SessionMessage

    for message in messages_of(line, tuple(opened)):
        if not hasattr(message, "method"):
            opened.discard(getattr(message, "id", None))
        await to_session.send(SessionMessage(message))
