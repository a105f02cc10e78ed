"""What is too big for the wire of a stream shell goes by a process of its own beside it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from hermes_run.errors import SandboxError, ToolError
from hermes_run.sandboxes._script import quote
from hermes_run.sandboxes._spill import KEPT, SUFFIXES

if TYPE_CHECKING:
    from hermes_run.sandboxes._stream_wire import StreamPlace, Wire

_OPEN_S = 30.0
_STALL_S = 30.0
"""How long what was written may stay unread before it is given up."""
_CHUNK = 1 << 18
_MOST_WAITING = 4 << 20
"""Bytes of an output that the runner holds for its file before it lets the command wait."""
_MOST_SAID = 4096
_BEGIN = "hermes-run-begins"


class _Side:
    """A process beside the shell: its words, and its end.

    What the image's sh itself has to say comes before `_BEGIN`, and is no part of its words.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._heard = b""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.has_news = asyncio.Event()
        wire.attach(self)

    @classmethod
    async def start(cls, place: StreamPlace, text: str) -> Self:
        """Have `text` run. Raises as `StreamPlace.side`."""
        return cls(await place.side(f"echo {_BEGIN}; {text}"))

    @property
    def said(self) -> bytes:
        return self._heard.partition(f"{_BEGIN}\n".encode())[2]

    def on_output(self, data: bytes) -> None:
        self._heard = (self._heard + data)[-_MOST_SAID:]
        if self.said:
            self.has_news.set()

    def on_control(self, data: bytes) -> None:
        """What it complains of is in its status."""

    def on_restart(self) -> None:
        """It is never started again."""

    def on_end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        self.has_news.set()

    async def feed(self, data: bytes) -> None:
        """Write `data` as fast as it is read, then the end."""
        piece = memoryview(data)
        while piece and not self.ended.done():
            self.wire.send(bytes(piece[:_CHUNK]))
            piece = piece[_CHUNK:]
            await self.wire.drained()
        self.wire.send_eof()


async def put_file(place: StreamPlace, path: str, data: bytes) -> None:
    """Write a file inside. Raises ToolError when the sandbox has no room for it."""
    text = f"cat >{_word(path)} && echo written"
    side = await _Side.start(place, text)
    try:
        async with asyncio.timeout(_OPEN_S):
            await side.feed(data)
            await side.ended
    except TimeoutError:
        pass
    finally:
        side.wire.close()
    if side.said != b"written\n":
        raise ToolError(
            "the sandbox has no room for the command: end processes that are not needed, or empty"
            f" {place.folder}"
        )


class SideInput:
    """Feeds a command's stdin through a named pipe. Who stops reading it early loses but the rest."""

    def __init__(self, side: _Side, data: bytes) -> None:
        self._side = side
        self._task = asyncio.ensure_future(side.feed(data))

    @classmethod
    async def open(cls, place: StreamPlace, pipe: str, data: bytes) -> Self:
        """Make the pipe `pipe`, and begin to feed it. Raises ToolError when there is no room for that."""
        word = _word(pipe)
        side = await _Side.start(place, f"mkfifo -m 600 {word} && echo made; exec cat >{word}")
        try:
            async with asyncio.timeout(_OPEN_S):
                await side.has_news.wait()
        except TimeoutError:
            pass
        if not side.said.startswith(b"made"):
            side.wire.close()
            raise ToolError(
                "the sandbox has no room for what reads the input: end processes that are not needed"
            )
        return cls(side, data)

    def close(self) -> None:
        """Give everything back; what was not written is lost."""
        self._task.cancel()
        self._side.wire.close()


class SideSpills:
    """Keeps whole outputs in files of the sandbox. See `BoundedOutput` and `SpillFolder`.

    Names are new and no link is followed: `noclobber` opens with O_EXCL what is not there.
    """

    def __init__(self, place: StreamPlace) -> None:
        self._place = place
        self._number = 0
        self._kept: list[str] = []
        self._current: _SideSpill | None = None

    def open(self) -> _SideSpill:
        """A new file for an output that is too long."""
        self._number += 1
        oldest = self._kept.pop(0) if len(self._kept) >= KEPT else ""
        names = [f"{self._place.spills}/output-{self._number}{suffix}.txt" for suffix in SUFFIXES]
        self._current = _SideSpill(self._place, names, oldest)
        return self._current

    def is_congested(self) -> bool:
        """Whether more waits to be written than the runner wants to hold."""
        return self._current is not None and self._current.backlog > _MOST_WAITING

    def close(self) -> None:
        """Give up what is being written."""
        if self._current is not None:
            self._current.give_up()

    async def finish(self) -> None:
        """Wait until the file of the call that has ended is whole."""
        spill, self._current = self._current, None
        if spill is not None:
            path = await spill.finish()
            if path:
                self._kept.append(path)


class _SideSpill:
    """One output's file, written by a process that is started when there is something to write."""

    def __init__(self, place: StreamPlace, names: list[str], oldest: str) -> None:
        self._place = place
        self._names = names
        self._oldest = oldest
        self._room = place.most_spilled
        self._waiting: list[bytes] = []
        self.backlog = 0
        self._is_finished = False
        self._news = asyncio.Event()
        self._path = ""
        self._task = asyncio.ensure_future(self._write())

    def write(self, data: bytes) -> None:
        """Add what there is room for."""
        piece = data[: self._room]
        if piece:
            self._room -= len(piece)
            self._waiting.append(piece)
            self.backlog += len(piece)
            self._news.set()

    def give_up(self) -> None:
        """Write no more."""
        self._task.cancel()

    async def finish(self) -> str:
        """Wait until all is written; the file's path inside the sandbox, or ""."""
        self._is_finished = True
        self._news.set()
        self._path = await self._task
        return self._path

    def close(self) -> str:
        """The file's path inside, or "" when the sandbox had no room for it."""
        return self._path

    async def _write(self) -> str:
        remove = f"rm -f {_word(self._oldest)}; " if self._oldest else ""
        names = " ".join(map(_word, self._names))
        text = (
            f"{remove}set -C; for f in {names}; do if ( : >$f ) 2>/dev/null; then"
            ' set +C; cat >>"$f" && echo "$f"; exit; fi; done'
        )
        side: _Side | None = None
        try:
            side = await _Side.start(self._place, text)
            await self._feed(side)
            async with asyncio.timeout(_STALL_S):
                await side.ended
        except (SandboxError, ToolError, TimeoutError):
            return ""
        finally:
            self.backlog = self._room = 0
            if side is not None:
                side.wire.close()
        return side.said.decode("utf-8", "replace").removesuffix("\n")

    async def _feed(self, side: _Side) -> None:
        while not side.ended.done():
            pieces, self._waiting = self._waiting, []
            for piece in pieces:
                side.wire.send(piece)
                async with asyncio.timeout(_STALL_S):
                    await side.wire.drained()
                self.backlog -= len(piece)
            if self._is_finished and not self._waiting:
                side.wire.send_eof()
                return
            self._news.clear()
            if not self._waiting:
                await self._news.wait()


def _word(path: str) -> str:
    return quote(path.encode()).decode()
