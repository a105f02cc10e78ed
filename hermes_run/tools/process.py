"""process: looks after commands that the terminal tool has started in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hermes_run.core.contracts import ToolSpec
from hermes_run.errors import ToolError
from hermes_run.tools.background import Background
from hermes_run.tools.output import ASKED_BYTES, plain, without_half_characters
from hermes_run.tools.shell import bytes_of, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_run.core.contracts import ToolSession
    from hermes_run.tools.background import Running, State

ACTIONS = ("list", "poll", "log", "wait", "kill", "write", "submit", "close")
DEFAULT_WAIT_S = 60
MAX_WAIT_S = 600
DEFAULT_LINES = 200
MAX_LINES = 2_000
NEWS_BYTES = 20_000


class Process:
    """Watches, feeds and ends background commands."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "process",
        "Look after background commands started by terminal. Actions: list (all sessions), poll (status and "
        f"new output, the last {NEWS_BYTES} bytes of it), log (lines of the whole output), wait (until it "
        "ends or timeout passes), kill (it and all it started), write (data to its stdin), submit (data and "
        "a newline), close (end of its stdin). All but list need session_id.",
        {
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": list(ACTIONS)},
                "session_id": {"type": "string", "description": "As terminal gave it, such as bg_1."},
                "data": {"type": "string", "description": "For write and submit."},
                "timeout": {
                    "type": "number",
                    "default": DEFAULT_WAIT_S,
                    "description": f"For wait: seconds; more than {MAX_WAIT_S} counts as {MAX_WAIT_S}.",
                },
                "offset": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "For log: first line, from 1; without it the last lines are shown.",
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "default": DEFAULT_LINES,
                    "description": f"For log: lines at most; more than {MAX_LINES} counts as {MAX_LINES}.",
                },
            },
            "required": ["action"],
        },
    )

    def __init__(self, session: ToolSession) -> None:
        self._background = Background.of(session)

    @staticmethod
    def missing(machine: Any) -> str:
        """Nothing: it works in every sandbox."""
        del machine
        return ""

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do the action.

        Result: `session_id`, `status` (running, exited or lost), `exit_code` (null while it runs), and
        what the action brings; list: `sessions[] {session_id, command, status, exit_code}`.
        """
        action = arguments["action"]
        if action == "list":
            return await self._list()
        running = self._background.find(arguments.get("session_id", ""))
        if action in {"poll", "log", "wait"}:
            return await self._look(running, arguments)
        if action == "kill":
            return _said(running, await self._background.kill(running))
        if action == "close":
            await self._background.close_input(running)
            return {"session_id": running.name, "input_closed": True}
        if "data" not in arguments:
            raise ToolError(f"data is missing: it is what {action} gives to the command")
        data = bytes_of(arguments["data"]) + (b"\n" if action == "submit" else b"")
        await self._background.write(running, data)
        return {"session_id": running.name, "bytes_written": len(data)}

    async def _look(self, running: Running, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if arguments["action"] == "poll":
            return await self._news(running, 0)
        if arguments["action"] == "wait":
            return await self._wait(running, arguments.get("timeout", DEFAULT_WAIT_S))
        limit = min(arguments.get("limit", DEFAULT_LINES), MAX_LINES)
        return await self._log(running, arguments.get("offset", 0), limit)

    async def _list(self) -> Mapping[str, Any]:
        states = await self._background.states()
        return {
            "sessions": [
                {
                    "session_id": running.name,
                    "command": running.command,
                    "status": state.status,
                    "exit_code": state.exit_code,
                }
                for running, state in states
            ]
        }

    async def _news(self, running: Running, wait_s: float) -> dict[str, Any]:
        before = running.seen
        state = await self._background.news(running, NEWS_BYTES, wait_s)
        output = state.output
        if state.status == "running":  # the rest of a character comes with the next poll
            whole = without_half_characters(output, at_start=False)
            running.seen -= len(output) - len(whole)
            output = whole
        skipped = state.first - before
        note = f"[... {skipped} bytes left out here; action log shows all ...]\n" if skipped else ""
        if skipped:
            output = without_half_characters(output, at_end=False)
        return {**_said(running, state), "output": note + plain(text_of(output))}

    async def _wait(self, running: Running, timeout_s: float) -> Mapping[str, Any]:
        if timeout_s <= 0:
            raise ToolError(f"timeout must be more than 0 seconds, not {timeout_s}")
        result = await self._news(running, min(timeout_s, MAX_WAIT_S))
        return {**result, "timed_out": result["status"] == "running"}

    async def _log(self, running: Running, offset: int, limit: int) -> Mapping[str, Any]:
        state = await self._background.log(running, offset, limit, ASKED_BYTES)
        output = without_half_characters(state.output, at_start=False)
        lines = output.count(b"\n") + (not output.endswith(b"\n") and bool(output))
        if len(state.output) == ASKED_BYTES and lines > 1:  # the last line is cut: show it next time
            output = output[: output.rfind(b"\n") + 1]
            lines = output.count(b"\n")
        next_line = state.first + lines
        return {
            **_said(running, state),
            "output": plain(text_of(output)),
            "offset": state.first,
            "total_lines": state.total_lines,
            "next_offset": next_line if next_line <= state.total_lines else None,
        }

    async def aclose(self) -> None:
        """Nothing to give back: background commands end with the sandbox."""


def _said(running: Running, state: State) -> dict[str, Any]:
    return {"session_id": running.name, "status": state.status, "exit_code": state.exit_code}
