"""Ends that are reached: of removals that are cancelled, and of processes that were killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Coroutine

_REAP_S = 5.0
_POLL_S = 0.005


async def to_the_end(work: Coroutine[object, object, None]) -> None:
    """Await `work`; when cancelled meanwhile, finish it first and then be cancelled."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])  # unlike a shield, it is cancelled by nobody but our caller
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()
        raise cancelled
    task.result()


async def reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of a killed process, five seconds at most."""
    if process.poll() is not None:
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REAP_S):
            if hasattr(os, "pidfd_open"):
                await _ended(process.pid)
            while process.poll() is None:  # noqa: ASYNC110 - nobody signals the end of a process
                await asyncio.sleep(_POLL_S)


async def _ended(pid: int) -> None:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    watch = os.pidfd_open(pid)

    def end() -> None:
        if not over.done():
            over.set_result(None)

    loop.add_reader(watch, end)
    try:
        await over
    finally:
        loop.remove_reader(watch)
        os.close(watch)
