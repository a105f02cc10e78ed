"""Sandboxes by apptainer or singularity: made from an image, without a daemon, as processes of the runner.

What a sandbox writes lives in its own memory, as with bubblewrap. As root its processes are root without any
privilege; as another user they are that user in a user namespace. `network: full` is the host's own
network, with everything that listens on it, the cloud's metadata address included: nothing can be left out.
The sandbox is in the host's cgroup namespace, and a setuid installation that the runner is not root of keeps
the site's configuration (its limit on what is written, its passwd entry).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

from hermes_run.core.contracts import Leftover, SandboxRequest
from hermes_run.errors import BackendMissing, SandboxError
from hermes_run.sandboxes._ending import to_the_end
from hermes_run.sandboxes._ground import Ground, leftover_folders
from hermes_run.sandboxes._images import ImageShelf
from hermes_run.sandboxes._namespaced import sweep_namespaced
from hermes_run.sandboxes._processes import process_table
from hermes_run.sandboxes._singularity_box import SingularityBox
from hermes_run.sandboxes._singularity_images import Image, ImageCache
from hermes_run.sandboxes._singularity_machine import Machine, find_binary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from hermes_run.core.contracts import Sandbox
    from hermes_run.spec.model import Settings

_CACHE = "~/.cache/hermes-run/images"


class SingularityBackend:
    """See `Backend`.

    Args:
        run_name: for labels.
        settings: the machine's: `sandbox.singularity_binary`, `image_cache`, `allow_local_images`, and
            `starts_in_flight`, which bounds the starts at one time.
    """

    name: ClassVar[str] = "singularity"
    uses_images: ClassVar[bool] = True

    def __init__(self, run_name: str, settings: Settings) -> None:
        self._run = run_name
        self._settings = settings.sandbox
        self._starts = asyncio.Semaphore(settings.sandbox.starts_in_flight)
        self._ground = Ground(run_name, self.name, sweep, in_memory=True)
        self._shelf = ImageShelf(self._fetch)
        self._made: Machine | None = None

    async def check(self) -> tuple[str, ...]:
        """Start a sandbox from this machine's own files, and run a command in it. Raises BackendMissing."""
        request = SandboxRequest(run=self._run, key="check", start_timeout_s=20)
        try:
            async with self._started(request, lambda machine: machine.host_image()) as box:
                result = await box.exec("echo works", timeout_s=10)
                missing = box.info.missing
        except SandboxError as error:
            raise BackendMissing(f"singularity does not work here: {error.why}", cure=error.cure) from error
        if result.output != b"works\n":
            raise BackendMissing(f"a singularity sandbox answers {result.output!r} to `echo works`")
        return missing

    def open(self, request: SandboxRequest) -> AbstractAsyncContextManager[Sandbox]:
        """See `Backend.open`."""
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: SandboxRequest) -> AsyncIterator[Sandbox]:
        image = await self._shelf.get(request.image)
        async with self._started(request, lambda _: image) as box:
            yield box

    @asynccontextmanager
    async def _started(
        self, request: SandboxRequest, choose: Callable[[Machine], Image]
    ) -> AsyncIterator[Sandbox]:
        try:
            machine = self._machine()
            image = choose(machine)
        except OSError as error:
            why = f"no place for the run's sandboxes: {error.strerror}"
            raise SandboxError(why, reason="sandbox_start") from error
        box = SingularityBox(machine, self._ground, request, image)
        try:
            async with self._starts:
                shell = await box.start()
            yield shell
        finally:
            await to_the_end(box.remove())

    def _machine(self) -> Machine:
        if self._made is None:
            self._made = Machine(self._ground, find_binary(self._settings.singularity_binary))
        return self._made

    async def fetch(self, image: str) -> str:
        """See `Backend.fetch`."""
        return (await self._shelf.get(image)).digest

    def prefetch(self, images: Iterable[str]) -> None:
        """See `Backend.prefetch`."""
        self._shelf.prefetch(images)

    async def images_present(self, images: Iterable[str]) -> dict[str, bool]:
        """See `Backend.images_present`."""
        cache = self._cache("")
        return {image: cache.is_present(image) for image in images}

    async def _fetch(self, image: str) -> Image:
        return await self._cache(find_binary(self._settings.singularity_binary)).fetch(image)

    def _cache(self, binary: str) -> ImageCache:
        folder = str(self._settings.image_cache or os.path.expanduser(_CACHE))
        return ImageCache(folder, binary, allows_local=self._settings.allow_local_images)

    def leftovers(self) -> Sequence[Leftover]:
        """Folders, with their control groups, of runs whose process is gone."""
        return leftover_folders(self.name)

    def remove(self, leftover: Leftover) -> None:
        """Remove one of them."""
        if leftover.handle in {other.handle for other in self.leftovers()}:
            sweep(leftover.handle)

    async def aclose(self) -> None:
        """Give up what is still being fetched, and remove what the run's sandboxes shared."""
        await self._shelf.aclose()
        self._ground.remove_now()


def sweep(path: str) -> None:
    """Remove the ground of a dead run, with the sandboxes that may still live, and their control groups."""
    sweep_namespaced(path, lambda: _orphans(os.path.basename(path).encode()))


def _orphans(name: bytes) -> set[int]:
    """The processes that see something of the ground `name` mounted: nobody outside a sandbox of it does."""
    found = set()
    for pid in process_table():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/mountinfo", "rb") as file:
            if name in file.read():
                found.add(pid)
    return found
