"""What every backend has in common whose sandboxes are processes of ours (`Box`), on the ground of a run."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

from hermes_run.core.contracts import Leftover, SandboxRequest
from hermes_run.errors import BackendMissing, SandboxError
from hermes_run.sandboxes._ending import to_the_end
from hermes_run.sandboxes._ground import Ground, leftover_folders

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from hermes_run.core.contracts import Sandbox
    from hermes_run.sandboxes._box import Box
    from hermes_run.spec.model import Settings

_PLAIN = re.compile(r"[\w/.+@%~-]+")
"""Paths that no shell and no option of a sandbox's program takes apart."""


class BoxBackend:
    """The part of `Backend` that is neither how a sandbox is made nor where its image comes from.

    Args:
        run_name: for labels.
        settings: the machine's; `sandbox.starts_in_flight` bounds the starts at one time.
        sweep: removes the ground of a dead run, given its path.
        in_memory: whether the ground holds nothing big.
    """

    name: ClassVar[str]
    takes_any_folder: ClassVar[bool] = False
    """Whether the path of the run's ground may hold blanks, quotes and the like."""

    def __init__(
        self, run_name: str, settings: Settings, sweep: Callable[[str], None], *, in_memory: bool
    ) -> None:
        self._run = run_name
        self._starts = asyncio.Semaphore(settings.sandbox.starts_in_flight)
        self._sweep = sweep
        self._ground = Ground(run_name, self.name, sweep, in_memory=in_memory)

    async def _try(
        self, opening: Callable[[SandboxRequest], AbstractAsyncContextManager[Sandbox]]
    ) -> tuple[str, ...]:
        """Start a sandbox and run a command in it; what it misses. Raises BackendMissing."""
        if not self.takes_any_folder and not _PLAIN.fullmatch(self._ground.parent):
            raise BackendMissing(
                f"{self.name} does not work in a folder for temporary files with such a name:"
                f" {self._ground.parent!r}",
                cure="name another in TMPDIR, of letters, digits and / . _ - only",
            )
        request = SandboxRequest(run=self._run, key="check", start_timeout_s=20)
        try:
            async with opening(request) as sandbox:
                result = await sandbox.exec("echo works", timeout_s=10)
                missing = sandbox.info.missing
        except SandboxError as error:
            raise BackendMissing(f"{self.name} does not work here: {error.why}", cure=error.cure) from error
        if result.output != b"works\n":
            raise BackendMissing(f"a {self.name} sandbox answers {result.output!r} to `echo works`")
        return missing

    @asynccontextmanager
    async def _life(self, make: Callable[[], Box]) -> AsyncIterator[Sandbox]:
        """A sandbox from its start to its removal, which no cancellation cuts short."""
        try:
            box = make()
        except OSError as error:
            why = f"no place for the run's sandboxes: {error.strerror}"
            raise SandboxError(why, reason="sandbox_start") from error
        try:
            async with self._starts:
                shell = await box.start()
            yield shell
        finally:
            await to_the_end(box.remove())

    def leftovers(self) -> Sequence[Leftover]:
        """Folders, with the processes and control groups of theirs, of runs whose process is gone."""
        return leftover_folders(self.name)

    def remove(self, leftover: Leftover) -> None:
        """Remove one of them."""
        if leftover.handle in {other.handle for other in self.leftovers()}:
            self._sweep(leftover.handle)

    async def aclose(self) -> None:
        """Remove what the run's sandboxes shared."""
        self._ground.remove_now()
