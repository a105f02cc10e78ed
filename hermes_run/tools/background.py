"""Commands that run in the background of one sandbox: files and a few lines of shell, in every backend.

Each session is a folder in the sandbox: `cmd` (its text), `in` (a FIFO, its stdin), `log` (its output),
`exit` (its exit code, once it has ended). A recorder, a subshell, starts the command in a session of its
own, holds its stdin open, waits for it and writes the code. Names are bg_1, bg_2, ...: equal rollouts
get equal names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hermes_run.core.keys import digest
from hermes_run.errors import ToolError
from hermes_run.tools import background_shell as shell
from hermes_run.tools.shell import PRELUDE, bytes_of, quote, run_script, text_of

if TYPE_CHECKING:
    from hermes_run.core.contracts import ExecResult, Sandbox, ToolSession

START_TIMEOUT_S = 20.0
INPUT_TIMEOUT_S = 10.0
_BACKSTOP_S = 15.0  # more than a script's own time, before the sandbox ends it
_COMMAND_SHOWN = 200


class Running(Struct):
    """A background command as it is remembered here.

    Attributes:
        name: bg_1, bg_2, ...
        command: its text, cut.
        folder: its folder in the sandbox.
        pid: of its shell, in the sandbox.
        recorder: pid of the subshell that waits for it.
        seen: bytes of its log that a poll or wait has shown.
        input_closed: whether its stdin was closed.
    """

    name: str
    command: str
    folder: str
    pid: int
    recorder: int
    seen: int = 0
    input_closed: bool = False


class State(Struct, frozen=True):
    """How a command is: `status` is running, exited or lost; and a stretch of its log.

    `first` and `last` bound the stretch in bytes; `total_lines` is 0 where lines were not counted.
    """

    status: str
    exit_code: int | None
    output: bytes
    first: int = 0
    last: int = 0
    total_lines: int = 0


class Background:
    """The background commands of one rollout, shared by the terminal and process tools."""

    def __init__(self, sandbox: Sandbox, key: str) -> None:
        self._sandbox = sandbox
        # The same for equal rollouts: commands may show it. After the first start it is where that was.
        self._root = f'"${{TMPDIR:-/tmp}}"/.hermes-{digest(key.encode())[:12]}'
        self._running: dict[str, Running] = {}

    @classmethod
    def of(cls, session: ToolSession) -> Background:
        """The rollout's one instance."""
        found = session.shared.setdefault("background", None) or cls(session.sandbox, session.task.key)
        session.shared["background"] = found
        return found

    async def start(self, command: bytes) -> Running:
        """Start a command. Raises ToolError when the sandbox cannot."""
        name = f"bg_{len(self._running) + 1}"
        script = shell.START.format(root=self._root, name=name, shell=self._sandbox.info.shell)
        result = await run_script(
            self._sandbox, script, timeout_s=START_TIMEOUT_S, stdin=command, max_output=100_000
        )
        if result.exit_code:
            raise ToolError(f"cannot start a background command: {text_of(result.output).strip()}")
        root, recorder, pid = text_of(result.output).rsplit("\n", 3)[:3]
        self._root = quote(bytes_of(root))
        text = text_of(command)
        if len(text) > _COMMAND_SHOWN:
            text = text[:_COMMAND_SHOWN] + "…"
        running = Running(name, text, f"{root}/{name}", int(pid), int(recorder))
        self._running[name] = running
        return running

    def find(self, name: str) -> Running:
        """The session of that name. Raises ToolError naming those that exist."""
        if name not in self._running:
            known = ", ".join(self._running) or "none; start one with terminal and background: true"
            wanted = f'there is no session "{name}"' if name else "session_id is missing"
            raise ToolError(f"{wanted}. Sessions: {known}")
        return self._running[name]

    async def states(self) -> list[tuple[Running, State]]:
        """All sessions and how they are, without their output; one command."""
        if not self._running:
            return []
        names = " ".join(f"{one.name}:{one.pid}" for one in self._running.values())
        script = f"{PRELUDE}root={self._root}\n{shell.STATUS}{shell.LIST.format(names=names)}"
        result = await run_script(self._sandbox, script, max_output=100_000)
        codes = result.output.decode().split()
        return [(one, _state(code)) for one, code in zip(self._running.values(), codes, strict=True)]

    async def news(self, running: Running, max_bytes: int, wait_s: float = 0) -> State:
        """How it is, and what it has printed since this was asked last: its last `max_bytes` at most.

        With `wait_s` it is waited for until it ends, for so long at most.
        """
        tries = round(wait_s * 10) if wait_s <= 2 else 20 + round((wait_s - 2) * 2)
        body = shell.WAIT.format(tries=tries) if wait_s else ""
        body += shell.NEWS.format(seen=running.seen, most=max_bytes)
        result = await self._ask(running, body, wait_s + _BACKSTOP_S, max_bytes)
        head, _, output = result.output.partition(b"\n")
        code, first, last = head.decode().split()
        state = _state(code, output, int(first), int(last))
        running.seen = state.last
        return state

    async def log(self, running: Running, offset: int, limit: int, max_bytes: int) -> State:
        """`limit` lines of its output from line `offset` (from 1; 0: the last ones)."""
        body = shell.LOG.format(offset=offset, limit=limit, most=max_bytes)
        result = await self._ask(running, body, _BACKSTOP_S, max_bytes)
        head, _, output = result.output.partition(b"\n")
        code, first, total = head.decode().split()
        return _state(code, output, int(first), 0, int(total))

    async def kill(self, running: Running) -> State:
        """End it and all it started: asked first, then by force."""
        result = await self._ask(running, shell.KILL, 4 * _BACKSTOP_S, 0)
        return _state(result.output.decode().strip())

    async def write(self, running: Running, data: bytes) -> None:
        """Give it input. Raises ToolError when it has ended, or does not read it."""
        if running.input_closed:
            raise ToolError(f"the input of {running.name} is closed")
        script = self._script(running, shell.WRITE)
        result = await self._sandbox.exec(script, timeout_s=INPUT_TIMEOUT_S, stdin=data, max_output=10_000)
        if result.timed_out:
            raise ToolError(f"{running.name} has not read all its input within {INPUT_TIMEOUT_S:g} s")
        said = text_of(result.output).strip()
        if result.exit_code:
            raise ToolError(f"{running.name} cannot be written to: {said}")

    async def close_input(self, running: Running) -> None:
        """Let it read end of file, once it has read what was written."""
        if not running.input_closed:
            await self._ask(running, shell.CLOSE, _BACKSTOP_S, 0)
            running.input_closed = True

    def _script(self, running: Running, body: str) -> str:
        place = f"d={quote(bytes_of(running.folder))}\npid={running.pid}\nrecorder={running.recorder}\n"
        return PRELUDE + place + shell.STATUS + body

    async def _ask(self, running: Running, body: str, timeout_s: float, max_bytes: int) -> ExecResult:
        result = await run_script(
            self._sandbox, self._script(running, body), timeout_s=timeout_s, max_output=max_bytes + 100_000
        )
        if result.exit_code:
            raise ToolError(f"{running.name}: {text_of(result.output).strip()}")
        return result


def _state(code: str, output: bytes = b"", first: int = 0, last: int = 0, total_lines: int = 0) -> State:
    """`code` is an exit code, or `running` or `lost`."""
    ended = code.isdigit()
    return State("exited" if ended else code, int(code) if ended else None, output, first, last, total_lines)
