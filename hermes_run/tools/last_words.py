"""What a program outside the sandbox says on its stderr: the end of it, for whoever has to mend it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Self, TextIO

_MOST_BYTES = 2_000
_MOST_CHARS = 300
_END_S = 1.0
"""A program that has ended may have left another one that holds its stderr."""


class LastWords(asyncio.Protocol):
    """An asynchronous context manager; `stream` is the stderr that the program is given."""

    stream: TextIO
    _transport: asyncio.ReadTransport

    def __init__(self) -> None:
        self._said = b""
        self._ended = asyncio.Event()

    async def __aenter__(self) -> Self:
        reading, writing = os.pipe()
        self.stream = os.fdopen(writing, "w")
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(lambda: self, os.fdopen(reading, "rb"))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stream.close()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await self._ended.wait()
        finally:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Keep the end of what was said."""
        self._said = (self._said + data)[-_MOST_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody can say more."""
        del exc
        self._ended.set()

    @property
    def line(self) -> str:
        """The last line that holds anything, or ""."""
        lines = self._said.decode("utf-8", "replace").split("\n")
        return next((line.strip()[:_MOST_CHARS] for line in reversed(lines) if line.strip()), "")
