"""A connection to one MCP server, kept by a task of its own: the SDK's session wants to live in one task."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hermes_run.core.text import restore
from hermes_run.errors import HermesRunError, ToolError
from hermes_run.spec.model import McpServer
from hermes_run.tools import mcp_host
from hermes_run.tools.last_words import LastWords
from hermes_run.tools.mcp_inside import InsideServer, streams
from hermes_run.tools.mcp_messages import MOST_MESSAGE, bounded, first_fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    import httpx2

    from hermes_run.core.contracts import Sandbox

START_S = 60.0
CALL_S = 180.0
_MOST_PAGES = 50
_MOST_WORDS = 300
_SDK_CLOSED = "Connection closed"
_SDK_SAYS = "Failed to parse JSON response: "


class Reach(Struct, frozen=True):
    """How a server is reached.

    Attributes:
        server: as the spec names it.
        variables: what it is given of the environment.
        folder: where a server outside the sandbox starts.
        proxy: URL of the HTTP proxy on the way to its address, or "".
    """

    server: McpServer
    variables: dict[str, str]
    folder: Path
    proxy: str = ""

    @property
    def is_inside(self) -> bool:
        """Whether it runs in the sandbox."""
        return self.server.url is None and not self.server.host


class Connection:
    """See the module.

    Args:
        reach: which server, and how.
        sandbox: where it runs; None for one that does not run in a sandbox.
        key: names its folder in the sandbox.
    """

    def __init__(self, reach: Reach, sandbox: Sandbox | None, key: str) -> None:
        self._reach = reach
        self._inside = InsideServer(sandbox, key) if sandbox is not None and reach.is_inside else None
        self._jobs: asyncio.Queue[tuple[Callable[[Any], Awaitable[Any]], asyncio.Future[Any]]] = (
            asyncio.Queue()
        )
        self._task: asyncio.Task[None] | None = None
        self._words: LastWords | None = None
        self._status = ""

    async def list_tools(self) -> list[Any]:
        """The SDK's Tools of the server. Raises ToolError."""

        async def ask(session: Any) -> list[Any]:
            from mcp import types

            tools: list[Any] = []
            cursor = None
            for _ in range(_MOST_PAGES):
                page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
                tools += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
            return tools

        found: list[Any] = await self._do(ask, START_S)
        return found

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The SDK's CallToolResult. Raises ToolError."""
        return await self._do(lambda session: session.call_tool(name, dict(arguments)), CALL_S)

    async def _do(self, job: Callable[[Any], Awaitable[Any]], most_s: float) -> Any:
        if self._task is None or self._task.done():
            self._jobs = asyncio.Queue()
            self._task = asyncio.create_task(self._live(self._jobs))
        task, self._status = self._task, ""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait((job, answer))
        try:
            async with asyncio.timeout(most_s):
                await asyncio.wait({task, answer}, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await self.aclose()
            raise ToolError(
                f"no answer within {most_s:g} s; it was ended, and starts anew with the next call"
            ) from None
        except asyncio.CancelledError:
            task.cancel()  # so that it holds no sandbox any longer
            raise
        if answer.done():
            return answer.result()
        raise _reason(task.exception(), self._status or (self._words.line if self._words is not None else ""))

    async def _live(self, jobs: asyncio.Queue[Any]) -> None:
        from mcp import ClientSession, MCPError

        async with (
            self._streams() as (read_stream, write_stream),
            ClientSession(read_stream, write_stream) as session,
        ):
            await session.initialize()
            while True:
                job, answer = await jobs.get()
                try:
                    result = await job(session)
                except MCPError as error:
                    if self._is_lost(error):
                        raise
                    if not answer.done():
                        answer.set_exception(ToolError(self._said(error)))
                except (ValueError, RuntimeError) as error:  # an answer that the SDK finds unsound
                    if not answer.done():
                        answer.set_exception(ToolError(f"its answer cannot be used: {first_fault(error)}"))
                else:
                    if not answer.done():
                        answer.set_result(result)

    def _is_lost(self, error: Any) -> bool:
        """Whether the connection is of no use any more; over HTTP a server may have forgotten it (404).

        The SDK's code of a lost connection (-32000) is what many servers give their own errors.
        """
        from mcp import types

        is_closed = error.code == types.CONNECTION_CLOSED and error.message == _SDK_CLOSED
        return is_closed or self._status == "HTTP 404"

    def _said(self, error: Any) -> str:
        """What a request failed with."""
        from mcp import types

        text = restore(str(error.message)).strip().removeprefix(_SDK_SAYS).split("\n")[0][:_MOST_WORDS]
        if error.code == types.PARSE_ERROR:
            return f"its answer cannot be read: {text}"
        if error.code == types.CONNECTION_CLOSED:  # no answer, or the server's own trouble
            return f"it failed: {text or 'it does not say why'}"
        return f"the server refuses: {text}{f' ({self._status})' if self._status else ''}"

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[tuple[Any, Any]]:
        server = self._reach.server
        if self._inside is not None:
            await self._inside.start([server.command or "", *server.args], self._reach.variables)
            async with streams(self._inside) as both:
                yield both
        elif server.url is not None:
            async with self._over_http(server.url) as both:
                yield both
        else:
            command = [server.command or "", *server.args]
            async with LastWords() as words:
                self._words = words
                variables, folder = self._reach.variables, self._reach.folder
                async with mcp_host.streams(command, variables, folder, words.stream) as both:
                    yield both

    @asynccontextmanager
    async def _over_http(self, url: str) -> AsyncIterator[tuple[Any, Any]]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        client = httpx2.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            proxy=self._reach.proxy or None,
            timeout=httpx2.Timeout(30.0, read=CALL_S),
            headers={"Accept-Encoding": "identity"},
            event_hooks={"response": [self._look_at]},
        )
        reached = streamable_http_client(url, http_client=client, max_sse_event_size=MOST_MESSAGE)
        async with client, reached as both:
            yield both

    async def _look_at(self, response: httpx2.Response) -> None:
        """Note a refusal, which the SDK does not tell; bound what is read whole."""
        if response.status_code >= 400 and response.request.method == "POST":
            self._status = f"HTTP {response.status_code}"
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            response.stream = bounded(response)

    async def aclose(self) -> None:
        """End the connection; a server in the sandbox ends too."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None


def _reason(error: BaseException | None, last_words: str) -> HermesRunError:
    """What a model is told, or what ends the rollout, of the failure of a connection.

    `last_words` are those of a server outside the sandbox, or the status that it answered over HTTP.
    """
    while isinstance(error, BaseExceptionGroup):
        ours = error.subgroup(HermesRunError)
        error = (ours or error).exceptions[0]
    if isinstance(error, HermesRunError):
        return error
    text = str(getattr(error, "message", "")) or (first_fault(error) if isinstance(error, Exception) else "")
    if isinstance(error, FileNotFoundError):
        text = f"there is no {error.filename}"
    said = f": {last_words}" if last_words else ""
    first = text.partition("\n")[0][:_MOST_WORDS]
    return ToolError(f"it cannot be reached or has ended: {first}{said}")
