"""Requests to and messages of a stream shell (see `_stream_script.py`), in step: one call at a time."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from hermes_run.errors import SandboxError
from hermes_run.sandboxes._link import Reply
from hermes_run.sandboxes._script import kept_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_run.sandboxes._output import BoundedOutput
    from hermes_run.sandboxes._stream_wire import Wire

_MOST_UNREAD = 5 << 20
"""Bytes between two messages: more than any state that is carried."""
_MOST_UNASKED = 1000
"""Messages between two requests. A command that kills its kept shell makes a few each time."""
_MOST_SAID = 1 << 16
"""Bytes kept of what it says before it is ready: the last ones."""
_MOST_DRAINING = 32
"""So many outputs of background commands are read on. Each takes a process of the sandbox; whoever writes
on to the oldest one beyond gets SIGPIPE."""
_FREE_BYTES = 256 << 20
"""Read as fast as it comes up to here: beyond, a command only wastes the time of everybody on the way."""
_PAUSE_S = 0.05
_KILL_AGAIN_S = 0.25
"""How long the news of a call's end may take: a second order to kill must not meet what comes after it."""
_DEAF_S = 0.4
_CONGESTED_S = 0.01
_BIRTH_S = 20.0
"""How long a kept shell may take to be there again when a command has killed it."""
_KILLED = 137
_ENDED = "its first process has ended"
_MESSAGE = re.compile(rb"([a-z]+)((?: [^ \n]+)*)")


class Call:
    """A call in progress: `reply` when its command has ended, `is_over` when its output has, too.

    `state` is what the command left with `keep_state`, None while there is none. `is_urgent` has its
    output read at once, however much there was. `relay` is the process behind its output, named when
    others may hold that.
    """

    def __init__(self, number: int, output: BoundedOutput, mark: bytes) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.output = output
        self.mark = mark
        self.held = b""
        self.reply: asyncio.Future[Reply] = loop.create_future()
        self.over: asyncio.Future[None] = loop.create_future()
        self.state: bytes | None = None
        self.is_urgent = False
        self.relay = b""

    def fail(self, error: SandboxError) -> None:
        """Tell whoever waits; nobody has to."""
        for future in (self.reply, self.over):
            if not future.done():
                future.set_exception(error)
                future.exception()


class StreamLink:
    """See the module.

    Args:
        wire: the three streams of the started program.
        token: as it was started with.
        what: what is at the other end, for messages.
        is_congested: whether outputs are to wait, because they cannot be kept as fast as they come.
    """

    def __init__(self, wire: Wire, token: str, what: str, is_congested: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._wire = wire
        self._token = token.encode()
        self._what = what
        self._unread = bytearray()
        self._unasked = 0
        self._supervisor = self._shell = self._relay = b"0"
        self._drains: list[bytes] = []
        self._is_killing = False
        self._kill_sent_s = 0.0
        self._news: asyncio.Future[str] = self._loop.create_future()
        self._is_ready = asyncio.Event()
        self._is_congested = is_congested
        self.births = 0
        self.call: Call | None = None
        self.said = b""
        self.exports = b""
        self.first = ""
        self.uid = 0
        self.shell_path = ""
        self.lost = ""
        wire.attach(self)

    async def started(self) -> str:
        """Wait for its first news: `ready`, `nocwd` (see `retry`), or `lacks <program>`.

        Raises SandboxError(sandbox_lost).
        """
        news = await asyncio.shield(self._news)
        if self.lost:
            raise self.error()
        return news

    def retry(self) -> None:
        """After `nocwd`: try again to enter the working directory."""
        self._news = self._loop.create_future()
        self._send(b"again")

    def error(self) -> SandboxError:
        """Why nothing can be asked of it any more."""
        return SandboxError(f"{self._what} is gone: {self.lost}", reason="sandbox_lost")

    def check(self) -> None:
        """Raises SandboxError(sandbox_lost) when the other end is gone."""
        if self.lost:
            raise self.error()

    def lose(self, why: str) -> None:
        """It is gone, for good: whoever waits hears of it now."""
        if self.lost:
            return
        self.lost = why
        self._wire.close()
        self._is_ready.set()
        if not self._news.done():
            self._news.set_result("lost")
        if self.call is not None:
            self.call.fail(self.error())

    # ------------------------------------------------------------------ requests

    async def request(self, call: Call, line: bytes) -> None:
        """Have the shell run a call; bytes of any number, but better few."""
        await self.ready()
        self.call = call
        self._is_killing = False
        self._unasked = 0
        self._send(line)
        await self._wire.drained()

    async def ready(self) -> None:
        """Wait for the kept shell, which may have to be made anew. Raises SandboxError(sandbox_lost)."""
        try:
            async with asyncio.timeout(_BIRTH_S):
                await self._is_ready.wait()
        except TimeoutError:
            self.lose("its shell cannot be started again")
        self.check()

    async def tell(self, line: bytes) -> None:
        """Have the kept shell evaluate something that is no call."""
        await self.ready()
        self._send(line)
        await self._wire.drained()

    async def end_of_lost_call(self, call: Call) -> None:
        """After the death of the call's kept shell: kill what is left of it, and end its output."""
        await self.ready()
        self._is_killing = False
        self.kill_call()
        if call.relay != self._relay:
            self._send(b"x " + call.relay)
        self._send(b"printf %%s '%b' >&5" % call.mark)

    def kill_call(self) -> None:
        """Kill what the call in progress has started; not again before it is done."""
        if self.call is not None:
            self.call.is_urgent = True
        if self._is_killing:
            return
        self._is_killing = True
        self._kill_sent_s = self._loop.time()
        spared = b" ".join([self._relay, *self._drains])
        self._send(b"k %b %b %b" % (self._supervisor, self._shell, spared))

    def is_deaf(self) -> bool:
        """Whether an order to kill has been left unanswered for a while: its killer may have been stopped."""
        return self._is_killing and 0 < self._kill_sent_s < self._loop.time() - _DEAF_S

    def _may_kill_again(self, call: Call | None) -> None:
        if call is self.call:
            self._is_killing = False

    def cut(self, call: Call) -> None:
        """End the output of a call, whoever still holds it."""
        self._send(b"x " + call.relay)

    def _send(self, line: bytes) -> None:
        self._wire.send(b"%b %b\n" % (self._token, line))

    # ------------------------------------------------------------------ what comes

    def on_output(self, data: bytes) -> None:
        """See Reader: the output of the call in progress, up to its mark; else nobody's."""
        call = self.call
        if call is None or call.over.done():
            if not self.exports:
                self._listen(data)
            return
        data = call.held + data
        if data.endswith(call.mark):
            call.held = b""
            call.output.add(data[: -len(call.mark)])
            call.over.set_result(None)
            return
        call.held = data[-len(call.mark) :]
        call.output.add(data[: -len(call.mark)])
        if self._is_congested() or (
            call.output.total > _FREE_BYTES and not (call.is_urgent or call.reply.done())
        ):
            self._wire.pause()
            self._loop.call_later(_PAUSE_S, self._read_on)

    def _read_on(self) -> None:
        if self._is_congested():
            self._loop.call_later(_CONGESTED_S, self._read_on)
        else:
            self._wire.resume()

    def on_control(self, data: bytes) -> None:
        """See Reader: messages, and before a `done` the state that the command has left."""
        if not self.exports:
            self._listen(data)
        unread, token = self._unread, self._token + b" "
        begin = max(0, len(unread) - len(token))
        unread += data
        while not self.lost:
            at = unread.find(token, begin)
            end = unread.find(b"\n", at) if at >= 0 else -1
            if end < 0:
                break
            before, message = bytes(unread[:at]), bytes(unread[at + len(token) : end])
            del unread[: end + 1]
            begin = 0
            self._hear(before, message)
        if len(unread) > 2 * _MOST_UNREAD:  # its beginning is gone: no state is made of it
            del unread[:-_MOST_UNREAD]

    def on_end(self) -> None:
        """See Reader."""
        self.lose(_ENDED)

    def on_restart(self) -> None:
        """See Reader: as after a `reset`, but nobody has to be told to go on."""
        self._unread.clear()
        self._is_killing = False
        self._reborn(_KILLED)

    def _listen(self, data: bytes) -> None:
        self.said = (self.said + data)[-_MOST_SAID:]

    def _hear(self, before: bytes, message: bytes) -> None:
        found = _MESSAGE.fullmatch(message)
        self._unasked += 1
        if found is None or self._unasked > _MOST_UNASKED:
            self.lose("its shell answers nonsense")
            return
        words = found[2].split()
        match found[1], words:
            case b"done", [number, status, *relay]:
                if self.call is not None:
                    self.call.relay = relay[0] if relay else b""
                if relay:
                    self._is_ready.clear()  # until it has another relay
                self._end_call(number, Reply(_status(status), shell_died=False), before)
            case b"ready", [supervisor, shell, relay]:
                self._supervisor, self._shell, self._relay = supervisor, shell, relay
                self._is_ready.set()
                self._tell("ready")
            case b"killed", []:
                self._kill_sent_s = 0.0
                self._loop.call_later(_KILL_AGAIN_S, self._may_kill_again, self.call)
            case b"drain", [pid]:
                self._add_drain(pid)
            case b"gone", [status]:
                self._reborn(_status(status))
            case b"reset", []:
                self._send(b"on")
                self._is_killing = False
                self._reborn(_KILLED)
            case _:
                self._hear_start(found[1], words, before)

    def _hear_start(self, word: bytes, words: list[bytes], before: bytes) -> None:
        """What is said before the first kept shell is ready; and nonsense."""
        match word, words:
            case b"boot", [pid, path]:
                self.exports, self.first, self.shell_path = before, pid.decode(), path.decode()
            case b"nocwd", [uid]:
                self.uid = int(uid) if uid.isdigit() else 0
                if self._news.done():  # after a restart: nobody is there to make it
                    self.lose("its working directory cannot be entered any more")
                self._tell("nocwd")
            case b"lacks", [program]:
                self._tell(f"lacks {program.decode('ascii', 'replace')}")
            case b"broken", []:
                self.lose("its pipes cannot be used")
            case _:
                self.lose("its shell answers nonsense")

    def _tell(self, news: str) -> None:
        if not self._news.done():
            self._news.set_result(news)

    def _add_drain(self, pid: bytes) -> None:
        self._drains.append(pid)
        if len(self._drains) > _MOST_DRAINING:
            self._send(b"x " + self._drains.pop(0))

    def _reborn(self, status: int) -> None:
        self._is_ready.clear()
        self.births += 1
        call = self.call
        if call is not None:
            call.relay = call.relay or self._relay
            self._end_call(b"%d" % call.number, Reply(status, shell_died=True), b"")

    def _end_call(self, number: bytes, reply: Reply, before: bytes) -> None:
        call = self.call
        if call is None or number != b"%d" % call.number or call.reply.done():
            return
        call.state = kept_state(before)
        call.reply.set_result(reply)


def _status(word: bytes) -> int:
    return int(word[:4]) & 0xFF if word.isdigit() else _KILLED
