"""The Sandbox of every backend that can keep a shell open: requests go in, replies come out.

A backend makes a Place (a running supervisor, see `_script.py`, with a mailbox and a folder of named
pipes); `KeptShell` turns it into the Sandbox of the contracts page. Each call's output has its own
pipe, so that what an earlier call left in the background never mixes into it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING, Protocol

from hermes_run.core.contracts import ExecResult, SandboxInfo
from hermes_run.core.text import restore_bytes
from hermes_run.errors import ToolError
from hermes_run.sandboxes._output import BoundedOutput, Spill
from hermes_run.sandboxes._pipe import InputPipe, OutputPipe
from hermes_run.sandboxes._script import Texts, kept_state, wants_own_shell
from hermes_run.sandboxes._time_limit import Ending

if TYPE_CHECKING:
    from hermes_run.sandboxes._link import Link

_WATCH_AFTER_S = 0.01
"""A command that is done by then costs one wake-up."""
_LATE_OUTPUT_S = 0.2
"""How long background children may still add to the output after the command has ended."""
_TIMED_OUT = 124
_AGAIN_S = 0.5
_MOST_DEATHS = 20
_MOST_DRAINING = 32
"""So many outputs of background commands are read on. Each holds a descriptor of the runner, which all
sandboxes share; whoever writes on to the oldest one beyond gets SIGPIPE."""


class Place(Protocol):
    """What a backend gives: where the shell runs, and what can be done to it from outside.

    Attributes:
        info: what it is.
        texts: writes the mailbox's text.
        pipes: folder of the named pipes, as the runner sees it.
        pipes_inside: the same folder, as the sandbox sees it.
    """

    info: SandboxInfo
    texts: Texts
    pipes: str
    pipes_inside: str

    def write_mail(self, text: bytes) -> None:
        """Replace the mailbox's content."""

    def read_mail(self) -> bytes:
        """The mailbox's content."""

    def open_spill(self) -> Spill | None:
        """A file in the sandbox for an output that is too long, or None when there can be none."""

    def kill_call(self, started_s: float) -> None:
        """Kill everything that the call in progress has started, nothing older.

        `started_s` is the time since boot at which it was sent. Called again until the call is over.
        """

    def destroy(self) -> None:
        """Kill everything in it, at once and without waiting."""


class KeptShell:
    """A Sandbox over a Place and the Link to its shell."""

    def __init__(self, place: Place, link: Link) -> None:
        self._place = place
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._number = 0
        self._started_s = 0.0
        self._state = b""
        self._pipe_name = ""
        self._draining: list[OutputPipe] = []

    @property
    def info(self) -> SandboxInfo:
        """What it is; fixed from its start."""
        return self._place.info

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
            if not self._link.is_in_step():
                await self._settle()
            self._link.check()
            self._place.write_mail(
                self._place.texts.call(
                    restore_bytes(command),
                    state=self._state,
                    workdir=restore_bytes(workdir),
                    keep_state=keep_state,
                    own_shell=wants_own_shell(command),
                )
            )
            result = await self._run(stdin, timeout_s, max_output)
            if keep_state:
                state = kept_state(self._place.read_mail())
                self._state = self._state if state is None else state
            return result

    def close(self) -> None:
        """Let go of everything outside the sandbox; removing the sandbox is the backend's."""
        self._link.lose("it was closed")
        for pipe in self._draining:
            pipe.close()
        self._draining.clear()

    async def _run(self, stdin: bytes, timeout_s: float, max_output: int) -> ExecResult:
        self._number += 1
        output = BoundedOutput(max_output, self._place.open_spill)
        pipe, feed = self._open_pipes(output, stdin)
        self._started_s = _since_boot_s()
        reply = self._link.request(
            self._number,
            f"{self._place.pipes_inside}/{self._pipe_name}",
            f"{self._place.pipes_inside}/i{self._number}" if feed else "/dev/null",
        )
        watch = self._loop.call_later(_WATCH_AFTER_S, pipe.watch)
        ending = Ending(self._place, self._link, self._started_s, timeout_s)
        try:
            status, shell_died = await ending.reply(reply)
            if shell_died:
                await self._find_shell()
            await _late_output(pipe)
        finally:
            watch.cancel()
            if feed is not None:
                feed.close()
                _forget(feed.path)
            self._retire(pipe)
        data, omitted, head, path = output.finish()
        return ExecResult(
            output=data,
            exit_code=_TIMED_OUT if ending.timed_out else status,
            timed_out=ending.timed_out,
            omitted=omitted,
            head=head,
            full_path=path,
        )

    async def _settle(self) -> None:
        """Wait for the end of a call that was given up (cancelled) and killed, to be in step again."""
        ending = Ending(self._place, self._link, self._started_s, 0)
        reply = await ending.reply(self._link.expect())
        if reply.shell_died:
            await self._find_shell()

    async def _find_shell(self) -> None:
        """After the kept shell was killed: kill what is left of the call, and wait for one that answers.

        A command may have killed several of them. The news of each must not be taken for the end of the
        next call, nor may that be given to one that is about to die. Raises SandboxError(sandbox_lost).
        """
        self._place.write_mail(b"__c=\n")
        for _ in range(_MOST_DEATHS):
            self._place.kill_call(self._started_s)
            reply = self._link.request(0, "/dev/null", "/dev/null")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_S):
                    if not (await asyncio.shield(reply)).shell_died:
                        return
        self._place.destroy()
        self._link.lose("its shell cannot be started again")
        raise self._link.error()

    def _open_pipes(self, output: BoundedOutput, stdin: bytes) -> tuple[OutputPipe, InputPipe | None]:
        """The call's pipes. Raises SandboxError(sandbox_lost)."""
        pipe: OutputPipe | None = None
        try:
            pipe = self._open_output(output)
            return pipe, self._open_input(stdin)
        except OSError as error:  # a command has removed their folder, or there is no room for them
            if pipe is not None:
                pipe.close()
            self._link.lose(f"its pipes cannot be used ({error.strerror})")
            raise self._link.error() from error

    def _open_output(self, output: BoundedOutput) -> OutputPipe:
        if not self._pipe_name:
            self._pipe_name = f"o{self._number}"
            os.mkfifo(f"{self._place.pipes}/{self._pipe_name}", 0o600)
        return OutputPipe(f"{self._place.pipes}/{self._pipe_name}", output)

    def _open_input(self, stdin: bytes) -> InputPipe | None:
        if not stdin:
            return None
        path = f"{self._place.pipes}/i{self._number}"
        os.mkfifo(path, 0o600)
        return InputPipe(path, stdin)

    def _retire(self, pipe: OutputPipe) -> None:
        """A pipe that everybody has closed serves the next call; one that has not is drained."""
        if pipe.has_ended:
            return
        _forget(f"{self._place.pipes}/{self._pipe_name}")
        self._pipe_name = ""
        if self._link.lost:
            pipe.close()
            return
        self._draining = [other for other in self._draining if not other.has_ended]
        if len(self._draining) >= _MOST_DRAINING:
            self._draining.pop(0).close()
        self._draining.append(pipe)
        pipe.drain()


async def _late_output(pipe: OutputPipe) -> None:
    """Read what is there; when a background child still holds the output, give it a moment."""
    if pipe.take():
        return
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not over.done():
            over.set_result(None)

    pipe.when_ended(end)
    pipe.watch()
    timer = loop.call_later(_LATE_OUTPUT_S, end)
    try:
        await over
    finally:
        timer.cancel()


def _forget(path: str) -> None:
    """Remove a named pipe, which may be gone with its folder, or be no pipe any more."""
    with contextlib.suppress(OSError):
        os.unlink(path)


def _since_boot_s() -> float:
    """The clock of process start times."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
