"""The browser tools over a real Chromium in its jail, a site on loopback and a real sandbox."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from hermes_run.core.contracts import SandboxRequest, ToolSession
from hermes_run.core.messages import ToolCall
from hermes_run.core.registry import BACKENDS, TOOLS, load
from hermes_run.core.task import PromptTask
from hermes_run.outside.outside import Outside
from hermes_run.spec.model import DatasetSpec, Distribution, Settings, Spec, ToolsSpec
from hermes_run.tools.toolkit import Toolkit

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from hermes_run.core.contracts import Sandbox

NAMES = tuple(name for name, row in TOOLS.items() if name.startswith("browser_") and row.path)


class Lab:
    """One run's `Outside`, and rollouts in it, each with tools of its own."""

    def __init__(self, path: Path, hosts: list[str], settings: Settings | None = None) -> None:
        spec = Spec(
            run_name="browsing",
            dataset=DatasetSpec(path=path),
            batch_size=1,
            distribution=Distribution(name="custom", toolsets={"browser": 100}),
            tools=ToolsSpec(allowed_hosts=tuple(hosts)),
        )
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self.settings = settings or Settings()
        self.spec = spec
        self.outside: Outside
        self.box: Sandbox
        self.kept: dict[str, bytes] = {}

    def __enter__(self) -> Self:
        self.run(self._open())
        return self

    async def _open(self) -> None:
        backend = load("sandbox backend", BACKENDS, "bubblewrap")("browsing", self.settings)
        self._stack.push_async_callback(backend.aclose)
        self.box = await self._stack.enter_async_context(backend.open(SandboxRequest(run="b", key="k#0")))
        self.outside = Outside(self.spec, self.settings)
        self._stack.push_async_callback(self.outside.aclose)

    def __exit__(self, *_: object) -> None:
        try:
            self.run(self._stack.aclose())
        finally:
            self._runner.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something asynchronous."""
        return self._runner.run(work)

    def rollout(self, key: str = "k#0") -> Rollout:
        """A new rollout."""
        session = ToolSession(
            PromptTask(key, 0, "p"),
            self.box,
            NAMES,
            shared={},
            outside=self.outside,
            keep=self.kept.__setitem__,
        )
        return Rollout(self, Toolkit(NAMES, session))


class Rollout:
    """One rollout's browser tools."""

    def __init__(self, lab: Lab, kit: Toolkit) -> None:
        self._lab = lab
        self.kit = kit

    async def ask(self, name: str, **arguments: Any) -> tuple[dict[str, Any], bool]:
        """A call and whether it failed."""
        answer = await self.kit.call(ToolCall("c", f"browser_{name}", json.dumps(arguments)))
        result: dict[str, Any] = json.loads(answer.text)
        return result, answer.failed

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """A call that must not fail."""
        result, failed = self._lab.run(self.ask(name, **arguments))
        assert not failed, result
        assert result["success"] is True
        return dict(result)

    def result(self, name: str, **arguments: Any) -> tuple[dict[str, Any], bool]:
        """A call, and whether it failed."""
        answer: tuple[dict[str, Any], bool] = self._lab.run(self.ask(name, **arguments))
        return answer

    def error(self, name: str, **arguments: Any) -> str:
        """A call that must fail."""
        result, failed = self._lab.run(self.ask(name, **arguments))
        assert failed, result
        return str(result["error"])

    def ref(self, what: str) -> str:
        """The ref of the line of a new snapshot that holds a text."""
        snapshot = self.call("snapshot", full=True)["snapshot"]
        line = next(line for line in snapshot.split("\n") if what in line)
        return "@" + str(line.partition("[ref=")[2].partition("]")[0])

    def close(self) -> None:
        """End it."""
        self._lab.run(self.kit.aclose())
