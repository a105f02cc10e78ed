"""Sandboxes by a Docker daemon, or by podman through its socket: one container for each rollout.

Nothing of the host is mounted and nothing is copied in: commands and outputs go over the container's
own streams, so that the daemon may be on another machine.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from hermes_run.errors import BackendMissing, SandboxError
from hermes_run.sandboxes._docker_box import DockerBox
from hermes_run.sandboxes._docker_config import what_is_missing
from hermes_run.sandboxes._docker_engine import DaemonGone, Engine
from hermes_run.sandboxes._docker_images import ImageRack
from hermes_run.sandboxes._docker_leftovers import leftovers as find_leftovers
from hermes_run.sandboxes._docker_leftovers import remove as remove_leftover
from hermes_run.sandboxes._docker_leftovers import sweep
from hermes_run.sandboxes._docker_network import Network
from hermes_run.sandboxes._ending import to_the_end
from hermes_run.sandboxes._ground import Ground, owner
from hermes_run.sandboxes._images import ImageShelf

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from hermes_run.core.contracts import Leftover, Sandbox, SandboxRequest
    from hermes_run.sandboxes._docker_images import Image
    from hermes_run.spec.model import Settings

_REMOVALS = 8
"""Threads besides those of starts: for removals, fetches and what is too big for the wire."""


class DockerBackend:
    """See `Backend`.

    Args:
        run_name: for labels.
        settings: the machine's; `sandbox.docker_socket` and `sandbox.starts_in_flight` count here.
    """

    name: ClassVar[str] = "docker"
    uses_images: ClassVar[bool] = True

    def __init__(self, run_name: str, settings: Settings) -> None:
        self._run = run_name
        starts = settings.sandbox.starts_in_flight
        self._starts = asyncio.Semaphore(starts)
        self._engine = Engine(settings.sandbox.docker_socket or "", starts + _REMOVALS)
        self._rack = ImageRack(self._engine)
        self._shelf = ImageShelf(self._rack.fetch)
        self._ground = Ground(run_name, self.name, self._sweep, in_memory=True)
        self._network = Network(self._engine, self._ground, run_name, owner())
        self._preparing = asyncio.Lock()
        self._number = 0

    async def check(self) -> tuple[str, ...]:
        """Ask the daemon what it can do; to try it takes an image. Raises BackendMissing."""
        daemon = await self._rack.daemon()
        kind = daemon.get("OSType") or "linux"
        if kind != "linux":
            raise BackendMissing(f"the Docker daemon runs {kind} containers", cure="switch it to Linux ones")
        return what_is_missing(daemon)

    def open(self, request: SandboxRequest) -> AbstractAsyncContextManager[Sandbox]:
        """See `Backend.open`."""
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: SandboxRequest) -> AsyncIterator[Sandbox]:
        if not request.image:
            raise SandboxError("a docker sandbox needs an image: sandbox.image, or a row's", reason="image")
        image = await self._shelf.get(request.image)
        daemon: Mapping[str, Any] = await self._rack.daemon()
        await self._prepare()
        box, shell = await self._started(request, image, daemon)
        try:
            yield shell
        finally:
            await to_the_end(box.remove())

    async def _started(
        self, request: SandboxRequest, image: Image, daemon: Mapping[str, Any]
    ) -> tuple[DockerBox, Sandbox]:
        """A sandbox; once more when the daemon went away meanwhile and came back.

        Raises BackendMissing when it did not: every further start would fail.
        """
        for is_last in (False, True):
            self._number += 1
            number = self._number
            box = DockerBox(self._engine, self._ground, daemon, request=request, image=image)
            try:
                network = await self._network.name() if request.network == "full" else "none"
                async with self._starts:
                    return box, await box.start(owner(), number, network)
            except DaemonGone:
                await to_the_end(box.remove())
                if is_last:
                    raise
            except BaseException:  # a cancellation, too, leaves nothing that was begun
                await to_the_end(box.remove())
                raise
            await self._engine.come_back()
        raise AssertionError("the last try either returned or raised")

    async def _prepare(self) -> None:
        try:
            async with self._preparing:
                if not self._ground.path:
                    await self._engine.run(self._ground.prepare)
        except OSError as error:
            why = f"no place for the run's lock: {error.strerror}"
            raise SandboxError(why, reason="sandbox_start") from error

    async def fetch(self, image: str) -> str:
        """See `Backend.fetch`."""
        return (await self._shelf.get(image)).digest

    def prefetch(self, images: Iterable[str]) -> None:
        """See `Backend.prefetch`."""
        self._shelf.prefetch(images)

    async def images_present(self, images: Iterable[str]) -> dict[str, bool]:
        """See `Backend.images_present`. Raises BackendMissing."""
        return await self._rack.present(list(images))

    def leftovers(self) -> Sequence[Leftover]:
        """Containers, networks and locks of runs whose process is gone. Raises BackendMissing."""
        return find_leftovers(self._engine)

    def remove(self, leftover: Leftover) -> None:
        """Remove one of them. Raises BackendMissing."""
        if leftover.handle in {other.handle for other in self.leftovers()}:
            remove_leftover(self._engine, leftover.handle)

    def _sweep(self, path: str) -> None:
        sweep(self._engine, path)

    async def aclose(self) -> None:
        """Remove what the run's sandboxes shared, and end what is still being fetched."""
        await self._shelf.aclose()
        await to_the_end(self._remove_shared())
        self._engine.close()

    async def _remove_shared(self) -> None:
        if self._ground.path:
            await self._engine.run(self._ground.remove_now)
