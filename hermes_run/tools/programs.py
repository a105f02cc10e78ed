"""Programs of this machine that were started with pipes: ended so that nothing waits for them for ever."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

END_S = 2.0
"""How long the end of a program that was killed is waited for; what left its group may hold its pipes."""


async def end_program(process: asyncio.subprocess.Process, *, patience_s: float = 0.0) -> None:
    """End a program, and what it started if it leads a process group of its own.

    asyncio tells nobody of the end of a program as long as it has something to say that nobody reads; so
    that is read, and passed over.

    Args:
        process: started here; it may have ended already.
        patience_s: how long it may take to end by itself once its stdin is closed, in seconds.
    """
    if process.stdin is not None:
        process.stdin.close()
    rest = asyncio.ensure_future(_pass_over(process.stdout))
    try:
        if patience_s:
            await _ended(process, patience_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if _leads_a_group(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        await _ended(process, END_S)
    finally:
        rest.cancel()
        # Pipes that somebody else still holds would be closed after the loop, with a traceback on stderr.
        # asyncio has no public name for the one who closes them.
        process._transport.close()  # type: ignore[attr-defined] # noqa: SLF001


def _leads_a_group(pid: int) -> bool:
    """Whether there is a group of that number, other than this program's own."""
    if pid == os.getpgrp():
        return False
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, 0)
        return True
    return False


async def _pass_over(stream: asyncio.StreamReader | None) -> None:
    while stream is not None and await stream.read(2**16):
        pass


async def _ended(process: asyncio.subprocess.Process, most_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            await process.wait()
