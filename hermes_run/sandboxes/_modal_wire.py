"""The three streams of one process in a Modal sandbox, as the stream shell wants them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes_run.sandboxes._modal_account import troubles

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hermes_run.sandboxes._stream_wire import Reader

_CHUNK = 4 << 20
"""Bytes of one write; the SDK takes 16 MiB at most."""
_LITTLE = 1 << 20
"""Bytes that may be queued before a writer is asked to wait."""
_MOST_RESTARTS = 1000
_SHORT_LIFE_S = 0.5
_MOST_SHORT_LIVES = 5


class ModalWire:
    """See `Wire`.

    Args:
        process: the SDK's ContainerProcess, which gives bytes.
        restart: starts another in the place of one that was killed while the sandbox lives, or returns
            None when it does not; without it, the end of the process is the end of the wire.
    """

    def __init__(self, process: Any, restart: Callable[[], Awaitable[Any]] | None = None) -> None:
        self._process = process
        self._restart = restart
        self._reader: Reader | None = None
        self._first_line = b""
        self._queued = bytearray()
        self._is_eof_wanted = False
        self._has_work = asyncio.Event()
        self._is_drained = asyncio.Event()
        self._is_drained.set()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._is_over = False
        self._writing = asyncio.ensure_future(self._write())
        self._living: asyncio.Future[None] | None = None

    def attach(self, reader: Reader) -> None:
        """See Wire. The SDK reads nothing before it is asked."""
        self._reader = reader
        self._living = asyncio.ensure_future(self._live())

    def send(self, data: bytes) -> None:
        """See Wire."""
        if self._is_over:
            return
        self._first_line = self._first_line or data
        self._queued += data
        if len(self._queued) > _LITTLE:
            self._is_drained.clear()
        self._has_work.set()

    def send_eof(self) -> None:
        """See Wire."""
        self._is_eof_wanted = True
        self._has_work.set()

    async def drained(self) -> None:
        """See Wire."""
        await self._is_drained.wait()

    def pause(self) -> None:
        """See Wire."""
        self._may_read.clear()

    def resume(self) -> None:
        """See Wire."""
        self._may_read.set()

    def close(self) -> None:
        """See Wire. What is being read ends with the process."""
        self._reader = None
        self._stop()

    def end(self) -> None:
        """The sandbox is known to be gone."""
        reader = self._reader
        self.close()
        if reader is not None:
            reader.on_end()

    async def ended(self, longest_s: float) -> None:
        """Wait for the end of what is being read, and give it up after a while.

        The SDK complains on stderr of a read that is given up just when it ends.
        """
        if self._living is not None:
            await asyncio.wait([self._living], timeout=longest_s)
            self._living.cancel()

    def _stop(self) -> None:
        self._is_over = True
        self._queued.clear()
        self._is_drained.set()
        self._may_read.set()
        self._writing.cancel()

    async def _live(self) -> None:
        """Read until the end, over restarts."""
        loop = asyncio.get_running_loop()
        short_lives = 0
        for _ in range(_MOST_RESTARTS):
            began = loop.time()
            await self._read_both()
            short_lives = short_lives + 1 if loop.time() - began < _SHORT_LIFE_S else 0
            if self._is_over or self._restart is None or short_lives > _MOST_SHORT_LIVES:
                break
            if not await self._start_again():
                break
        self.end()

    async def _start_again(self) -> bool:
        self._writing.cancel()
        process = await self._restart() if self._restart is not None else None
        reader = self._reader
        if process is None or reader is None:
            return False
        self._process = process
        self._queued[:] = self._first_line
        self._has_work.set()
        self._writing = asyncio.ensure_future(self._write())
        reader.on_restart()
        return True

    async def _read_both(self) -> None:
        reader = self._reader
        if reader is None:
            return
        await asyncio.gather(
            self._read(self._process.stdout, reader.on_output),
            self._read(self._process.stderr, reader.on_control),
        )

    async def _read(self, stream: Any, tell: Callable[[bytes], None]) -> None:
        try:
            async for data in stream:
                await self._may_read.wait()
                if self._reader is None:
                    return
                tell(data)
        except troubles():  # gone, which is an end
            return

    async def _write(self) -> None:
        stdin = self._process.stdin
        try:
            while True:
                await self._has_work.wait()
                self._has_work.clear()
                while self._queued:
                    data = bytes(self._queued[:_CHUNK])
                    del self._queued[:_CHUNK]
                    stdin.write(data)
                    await stdin.drain.aio()
                    if len(self._queued) <= _LITTLE:
                        self._is_drained.set()
                if self._is_eof_wanted:
                    stdin.write_eof()
                    await stdin.drain.aio()
                    return
        except troubles():  # it reads no more, or is gone: reading tells which
            self._queued.clear()
            self._is_drained.set()
