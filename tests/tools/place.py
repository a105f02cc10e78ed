"""Tools in a real sandbox, called as the turn loop calls them."""

from __future__ import annotations

import asyncio
import json
import shlex
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from msgspec import structs

from hermes_run.core.contracts import SandboxRequest, ToolSession
from hermes_run.core.messages import ToolCall
from hermes_run.core.registry import BACKENDS, TOOLS, load
from hermes_run.core.task import PromptTask
from hermes_run.spec.model import Settings
from hermes_run.tools.toolkit import Toolkit

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from hermes_run.core.answers import ToolAnswer
    from hermes_run.core.contracts import Backend, ExecResult, Sandbox, SandboxInfo

READY = tuple(name for name, row in TOOLS.items() if row.path)
"""The tools that exist."""


class OtherShell:
    """A sandbox whose tools find another shell: what sandboxes without bash are like.

    Commands that keep state go to the kept shell as they are, all others to `words -c`.
    """

    def __init__(self, inner: Sandbox, words: str, first: str = "") -> None:
        self._inner = inner
        self._words = words
        self._first = first
        self.info: SandboxInfo = structs.replace(inner.info, shell="sh")

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
        if not keep_state:
            command = f"{self._first}exec {self._words} -c {shlex.quote(command)}"
        return await self._inner.exec(
            command,
            timeout_s=timeout_s,
            stdin=stdin,
            workdir=workdir,
            keep_state=keep_state,
            max_output=max_output,
        )


class Place:
    """One rollout's toolkit over one sandbox, without the turn loop."""

    def __init__(self, backend: str = "bubblewrap", key: str = "k#0") -> None:
        self._backend_name = backend
        self._key = key
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._folders = 0
        self.box: Sandbox
        self.kit: Toolkit
        self.cwd = ""
        """The folder that the test works in."""

    def __enter__(self) -> Self:
        try:
            self.run(self._open())
            self.begin_anew()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def begin_anew(self) -> None:
        """Go to a new folder, with new tools."""
        self._folders += 1
        self.cwd = f"{self.box.info.cwd}/{self._folders}"
        self.sh(f"mkdir {self.cwd} && cd {self.cwd}", keep=True)
        self.use(self.box)

    async def _open(self) -> None:
        kind = load("sandbox backend", BACKENDS, self._backend_name)
        backend: Backend = kind("tools", Settings())
        self._stack.push_async_callback(backend.aclose)
        self.box = await self._stack.enter_async_context(
            backend.open(SandboxRequest(run="tools", key=self._key))
        )
        self.use(self.box)

    def use(self, box: Sandbox) -> None:
        """Begin anew with this sandbox."""
        self.box = box
        task = PromptTask(f"{self._key}{self._folders}", 0, "a prompt")
        self.kit = Toolkit(READY, ToolSession(task, box, READY))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.run(self._stack.aclose())
        finally:
            self._runner.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something asynchronous."""
        return self._runner.run(work)

    def answer(self, name: str, arguments: str) -> ToolAnswer:
        """Call a tool with a JSON text."""
        answer: ToolAnswer = self.run(self.kit.call(ToolCall("c1", name, arguments)))
        return answer

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool; its result, which must not have failed."""
        answer = self.answer(name, json.dumps(arguments))
        result: dict[str, Any] = json.loads(answer.text)
        assert not answer.failed, result
        return result

    def error(self, name: str, **arguments: Any) -> str:
        """Call a tool that has to fail; its error."""
        answer = self.answer(name, json.dumps(arguments))
        assert answer.failed, answer.text
        return str(json.loads(answer.text)["error"])

    def sh(self, command: str, stdin: bytes = b"", *, keep: bool = False) -> bytes:
        """What a command prints, past the tools; it has to succeed."""
        result: ExecResult = self.run(
            self.box.exec(command, timeout_s=30, stdin=stdin, keep_state=keep, max_output=20_000_000)
        )
        assert result.exit_code == 0, result
        return result.output

    def put(self, path: str, content: bytes) -> None:
        """Write a file past the tools."""
        folder, _, _ = path.rpartition("/")
        made = f"mkdir -p -- {shlex.quote(folder)} && " if folder else ""
        self.sh(f"{made}cat >{shlex.quote(path)}", content)

    def get(self, path: str) -> bytes:
        """Read a file past the tools."""
        return self.sh(f"cat -- {shlex.quote(path)}")
