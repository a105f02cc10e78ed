"""terminal: runs commands in the sandbox's kept shell, or in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hermes_run.core.contracts import ToolSpec
from hermes_run.errors import ToolError
from hermes_run.tools.background import Background
from hermes_run.tools.output import ASKED_BYTES, MAX_CHARS, shown
from hermes_run.tools.shell import bytes_of, plain_text, quote, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_run.core.contracts import Sandbox, ToolSession

DEFAULT_TIMEOUT_S = 180
MAX_TIMEOUT_S = 600
_ENTER_TIMEOUT_S = 20.0


class Terminal:
    """Runs shell commands."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "terminal",
        "Run a shell command and get its output (stdout and stderr together) and exit code. The working "
        "directory and exported variables carry over to the next call; functions, aliases and shell options "
        f"do not. At most {MAX_CHARS} characters of output come back, head and tail; the whole is kept in a "
        "file that is named. There is no terminal to type into: stdin is empty. Use background for "
        "servers and other commands that do not end, then the process tool.",
        {
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "Shell text, one line or many."},
                "background": {
                    "type": "boolean",
                    "default": False,
                    "description": "Start it and return at once with a session_id for the process tool.",
                },
                "timeout": {
                    "type": "number",
                    "default": DEFAULT_TIMEOUT_S,
                    "description": "Seconds, after which the command and all it started are ended. "
                    f"At most {MAX_TIMEOUT_S}; more counts as {MAX_TIMEOUT_S}. Not for background.",
                },
                "workdir": {
                    "type": "string",
                    "description": "Directory to change to first; it stays the working directory.",
                },
            },
            "required": ["command"],
        },
    )

    def __init__(self, session: ToolSession) -> None:
        self._sandbox: Sandbox = session.sandbox
        self._background = Background.of(session)

    @staticmethod
    def missing(machine: Any) -> str:
        """Nothing: it works in every sandbox."""
        del machine
        return ""

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run. Result: `output`, `exit_code`, `error` (null when the command ran to its end).

        In the background: `session_id` and `pid` besides.
        """
        command = bytes_of(arguments["command"])
        workdir = arguments.get("workdir", "")
        timeout_s = arguments.get("timeout", DEFAULT_TIMEOUT_S)
        if not command.strip():
            raise ToolError("command is empty")
        if b"\0" in command or "\0" in workdir:
            raise ToolError("a command cannot hold a NUL character; write it as an escape of printf")
        if timeout_s <= 0:
            raise ToolError(f"timeout must be more than 0 seconds, not {timeout_s}")
        if workdir:
            await self._enter(workdir)
        if arguments.get("background", False):
            started = await self._background.start(command)
            return {
                "output": "",
                "exit_code": 0,
                "error": None,
                "session_id": started.name,
                "pid": started.pid,
            }
        return await self._run(command, min(timeout_s, MAX_TIMEOUT_S))

    async def _enter(self, workdir: str) -> None:
        """Change the working directory. Raises ToolError: a command never runs in another one."""
        there = bytes_of(workdir if workdir.startswith("/") else f"./{workdir}")
        result = await self._sandbox.exec(
            f"unset CDPATH; cd {quote(there)}", timeout_s=_ENTER_TIMEOUT_S, keep_state=True, max_output=10_000
        )
        if result.exit_code:
            raise ToolError(f"cannot enter workdir {workdir}: {text_of(result.output).strip()}")

    async def _run(self, command: bytes, timeout_s: float) -> Mapping[str, Any]:
        result = await self._sandbox.exec(
            _as_text(command), timeout_s=timeout_s, keep_state=True, max_output=ASKED_BYTES
        )
        return {
            "output": shown(result),
            "exit_code": 124 if result.timed_out else result.exit_code,
            "error": f"timed out after {timeout_s:g} s" if result.timed_out else None,
        }

    async def aclose(self) -> None:
        """Nothing to give back: background commands end with the sandbox."""


def _as_text(command: bytes) -> str:
    """The command as exec takes it: text, or an eval of its bytes when they are no plain text."""
    text = plain_text(command)
    return f"eval {quote(command)}" if text is None else text
