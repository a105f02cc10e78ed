"""A stdio MCP server outside the sandbox: a process of this machine, its messages as the SDK's streams.

Not the SDK's own transport: that one reads lines of any length, lets a request wait for ever whose answer
it cannot read, and leaves alive what a server has started.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from hermes_run.errors import ToolError
from hermes_run.tools.mcp_messages import MOST_MESSAGE, TOO_LONG, messages_of
from hermes_run.tools.programs import end_program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path
    from typing import TextIO

_LAUNCH = """
import os, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)
except (ImportError, OSError, AttributeError):
    pass
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error.strerror}")
"""
"""Starts a program that is killed when the runner is (PR_SET_PDEATHSIG), which would end it otherwise."""

END_S = 2.0
"""How long a server may take to end by itself once its stdin is closed."""


@asynccontextmanager
async def streams(
    words: Sequence[str], variables: Mapping[str, str], folder: Path, errors: TextIO
) -> AsyncIterator[tuple[Any, Any]]:
    """The SDK's two streams over a server that is started here, and ended with all that it started.

    Args:
        words: its command.
        variables: what it gets beside the few plain ones that the SDK gives every server.
        folder: where it starts.
        errors: its stderr.

    Raises:
        OSError: its folder is not there.
        ToolError: it said something too long.
    """
    import anyio
    from mcp.client.stdio import get_default_environment

    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        "-c",
        _LAUNCH,
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        env={**get_default_environment(), **variables},
        cwd=folder,
        start_new_session=True,
        limit=MOST_MESSAGE,
    )
    try:
        to_session, read_stream = anyio.create_memory_object_stream[Any](100)
        write_stream, from_session = anyio.create_memory_object_stream[Any](100)
        opened: set[Any] = set()
        async with anyio.create_task_group() as group, read_stream, write_stream:
            group.start_soon(_hear, process, opened, to_session)
            group.start_soon(_tell, process, opened, from_session)
            yield read_stream, write_stream
            group.cancel_scope.cancel()
    finally:
        await asyncio.shield(asyncio.ensure_future(end_program(process, patience_s=END_S)))


async def _hear(process: asyncio.subprocess.Process, opened: set[Any], to_session: Any) -> None:
    """Give the session what the server says, until it ends."""
    import anyio
    from mcp.shared.message import SessionMessage

    if process.stdout is None:
        raise AssertionError("it was started with pipes")
    async with to_session:
        while True:
            try:
                line = await process.stdout.readuntil(b"\n")
            except asyncio.LimitOverrunError:
                raise ToolError(TOO_LONG) from None
            except (asyncio.IncompleteReadError, OSError):
                return
            for message in messages_of(line, tuple(opened)):
                if not hasattr(message, "method"):
                    opened.discard(getattr(message, "id", None))
                try:
                    await to_session.send(SessionMessage(message))
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return  # nobody listens any more


async def _tell(process: asyncio.subprocess.Process, opened: set[Any], from_session: Any) -> None:
    """Give the server what the session says."""
    if process.stdin is None:
        raise AssertionError("it was started with pipes")
    async with from_session:
        async for each in from_session:
            if hasattr(each.message, "method") and hasattr(each.message, "id"):
                opened.add(each.message.id)
            process.stdin.write(
                each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
            )
            with contextlib.suppress(OSError):  # it has ended: the other direction tells
                await process.stdin.drain()
