"""Work that blocks and that nobody has to wait for."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


async def apart(work: Callable[[], _T]) -> _T:
    """Do `work` in a thread of its own, which is left behind when its caller is cancelled.

    An executor's threads are waited for at the end of the process, so that a registry that says nothing for
    minutes would hold up a run that is over.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()
    threading.Thread(target=_run, args=(loop, done, work), daemon=True, name="apart").start()
    return await done


def _run(loop: asyncio.AbstractEventLoop, done: asyncio.Future[_T], work: Callable[[], _T]) -> None:
    results: list[_T] = []
    with contextlib.suppress(Exception):  # it is told to whoever waits
        try:
            results.append(work())
        finally:
            error = sys.exc_info()[1]
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_tell, done, results, error)


def _tell(done: asyncio.Future[_T], results: list[_T], error: BaseException | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(results[0])
