"""Commands run as the user on the host, in a private folder with a filtered environment.

No isolation and no limits, which `missing` says: only for where no real sandbox works, and only when
the spec asks for it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

from hermes_run.core.contracts import Leftover, SandboxRequest
from hermes_run.errors import BackendMissing, SandboxError
from hermes_run.sandboxes._ending import to_the_end
from hermes_run.sandboxes._ground import Ground, leftover_folders, mark_of, remove_ground
from hermes_run.sandboxes._local_box import LocalBox, kill_marked
from hermes_run.sandboxes._no_images import NoImages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from hermes_run.core.contracts import Sandbox
    from hermes_run.spec.model import Settings


class LocalBackend(NoImages):
    """See `Backend`.

    Args:
        run_name: for labels.
        settings: the machine's; `sandbox.starts_in_flight` bounds the starts at one time.
    """

    name: ClassVar[str] = "local"
    uses_images: ClassVar[bool] = False

    def __init__(self, run_name: str, settings: Settings) -> None:
        self._run = run_name
        self._starts = asyncio.Semaphore(settings.sandbox.starts_in_flight)
        self._ground = Ground(run_name, self.name, sweep, in_memory=False)

    async def check(self) -> tuple[str, ...]:
        """Start a shell and run a command in it. Raises BackendMissing."""
        request = SandboxRequest(run=self._run, key="check", start_timeout_s=20)
        try:
            async with self.open(request) as box:
                result = await box.exec("echo works", timeout_s=10)
                missing = box.info.missing
        except SandboxError as error:
            raise BackendMissing(f"local shells do not work here: {error.why}", cure=error.cure) from error
        if result.output != b"works\n":
            raise BackendMissing(f"a local shell answers {result.output!r} to `echo works`")
        return missing

    def open(self, request: SandboxRequest) -> AbstractAsyncContextManager[Sandbox]:
        """See `Backend.open`."""
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: SandboxRequest) -> AsyncIterator[Sandbox]:
        box = LocalBox(self._ground, request)
        try:
            async with self._starts:
                shell = await box.start()
            yield shell
        finally:
            await to_the_end(box.remove())

    def leftovers(self) -> Sequence[Leftover]:
        """Folders, with the processes started there, of runs whose process is gone."""
        return leftover_folders(self.name)

    def remove(self, leftover: Leftover) -> None:
        """Remove one of them."""
        if leftover.handle in {other.handle for other in self.leftovers()}:
            sweep(leftover.handle)

    async def aclose(self) -> None:
        """Remove what the run's sandboxes shared."""
        self._ground.remove_now()


def sweep(path: str) -> None:
    """Remove the ground of a dead run, with the processes that were started there."""
    kill_marked(mark_of(path))
    remove_ground(path)
