"""execute_code: Python in the sandbox that calls the other offered tools as functions.

A sandbox runs one command at a time, so the script runs in the background, under a driver (see
`inside/code_driver.py`), and each command of ours gives the driver the answer to its last message and
waits for the next one: a call costs one command more than the tool itself.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from typing import TYPE_CHECKING, Any, ClassVar

from hermes_run.core.answers import InnerCall
from hermes_run.core.contracts import ExecResult, ToolSpec
from hermes_run.core.messages import ToolCall
from hermes_run.core.text import clean, restore_within
from hermes_run.errors import ToolError
from hermes_run.tools import inside
from hermes_run.tools.background import Background
from hermes_run.tools.output import ASKED_BYTES, MAX_CHARS, shown
from hermes_run.tools.shell import PRELUDE, bytes_of, mark, quote, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_run.core.contracts import ToolSession
    from hermes_run.tools.background import Running

LIMIT_S = 300
MAX_CALLS = 50
NAME = "execute_code"
_BACKSTOP_S = 10.0
_MOST_MESSAGE = 5_000_000
_MOST_NUMBER = 2**53
_NO_PYTHON = 69
_LOST = "the script has ended what it ran under; its output is lost"

# `from` is there before the driver, and is told when the driver has died. Its text is no file of the
# session's folder until then; PYTHONPATH is for what the script starts.
_COMMAND = r"""
d=$HERMES_SESSION
PATH=$PATH:/usr/local/bin:/usr/bin:/bin
mkfifo "$d/from"
cat >"$d/driver.py" <<'{end}'
{driver}
{end}
PYTHONPATH="$d:$PWD${{PYTHONPATH:+:$PYTHONPATH}}" PYTHONIOENCODING=utf-8:surrogateescape
PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH PYTHONIOENCODING PYTHONDONTWRITEBYTECODE
python3 -I "$d/driver.py" "$d" || echo '{{}}' >"$d/from"
"""
_START = r"""
command -v python3 >/dev/null 2>&1 || exit {no_python}
until [ -p "$d/from" ]; do sleep 0.01 2>/dev/null || sleep 1; done
"""
_EXCHANGE = r"""
cat >"$d/in" && cat "$d/from"
"""


class ExecuteCode:
    """Runs a Python script in the sandbox and answers its calls of tools."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        NAME,
        "Run a Python script that can call your other tools as functions: from hermes_tools import terminal, "
        "read_file. Each takes the tool's parameters and returns its result as a dict; a failed call has "
        '"error" in it. For several calls with logic between them: loops, filters, conditions. Only what the '
        f"script prints comes back, at most {MAX_CHARS} bytes. Limits: {LIMIT_S} seconds, {MAX_CALLS} calls. "
        "It runs in the working directory of terminal, with the standard library and what else is installed.",
        {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "The script. Print what you need."}},
            "required": ["code"],
        },
    )

    def __init__(self, session: ToolSession) -> None:
        self._session = session
        self._background = Background(session.sandbox, f"{session.task.key} {NAME}")

    @staticmethod
    def missing(machine: Any) -> str:
        """Nothing that is known before the sandbox is there; without python3 there, a call says so."""
        del machine
        return ""

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run. Result: `status` (success, error or timeout), `output`, `exit_code`, `tool_calls_made`.

        And `duration_seconds` (whole, so that equal runs have equal results), `error` (null when the
        script ran to its end, whatever its exit code).
        """
        code = arguments["code"]
        if not code.strip():
            raise ToolError("code is empty; write a Python script that prints what you need")
        script = _Script(self._session, self._background, LIMIT_S)
        end = await script.run(code)
        output = bytes_of(end["head"])
        result = ExecResult(
            output + bytes_of(end["tail"]), end["exit_code"], omitted=end["omitted"], head=len(output)
        )
        timed_out = bool(end["timed_out"])
        return {
            "status": "timeout" if timed_out else "error" if result.exit_code else "success",
            "output": shown(result),
            "exit_code": result.exit_code,
            "tool_calls_made": script.calls_made,
            "duration_seconds": math.floor(end["seconds"]),
            "error": f"timed out after {LIMIT_S} s; it was ended with all it had started"
            if timed_out
            else None,
        }

    async def aclose(self) -> None:
        """Nothing to give back: what a script left behind ends with the sandbox."""


class _Script:
    """One script while it runs."""

    def __init__(self, session: ToolSession, background: Background, limit_s: float) -> None:
        self._session = session
        self._background = background
        self._limit_s = limit_s
        self._ends_at = time.monotonic() + limit_s
        self.calls_made = 0

    async def run(self, code: str) -> dict[str, Any]:
        """The driver's last message. Raises ToolError when there is none."""
        command = _COMMAND.format(end=mark(), driver=inside.source("code_driver"))
        running = await self._background.start(command.encode())
        self._ends_at = time.monotonic() + self._limit_s
        message = await self._exchange(running, _frame(self._first(code)), is_first=True)
        while "call" in message:
            answer = await self._answer(message["call"])
            message = await self._exchange(running, _frame(answer))
        if not _is_end(message):
            await self._background.kill(running)
            raise ToolError(_LOST)
        if message["timed_out"]:
            await self._background.kill(running)
        return message

    def _first(self, code: str) -> str:
        functions = {
            re.sub(r"\W", "_", spec.name): {
                "tool": spec.name,
                "parameters": list(spec.parameters.get("properties", {})),
                "description": spec.description,
            }
            for spec in self._session.specs
            if spec.name != NAME
        }
        files = {
            "script.py": text_of(bytes_of(code)),
            "hermes_tools.py": inside.source("hermes_tools"),
            "hermes_tools.json": json.dumps(functions),
        }
        return json.dumps({"files": files, "limit_s": self._limit_s, "max_output": ASKED_BYTES})

    async def _exchange(self, running: Running, frame: bytes, *, is_first: bool = False) -> dict[str, Any]:
        """Give the driver a frame and wait for its next message."""
        begin = mark()
        script = f"{PRELUDE}d={quote(bytes_of(running.folder))}\n"
        script += _START.format(no_python=_NO_PYTHON) if is_first else ""
        result = await self._session.sandbox.exec(
            f"{script}echo {begin}{_EXCHANGE}",
            timeout_s=max(0.0, self._ends_at - time.monotonic()) + _BACKSTOP_S,
            stdin=frame,
            max_output=_MOST_MESSAGE,
        )
        if is_first and result.exit_code == _NO_PYTHON:
            raise ToolError(
                "there is no python3 in this sandbox, and execute_code needs it; use the other tools"
            )
        _, _, said = result.output.partition(f"{begin}\n".encode())
        if result.timed_out:
            await self._background.kill(running)
            return _end(timed_out=True, seconds=self._limit_s)
        message = _decoded(said)
        if not message:
            await self._background.kill(running)
            raise ToolError(_LOST)
        return message

    async def _answer(self, request: Any) -> str:
        """The result of one call, as JSON text. The script may have written the request itself."""
        if not isinstance(request, dict) or not isinstance(request.get("name"), str):
            return json.dumps({"error": "that is no call of a tool; import the functions of hermes_tools"})
        name, arguments = request["name"], request.get("arguments")
        if self.calls_made >= MAX_CALLS:
            return json.dumps({"error": f"a script may call tools {MAX_CALLS} times, and has; go on without"})
        self.calls_made += 1
        text = clean(json.dumps(arguments, ensure_ascii=False))
        if name == NAME:
            self._session.aside.calls.append(InnerCall(NAME, failed=True))
            return json.dumps({"error": f"{NAME} cannot call itself; call the function in this script"})
        limit = asyncio.timeout_at(asyncio.get_running_loop().time() + self._ends_at - time.monotonic())
        try:
            async with limit:
                answer = await self._session.call_tool(ToolCall("", name, text))
        except TimeoutError:
            if not limit.expired():
                raise
            self._session.aside.calls.append(InnerCall(name, failed=True))
            return json.dumps({"error": "not finished: the time of the script is over"})
        self._session.aside.calls.append(InnerCall(name, failed=answer.failed, known=answer.known))
        return json.dumps(restore_within(json.loads(answer.text)))


def _frame(text: str) -> bytes:
    data = text.encode()
    return b"%d\n" % len(data) + data


def _is_end(message: Mapping[str, Any]) -> bool:
    """Whether it is the driver's last one: what runs there can write messages of its own."""
    model = _end(timed_out=False, seconds=0.0)
    if message.keys() != model.keys() or any(type(message[name]) is not type(model[name]) for name in model):
        return False
    return all(0 <= message[name] < _MOST_NUMBER for name in ("exit_code", "seconds", "omitted"))


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _end(*, timed_out: bool, seconds: float) -> dict[str, Any]:
    return {
        "end": True,
        "timed_out": timed_out,
        "exit_code": 124,
        "seconds": seconds,
        "head": "",
        "tail": "",
        "omitted": 0,
    }
