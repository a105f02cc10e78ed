"""The Sandbox of every backend that reaches its sandboxes by byte streams: docker, podman, modal.

How a backend uses it::

    ... start START_COMMAND in the sandbox, and get a Wire to its three streams ...
    shell = StreamShell(place, wire, cwd)
    await shell.start()             # raises SandboxError(sandbox_start); bound it in time
    ... the shell is the Sandbox ...
    shell.close()

The Wire and the Place are described in `_stream_wire.py`, the text that runs inside in
`_stream_script.py`. Nothing of the host is mounted, and nothing is assumed of the image but sh, cat,
mkfifo and /proc. What is too big for the wire (commands, stdin, whole outputs) goes by a process of its
own beside the shell.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, TypeVar

from hermes_run.core.contracts import ExecResult, SandboxInfo
from hermes_run.core.text import restore_bytes
from hermes_run.errors import SandboxError, ToolError
from hermes_run.sandboxes._output import BoundedOutput
from hermes_run.sandboxes._script import Texts, wants_own_shell
from hermes_run.sandboxes._stream_link import Call, StreamLink
from hermes_run.sandboxes._stream_script import call_line, exported_names, on_one_line, printf_of, program
from hermes_run.sandboxes._stream_side import SideInput, SideSpills, put_file
from hermes_run.sandboxes._time_limit import Ending

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from hermes_run.sandboxes._stream_wire import StreamPlace, Wire

_T = TypeVar("_T")
_MOST_ON_WIRE = 32 << 10
"""Bytes of a command or a stdin on the shell's own wire, which shells read byte by byte."""
_READS_LAST_CHILD = "$!"
"""In a subshell of the kept shell, that is the relay until the command has a child of its own."""
_LATE_OUTPUT_S = 0.2
"""How long background children may still add to the output after the command has ended."""
_MARK_S = 30.0
"""How long an output that nobody holds may take to come: it is on its way."""
_CUT_S = 2.0
"""How long nothing at all may come of an output once it was cut."""
_TIMED_OUT = 124


class StreamShell:
    """See the module.

    Args:
        place: the rest of what the backend gives.
        wire: the three streams of START_COMMAND, as it was started in the sandbox.
        cwd: where commands start; made if missing.
        most_processes: how many the sandbox may have, its own among them, or 0.
    """

    def __init__(self, place: StreamPlace, wire: Wire, cwd: str, most_processes: int = 0) -> None:
        self._place = place
        self._spills = SideSpills(place)
        token = "t" + os.urandom(12).hex()
        wire.send(program(token, place.folder, cwd, most_processes))
        self._link = StreamLink(wire, token, place.what, self._spills.is_congested)
        self._token = token
        self._cwd = cwd
        self._turn = asyncio.Lock()
        self._waking: asyncio.Task[None] | None = None
        self._number = 0
        self._state = self._sent_state = b""
        self._first = ""
        self._texts: Texts
        self._births = -1
        self._lacks_cwd = False
        self._info: SandboxInfo

    @property
    def info(self) -> SandboxInfo:
        """What it is; fixed from its start."""
        return self._info

    @property
    def said(self) -> bytes:
        """While it starts: the last of what the other end has said, without its messages."""
        lines = self._link.said.splitlines(keepends=True)
        return b"".join(line for line in lines if self._token.encode() not in line)

    @property
    def uid(self) -> int:
        """When it cannot make its working directory: the user that it runs as."""
        return self._link.uid

    @property
    def lost(self) -> str:
        """Why it is gone, or ""."""
        return self._link.lost

    async def start(self) -> bool:
        """Wait until the shell is ready. False when it cannot enter or make its working directory.

        Then the backend may make the folder, and call again. Raises SandboxError: sandbox_lost when the
        program has ended, sandbox_start when the image lacks what it needs.
        """
        if self._lacks_cwd:
            self._link.retry()
        news = await self._link.started()
        self._lacks_cwd = news == "nocwd"
        if self._lacks_cwd:
            return False
        if news != "ready":
            raise SandboxError(f"the image {news}, which a sandbox needs besides sh", reason="sandbox_start")
        link = self._link
        self._info = self._place.describe("bash" if link.shell_path.endswith("bash") else "sh")
        self._write_texts()
        return True

    def _write_texts(self) -> None:
        link = self._link
        self._first = link.first
        self._texts = Texts(
            link.shell_path,
            f"{self._place.folder}/mail",
            exported_names(link.exports),
            self._cwd,
            state_path=f"/proc/{link.first}/fd/4",
        )

    async def exec(
        self,
        command: str,
        *,
        timeout_s: float,
        stdin: bytes = b"",
        workdir: str = "",
        keep_state: bool = False,
        max_output: int = 1_000_000,
    ) -> ExecResult:
        """See `Sandbox.exec`. Raises ToolError for a command that no shell can be given."""
        if "\0" in command or "\0" in workdir:
            raise ToolError("a command cannot hold NUL characters; write \\0 in a printf format instead")
        async with self._turn:
            await self._settle()
            self._link.check()
            own_shell = wants_own_shell(command) or _READS_LAST_CHILD in command
            await self._send_state()
            mail = self._texts.call(
                restore_bytes(command),
                state=self._state,
                workdir=restore_bytes(workdir),
                keep_state=keep_state,
                own_shell=own_shell,
                by_name=not own_shell,
            )
            return await self._run(mail, stdin, timeout_s, max_output, in_file=own_shell)

    def lose(self, why: str) -> None:
        """It is being removed: whoever waits hears of it now."""
        self._link.lose(why)

    def close(self) -> None:
        """Let go of everything outside the sandbox; removing the sandbox is the backend's."""
        self._link.lose("it was closed")
        self._spills.close()

    def kill_call(self, started_s: float) -> None:  # noqa: ARG002 - it knows itself when a call began
        """See Killable."""
        if self._link.lost:
            return
        self._link.kill_call()
        if self._link.is_deaf() and self._waking is None:
            self._waking = asyncio.ensure_future(self._wake())

    async def _wake(self) -> None:
        """Let go on whom the command has stopped (`kill -STOP -1`): the processes that end it, among them."""
        try:
            (await self._place.side("kill -CONT -1")).close()
        except (SandboxError, ToolError):
            return  # no room for it, or nothing is there any more: the time limit ends the sandbox

    def destroy(self) -> None:
        """See Killable."""
        self._place.destroy()

    # ------------------------------------------------------------------ a call

    async def _run(
        self, mail: bytes, stdin: bytes, timeout_s: float, max_output: int, *, in_file: bool
    ) -> ExecResult:
        self._number += 1
        self._waking = None
        output = BoundedOutput(max_output, self._spills.open)
        call = Call(self._number, output, f"{self._token}{self._number};".encode())
        feed: SideInput | None = None
        if len(mail) > _MOST_ON_WIRE:
            await self._beside(put_file(self._place, f"{self._place.folder}/mail", mail))
            mail, in_file = b'. "$__d/mail"', False
        pipe = ""
        if len(stdin) > _MOST_ON_WIRE or len(printf_of(stdin)) > _MOST_ON_WIRE:
            pipe = f"{self._place.folder}/in{self._number}"
            feed = await self._beside(SideInput.open(self._place, pipe, stdin))
        try:
            line = call_line(call.number, mail, stdin=stdin, stdin_pipe=pipe, in_file=in_file)
            await self._link.request(call, line)
            ending = Ending(self, self._link, 0, timeout_s)
            status = await self._finish(call, ending)
        finally:
            if feed is not None:
                feed.close()
        await self._spills.finish()
        if call.state is not None:
            self._state = call.state
        data, omitted, head, path = output.finish()
        return ExecResult(
            output=data,
            exit_code=_TIMED_OUT if ending.timed_out else status,
            timed_out=ending.timed_out,
            omitted=omitted,
            head=head,
            full_path=path,
        )

    async def _beside(self, work: Awaitable[_T]) -> _T:
        """What a process beside the shell does; that a sandbox is gone goes before that it had no room."""
        try:
            return await work
        except ToolError:
            self._link.check()
            raise

    async def _finish(self, call: Call, ending: Ending) -> int:
        """The call's exit status, once all of its output is there."""
        reply = await ending.reply(asyncio.shield(call.reply))
        if reply.shell_died:
            await self._link.end_of_lost_call(call)
        try:
            async with asyncio.timeout(_LATE_OUTPUT_S if call.relay else _MARK_S):
                await asyncio.shield(call.over)
        except TimeoutError:
            await self._cut(call)
        self._link.call = None
        return reply.status

    async def _cut(self, call: Call) -> None:
        """End an output that background children hold; another process reads on what they write.

        What was written before may still be on its way, and much.
        """
        call.is_urgent = True
        self._link.cut(call)
        had = -1
        while not call.over.done():
            if call.output.total == had:
                self._place.destroy()
                self._link.lose("its shell did not answer after a command")
                raise self._link.error()
            had = call.output.total
            await asyncio.wait([call.over], timeout=_CUT_S)
        call.over.result()

    async def _settle(self) -> None:
        """Wait for the end of a call that was given up (cancelled) and killed, to be in step again."""
        call = self._link.call
        if call is not None and not self._link.lost:
            await self._finish(call, Ending(self, self._link, 0, 0))
            await self._spills.finish()

    async def _send_state(self) -> None:
        """The kept shell holds the state, so that it travels only when it has changed."""
        if self._births != self._link.births:
            await self._link.ready()
            if self._first != self._link.first:
                self._write_texts()
            self._births, self._sent_state = self._link.births, b""
            await self._link.tell(b"__K=" + self._texts.keep)
        if self._state == self._sent_state:
            return
        text = self._texts.restore(self._state)
        if len(text) > _MOST_ON_WIRE:
            await self._beside(put_file(self._place, f"{self._place.folder}/state", text))
            await self._link.tell(b'__E=$(cat "$__d/state")')
        else:
            await self._link.tell(b"__E=" + on_one_line(text))
        self._sent_state = self._state
