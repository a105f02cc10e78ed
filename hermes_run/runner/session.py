"""One rollout: its sandbox, its tools, its conversation; and what becomes of it.

The only `except Exception` of the package is here: a bug in one rollout is that rollout's outcome.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
import time
import traceback
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_run.agent.loop import Rollout
from hermes_run.core.artifacts import placed
from hermes_run.core.contracts import SandboxInfo, SandboxRequest, ToolSession
from hermes_run.core.messages import Message, System, Usage, User
from hermes_run.core.text import restore_bytes
from hermes_run.core.trajectory import Outcome, Status, StopReason, Trajectory
from hermes_run.errors import BudgetStop, EnvironmentStop, RolloutError, SandboxError, ToolError
from hermes_run.quality.filters import judge
from hermes_run.runner.artifacts import Kept, collect
from hermes_run.runner.backends import backend_name
from hermes_run.runner.workspace_diff import WorkspaceDiff
from hermes_run.tools.toolkit import Toolkit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from hermes_run.core.contracts import Backend, Sandbox
    from hermes_run.core.task import PromptTask
    from hermes_run.runner.resources import Resources
    from hermes_run.spec.model import Spec

_log = logging.getLogger("hermes_run.session")
_MOST_TOLD = 300
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_TIMED_OUT = '{"error": "not finished: the time limit of the prompt (agent.prompt_timeout_s) passed"}'


@dataclass(slots=True)
class Attempt:
    """One rollout's way from task to outcome; knows at any moment how far it has come."""

    task: PromptTask
    resources: Resources
    spend: Callable[[Usage], None]
    started: float = field(default_factory=time.monotonic)
    toolsets: tuple[str, ...] = ()
    rollout: Rollout | None = None
    info: SandboxInfo | None = None
    image_digest: str = ""
    kept_files: Kept = field(default_factory=Kept)

    async def run(self) -> StopReason:
        """Open the session and do the task, within the prompt's time limit; keep what is to be kept.

        An image that is still being fetched is waited for first, as long again: that is the machine's time.
        """
        self.toolsets = self.resources.toolsets_of(self.task.key)
        request = sandbox_request(self.resources.spec, self.task)
        backend = self._backend()
        if backend.uses_images and request.image:
            await self._await_image(backend, request.image)
        limit = asyncio.timeout(self.resources.spec.agent.prompt_timeout_s)
        try:
            async with limit, self.open_session(backend, request) as (rollout, keep):
                deadline = limit.when()
                limit.reschedule(None)  # from here on it is the turns', so that what follows them is not cut
                reason = await self._take_turns(rollout, deadline)
                await keep()
                return reason
        except TimeoutError:
            if not limit.expired():
                raise
            return StopReason.PROMPT_TIMEOUT

    async def _take_turns(self, rollout: Rollout, deadline: float | None) -> StopReason:
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                task, agent = self.task, self.resources.spec.agent
                return await rollout.run(task.prompt, agent.system_prompt, task.images)
        except TimeoutError:
            if not limit.expired():
                raise
            rollout.close(_TIMED_OUT)
            return StopReason.PROMPT_TIMEOUT

    async def _await_image(self, backend: Backend, image: str) -> None:
        longest_s = self.resources.spec.agent.prompt_timeout_s
        limit = asyncio.timeout(longest_s)
        try:
            async with limit:
                self.image_digest = await backend.fetch(image)
        except TimeoutError:
            if not limit.expired():
                raise
            raise SandboxError(
                f'the image "{image}" was not here within agent.prompt_timeout_s ({longest_s:g} s): look at'
                " the network and its registry, fetch it beforehand, or raise the limit; then run again",
                reason="image",
            ) from None

    def _backend(self) -> Backend:
        resources = self.resources
        return resources.backends[backend_name(resources.spec, resources.settings, self.task.image)]

    @asynccontextmanager
    async def open_session(
        self, backend: Backend, request: SandboxRequest
    ) -> AsyncIterator[tuple[Rollout, Callable[[], Awaitable[None]]]]:
        """The sandbox with the row's files and set-up done, the tools, the conversation.

        Beside it what keeps the workspace's artifacts, to be called when the turns are over.
        """
        resources, task = self.resources, self.task
        spec = resources.spec.sandbox
        async with backend.open(request) as sandbox:
            self.info = sandbox.info
            self.image_digest = sandbox.info.image_digest
            diff = WorkspaceDiff(sandbox) if spec.diff else None
            try:
                await prepare(sandbox, task, spec.setup, spec.start_timeout_s)
                if diff is not None:
                    await diff.remember()
            except ToolError as error:
                raise SandboxError(f"the set-up failed: {error}", reason="sandbox_start") from error
            names = resources.tools_of(self.toolsets)
            session = ToolSession(task, sandbox, names, outside=resources.outside, keep=self.kept_files.add)
            toolkit = Toolkit(names, session, resources.extra, resources.redact)
            try:
                chat = resources.model.start(task, resources.opening, toolkit.specs)
                self.rollout = Rollout(
                    chat,
                    toolkit,
                    resources.countable,
                    resources.spec.agent.max_turns,
                    most_cost=resources.spec.limits.prompt_cost,
                    most_tokens=resources.spec.limits.prompt_tokens,
                    spend=self.spend,
                )
                yield self.rollout, lambda: collect(sandbox, spec.artifacts, diff, self.kept_files)
            finally:
                await toolkit.aclose()

    def kept(self, stop_reason: StopReason) -> Outcome:
        """The outcome of a rollout that has a trajectory."""
        rollout, spec, resources = self.rollout, self.resources.spec, self.resources
        finished_at = now()
        backend = self.info.backend if self.info else backend_name(spec, resources.settings, self.task.image)
        artifacts = placed(self.task.key, self.kept_files.artifacts)
        trajectory = Trajectory(
            key=self.task.key,
            prompt_index=self.task.prompt_index,
            messages=tuple(rollout.messages if rollout and rollout.messages else self._unasked()),
            stop_reason=stop_reason,
            api_calls=rollout.api_calls if rollout else 0,
            toolsets=self.toolsets,
            tool_counts=dict(rollout.counts) if rollout else {},
            unknown_tools=tuple(rollout.unknown) if rollout else (),
            usage=rollout.usage if rollout else Usage(),
            model=spec.model.name,
            served_model=",".join(sorted(rollout.served)) if rollout else "",
            provider=",".join(sorted(rollout.providers)) if rollout else "",
            served_calls=tuple(rollout.served_calls) if rollout else (),
            draw=dict(spec.distribution.toolsets),
            work=resources.work,
            backend=backend,
            limits_missing=self.info.missing if self.info else resources.limits_missing.get(backend, ()),
            image_digest=self.image_digest,
            artifacts=tuple(artifact.path for artifact in artifacts),
            artifacts_left_out=self.kept_files.left_out,
            row=self.task.row,
            batch=self.task.batch,
            timestamp=finished_at,
        )
        status, reason = judge(trajectory, resources.filters)
        return Outcome(
            key=self.task.key,
            prompt_index=self.task.prompt_index,
            batch=self.task.batch,
            status=status,
            reason=reason,
            duration_s=self._duration(),
            finished_at=finished_at,
            work=resources.work,
            trajectory=trajectory,
            usage=trajectory.usage,
            artifacts=artifacts,
        )

    def failed(self, reason: str, error: str, usage: Usage | None = None) -> Outcome:
        """The outcome of a rollout that has none."""
        rollout = self.rollout
        return Outcome(
            key=self.task.key,
            prompt_index=self.task.prompt_index,
            batch=self.task.batch,
            status=Status.FAILED,
            reason=reason,
            duration_s=self._duration(),
            finished_at=now(),
            work=self.resources.work,
            error=self.resources.redact(error),
            usage=(rollout.usage if rollout else Usage()) + (usage or Usage()),
            toolsets=self.toolsets,
            api_calls=rollout.api_calls if rollout else 0,
            served_model=",".join(sorted(rollout.served)) if rollout else "",
            image_digest=self.image_digest,
        )

    def _unasked(self) -> list[Message]:
        system = self.resources.spec.agent.system_prompt
        return [*([System(system)] if system else []), User(self.task.prompt)]

    def _duration(self) -> float:
        return round(time.monotonic() - self.started, 3)


def now() -> str:
    """The time, ISO 8601 in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())


def sandbox_request(spec: Spec, task: PromptTask) -> SandboxRequest:
    """What a rollout needs of its sandbox."""
    box = spec.sandbox
    return SandboxRequest(
        run=spec.run_name,
        key=task.key,
        row_id=task.row_id,
        image=task.image or box.image or "",
        cwd=task.cwd or box.cwd or "",
        network=box.network,
        cpus=box.cpus,
        memory_mb=box.memory_mb,
        pids=box.pids,
        start_timeout_s=box.start_timeout_s,
    )


async def prepare(sandbox: Sandbox, task: PromptTask, setup: tuple[str, ...], timeout_s: float) -> None:
    """Write the row's files and run the set-up commands, the spec's first.

    Raises SandboxError (sandbox_start) when one of them fails.
    """
    for path, text in task.files.items():
        folder, quoted = shlex.quote(str(Path(path).parent)), shlex.quote(f"./{path}")
        command = f"mkdir -p -- {folder} && cat > {quoted}"
        result = await sandbox.exec(command, stdin=restore_bytes(text), timeout_s=timeout_s)
        if result.exit_code:
            why = told(task, f"file {path!r}", result.output)
            raise SandboxError(
                f"the file {path!r} of the row cannot be written: {why}", reason="sandbox_start"
            )
    for number, command in enumerate((*setup, *task.setup), 1):
        result = await sandbox.exec(command, timeout_s=timeout_s, keep_state=True)
        if result.exit_code:
            why = f"after {timeout_s:g} s" if result.timed_out else f"(exit code {result.exit_code})"
            said = told(task, f"set-up command {number}", result.output)
            raise SandboxError(f"set-up command {number} failed {why}: {said}", reason="sandbox_start")


def told(task: PromptTask, what: str, output: bytes) -> str:
    """The last line of an output that says something: as it is to run.log, without what varies returned.

    An entry's error is the same in equal runs: no numbers (a process, a port, a time), no temporary path.
    """
    from hermes_run.models.verdicts import scrub

    lines = output.decode("utf-8", "replace").split("\n")
    line = next((line.strip() for line in reversed(lines) if line.strip()), "no output")[:_MOST_TOLD]
    _log.info("%s %s: %s", task.key, what, line)
    return _NUMBER.sub("…", scrub(line))


async def run_prompt(task: PromptTask, resources: Resources, spend: Callable[[Usage], None]) -> Outcome:
    """One rollout from task to outcome; `spend` hears of what it is billed, as it happens.

    Raises only what ends the run: EnvironmentStop, BudgetStop.
    """
    attempt = Attempt(task, resources, spend)
    try:
        return attempt.kept(await attempt.run())
    except (EnvironmentStop, BudgetStop):
        raise
    except RolloutError as error:
        _log.warning("%s failed, %s: %s", task.key, error.reason, error)
        return attempt.failed(error.reason, str(error), error.usage)
    except Exception as bug:  # noqa: BLE001 - a bug in one rollout is that rollout's outcome
        _log.exception("%s failed by a bug", task.key)
        frame = traceback.extract_tb(bug.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        return attempt.failed("internal", f"{type(bug).__name__} at {where}; the traceback is in run.log")
