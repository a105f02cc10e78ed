"""The wire to a kept shell: one request line out, one reply line in, and the news of its death."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, NamedTuple

from hermes_run.errors import SandboxError
from hermes_run.sandboxes._script import GONE, READY

if TYPE_CHECKING:
    import socket

_MOST_UNREAD = 1 << 16
"""A reply is a dozen bytes, a backend's complaint a few hundred: more is nonsense."""
_MOST_UNASKED = 1000
"""Lines between two replies that nobody waits for. A command that kills its kept shell makes two each
time; one that got hold of the wire would have the runner do nothing but read."""
_ENDED = "its first process has ended"
"""Whether that shows as an end, a broken pipe or a reset is chance, and errors of equal runs are equal."""
_ANSWER = re.compile(rb"([0-9]+|%b) ([0-9]{1,3})" % GONE)


class Reply(NamedTuple):
    """How a call ended. `shell_died`: the command has killed the kept shell, which was made anew."""

    status: int
    shell_died: bool


class Link:
    """Requests and replies over one socket, in step: one call at a time.

    Args:
        wire: connected to the kept shell's stdin and stdout (and, while it starts, stderr).
        what: what is at the other end, for messages.
    """

    def __init__(self, wire: socket.socket, what: str) -> None:
        self.loop = asyncio.get_running_loop()
        self._wire = wire
        self._what = what
        self._unread = b""
        self._awaited = b""
        self._unasked = 0
        self._reply: asyncio.Future[Reply] = self.loop.create_future()
        self._is_ready: asyncio.Future[None] = self.loop.create_future()
        self.lost = ""
        wire.setblocking(False)
        self.loop.add_reader(wire, self._receive)

    async def start(self) -> None:
        """Wait until the shell says that it is ready. Raises SandboxError(sandbox_lost)."""
        await self._is_ready

    @property
    def unread(self) -> bytes:
        """While it starts: what the other end has said."""
        return self._unread

    def request(self, number: int, output: str, stdin: str) -> asyncio.Future[Reply]:
        """Have the shell run what is in the mailbox. Raises SandboxError when it is gone."""
        self.check()
        self._awaited = b"%d" % number
        reply = self.expect()
        try:
            self._wire.send(b"%d %b %b\n" % (number, output.encode(), stdin.encode()))
        except OSError:
            self.lose(_ENDED)
        return reply

    def expect(self) -> asyncio.Future[Reply]:
        """The reply to the last request, in a future of its own (the first may have been cancelled)."""
        self._reply = self.loop.create_future()
        if self.lost:
            self._reply.set_exception(self.error())
        return self._reply

    def is_in_step(self) -> bool:
        """Whether no reply is outstanding."""
        return not self._awaited

    def check(self) -> None:
        """Raises SandboxError(sandbox_lost) when the other end is gone."""
        if self.lost:
            raise self.error()

    def lose(self, why: str, *, hangs_up: bool = True) -> None:
        """It is gone, for good: whoever waits hears of it now.

        A shell that is being killed had better not be hung up on: it would still spend time on its exit.
        """
        if not self.lost:
            self.lost = why
            self.loop.remove_reader(self._wire)
            self._tell()
        if hangs_up:
            self._wire.close()

    def _tell(self) -> None:
        if not self._is_ready.done():
            self._is_ready.set_exception(self.error())
            self._is_ready.exception()  # a start that failed earlier waits for nothing: that is no mistake
        if self._awaited and not self._reply.done():
            self._reply.set_exception(self.error())

    def error(self) -> SandboxError:
        """Why nothing can be asked of it any more."""
        return SandboxError(f"{self._what} is gone: {self.lost}", reason="sandbox_lost")

    def _receive(self) -> None:
        try:
            data = self._wire.recv(_MOST_UNREAD)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.lose(_ENDED)
            return
        self._unread += data
        if self._is_ready.done():
            self._answer()
        else:
            self._wait_for_ready()

    def _wait_for_ready(self) -> None:
        if self._unread.endswith(READY + b"\n"):
            self._unread = b""
            self._is_ready.set_result(None)
        else:
            self._unread = self._unread[-_MOST_UNREAD:]

    def _answer(self) -> None:
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            answer = _ANSWER.fullmatch(line)
            if answer is None or not self._awaited or answer[1] not in (self._awaited, GONE):
                self._unasked += 1
                continue
            self._awaited, self._unasked = b"", 0
            if not self._reply.done():
                self._reply.set_result(Reply(int(answer[2]) & 0xFF, answer[1] == GONE))
        if len(self._unread) > _MOST_UNREAD or self._unasked > _MOST_UNASKED:
            self.lose("its shell answers nonsense")
