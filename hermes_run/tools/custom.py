"""A user's own functions as tools: each call in a process of its own, in the sandbox or on the host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_run.errors import ToolError
from hermes_run.tools import inside
from hermes_run.tools.programs import end_program
from hermes_run.tools.shell import PRELUDE, bytes_of, mark, quote, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_run.core.contracts import Sandbox, ToolSession, ToolSpec
    from hermes_run.spec.own_tools import OwnTool

TIMEOUT_S = 180.0
MAX_RESULT_BYTES = 200_000
_MOST_READ = MAX_RESULT_BYTES * 4
_NO_PYTHON = 69


@dataclass(frozen=True, slots=True)
class OwnToolKind:
    """What makes the tool of each rollout."""

    own: OwnTool

    @property
    def spec(self) -> ToolSpec:
        """How it is offered."""
        return self.own.spec

    def __call__(self, session: ToolSession) -> _OwnTool:
        """The tool for one rollout."""
        return _OwnTool(self.own, session.sandbox)


class _OwnTool:
    def __init__(self, own: OwnTool, sandbox: Sandbox) -> None:
        self.spec = own.spec
        self._own = own
        self._sandbox = sandbox

    @staticmethod
    def missing(machine: Any) -> str:
        """Nothing that is known before the sandbox is there."""
        del machine
        return ""

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call the function. What it returns is the result: a dict as it is, else under `result`."""
        begin = mark()
        order = {
            "mark": begin,
            "name": self._own.path.name,
            "file": str(self._own.path) if self._own.host else self._own.path.name,
            "folder": str(self._own.path.parent) if self._own.host else "",
            "module": self._own.path.stem,
            "source": self._own.source,
            "function": self.spec.name,
            "arguments": {name: _as_sent(value) for name, value in arguments.items()},
        }
        data = json.dumps(order).encode()
        said = await (self._on_host(data) if self._own.host else self._in_sandbox(data))
        return self._result(said, begin.encode())

    async def _in_sandbox(self, order: bytes) -> bytes:
        program = quote(inside.source("own_tool").encode())
        result = await self._sandbox.exec(
            f"{PRELUDE}command -v python3 >/dev/null 2>&1 || exit {_NO_PYTHON}\nexec python3 -I -c {program}",
            timeout_s=TIMEOUT_S,
            stdin=order,
            max_output=_MOST_READ,
        )
        if result.timed_out:
            raise ToolError(_too_slow())
        if result.exit_code == _NO_PYTHON:
            raise ToolError(
                f"there is no python3 in this sandbox, and {self.spec.name} needs it; use other tools"
            )
        if result.omitted:
            raise ToolError(self._too_long(len(result.output) + result.omitted))
        return result.output

    async def _on_host(self, order: bytes) -> bytes:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            inside.source("own_tool"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=self._own.path.parent,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._heard(process, order)
        except TimeoutError:
            raise ToolError(_too_slow()) from None
        finally:
            await asyncio.shield(asyncio.ensure_future(end_program(process)))

    async def _heard(self, process: asyncio.subprocess.Process, order: bytes) -> bytes:
        """What a process on the host says, up to a bound."""
        if process.stdin is None or process.stdout is None:
            raise AssertionError("it was started with pipes")
        with contextlib.suppress(OSError):  # it may have ended before it heard all
            process.stdin.write(order)
            await process.stdin.drain()
            process.stdin.close()
        said = bytearray()
        while piece := await process.stdout.read(2**16):
            said += piece
            if len(said) > _MOST_READ:
                raise ToolError(
                    f"the result of {self.spec.name} is more than {MAX_RESULT_BYTES} bytes; ask for less"
                )
        return bytes(said)

    def _result(self, said: bytes, begin: bytes) -> Mapping[str, Any]:
        parts = said.split(begin)
        try:
            answer = json.loads(parts[1]) if len(parts) == 3 else None
        except ValueError:
            answer = None
        if answer is None:
            raise ToolError(f"{self.spec.name} ended without a result; try other arguments or another way")
        if "raised" in answer:
            where = f" ({self._own.path.name}, line {answer['line']})" if answer["line"] else ""
            raise ToolError(f"{answer['raised']}{where}")
        if len(parts[1]) > MAX_RESULT_BYTES:
            raise ToolError(self._too_long(len(parts[1])))
        returned = answer["returned"]
        return returned if isinstance(returned, dict) else {"result": returned}

    def _too_long(self, size: int) -> str:
        return f"the result of {self.spec.name} is {size} bytes, more than {MAX_RESULT_BYTES}; ask for less"

    async def aclose(self) -> None:
        """Nothing to give back."""


def _too_slow() -> str:
    return f"timed out after {TIMEOUT_S:g} s; try other arguments or another way"


def _as_sent(value: Any) -> Any:
    """Arguments whose texts any JSON reader takes: halves that are no bytes in their 3-byte form."""
    if isinstance(value, str):
        return text_of(bytes_of(value))
    if isinstance(value, list):
        return [_as_sent(item) for item in value]
    if isinstance(value, dict):
        return {name: _as_sent(item) for name, item in value.items()}
    return value
