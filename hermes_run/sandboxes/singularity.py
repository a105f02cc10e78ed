"""Sandboxes by apptainer or singularity: made from an image, without a daemon, as processes of the runner.

What a sandbox writes lives in its own memory, as with bubblewrap. As root its processes are root without any
privilege; as another user they are that user in a user namespace. `network: full` is the host's own
network, with everything that listens on it, the cloud's metadata address included: nothing can be left out.
The sandbox is in the host's cgroup namespace, and a setuid installation that the runner is not root of keeps
the site's configuration (its limit on what is written, its passwd entry).
"""

from __future__ import annotations

import contextlib
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar

from hermes_run.sandboxes._box_backend import BoxBackend
from hermes_run.sandboxes._images import ImageShelf
from hermes_run.sandboxes._namespaced import sweep_namespaced
from hermes_run.sandboxes._processes import process_table
from hermes_run.sandboxes._singularity_box import SingularityBox
from hermes_run.sandboxes._singularity_images import Image, ImageCache
from hermes_run.sandboxes._singularity_machine import Machine, find_binary

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from contextlib import AbstractAsyncContextManager

    from hermes_run.core.contracts import Sandbox, SandboxRequest
    from hermes_run.spec.model import Settings

_CACHE = "~/.cache/hermes-run/images"


class SingularityBackend(BoxBackend):
    """See `Backend`.

    Args:
        run_name: for labels.
        settings: the machine's: `sandbox.singularity_binary`, `image_cache`, `allow_local_images`, and
            `starts_in_flight`, which bounds the starts at one time.
    """

    name: ClassVar[str] = "singularity"
    uses_images: ClassVar[bool] = True

    def __init__(self, run_name: str, settings: Settings) -> None:
        super().__init__(run_name, settings, sweep, in_memory=True)
        self._settings = settings.sandbox
        self._shelf = ImageShelf(self._fetch)
        self._made: Machine | None = None

    async def check(self) -> tuple[str, ...]:
        """Start a sandbox from this machine's own files, and run a command in it. Raises BackendMissing."""
        return await self._try(lambda request: self._life(lambda: self._box(request, None)))

    def open(self, request: SandboxRequest) -> AbstractAsyncContextManager[Sandbox]:
        """See `Backend.open`."""
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: SandboxRequest) -> AsyncIterator[Sandbox]:
        image = await self._shelf.get(request.image)
        async with self._life(lambda: self._box(request, image)) as sandbox:
            yield sandbox

    def _box(self, request: SandboxRequest, image: Image | None) -> SingularityBox:
        machine = self._machine()
        return SingularityBox(machine, self._ground, request, image or machine.host_image())

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

    async def aclose(self) -> None:
        """Give up what is still being fetched, and remove what the run's sandboxes shared."""
        await self._shelf.aclose()
        await super().aclose()


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
