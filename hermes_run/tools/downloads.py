"""What pages offer for download in one rollout: put into its sandbox, bounded in size, number and time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from typing import TYPE_CHECKING, Any

from hermes_run.errors import ToolError
from hermes_run.tools.shell import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from playwright.async_api import Download

    from hermes_run.core.contracts import ToolSession

DOWNLOAD_TIMEOUT_S = 30.0
MOST_DOWNLOAD = 20 * 2**20
DOWNLOADS = "downloads"
DOWNLOADS_AT_ONCE = 3
MOST_DOWNLOADS = 50

_QUIETLY_S = 10.0


class Downloads:
    """Of one rollout. `note` takes what happened, for the model."""

    def __init__(self, session: ToolSession, note: Callable[[str], None]) -> None:
        self._session = session
        self._note = note
        self._running: set[asyncio.Task[None]] = set()
        self._refusing: set[asyncio.Task[None]] = set()
        self._begun = 0

    @property
    def is_any(self) -> bool:
        """Whether a download began since the last `finish`."""
        return bool(self._running)

    def begin(self, download: Download) -> None:
        """A page offers a file."""
        self._begun += 1
        if len(self._running) >= DOWNLOADS_AT_ONCE or self._begun > MOST_DOWNLOADS:
            self._note("the page offered more downloads than are kept")
            task = asyncio.ensure_future(quietly(download.cancel()))
            self._refusing.add(task)
            task.add_done_callback(self._refusing.discard)
        else:
            self._running.add(asyncio.ensure_future(self._save(download)))

    async def finish(self) -> None:
        """Wait for those that have begun."""
        begun = set(self._running)
        await asyncio.gather(*begun)
        self._running -= begun

    async def close(self) -> None:
        """Give up what goes on."""
        tasks = [*self._running, *self._refusing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _save(self, download: Download) -> None:
        """Put a downloaded file into the sandbox."""
        from playwright.async_api import Error

        name = (
            re.sub(r"[^A-Za-z0-9._-]+|\.\.+", "_", download.suggested_filename)[-100:].lstrip("._") or "file"
        )
        try:
            async with asyncio.timeout(DOWNLOAD_TIMEOUT_S):
                path = await download.path()
            self._note(await self._put(name, _read_plain(str(path))))
        except (Error, OSError, TimeoutError, ToolError) as error:
            why = str(error) if isinstance(error, ToolError) else "it did not arrive"
            self._note(f"the file {name} was offered for download and not kept: {why}")
            await quietly(download.cancel())
        await quietly(download.delete())

    async def _put(self, name: str, data: bytes) -> str:
        """Write a downloaded file; what to say about it. Raises ToolError."""
        target = f"{DOWNLOADS}/{name}"
        script = f"mkdir -p {DOWNLOADS} && cat >{quote(target.encode())}"
        done = await self._session.sandbox.exec(script, stdin=data, timeout_s=60)
        if done.exit_code:
            raise ToolError("it cannot be written there")
        return f"a file was downloaded to {target} ({len(data)} bytes)"


async def quietly(work: Coroutine[Any, Any, Any]) -> None:
    """Ask the browser for something whose failure changes nothing."""
    from playwright.async_api import Error

    with contextlib.suppress(Error, TimeoutError):
        async with asyncio.timeout(_QUIETLY_S):
            await work


def _read_plain(path: str) -> bytes:
    """A downloaded file, which the jail wrote: no link is followed out of it. Raises ToolError."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(file, "rb") as stream:
        about = os.fstat(stream.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise ToolError("it is no file")
        if about.st_size > MOST_DOWNLOAD:
            raise ToolError(f"it is larger than {MOST_DOWNLOAD >> 20} MiB")
        return stream.read()
