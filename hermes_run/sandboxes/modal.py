"""Sandboxes at Modal: nothing runs on this machine but their shells' conversations.

Needs the SDK (`pip install "hermes-run[modal]"`) and a token of a workspace there, whose image builder
is 2025.06 or newer (an older one asks for Python in every image). A sandbox ends with its rollout; when its
runner dies, `clean` ends it, and at the latest its lifetime does. Who has a token of the workspace can see
and enter its sandboxes. `network: full` is what Modal lets out.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from hermes_run.core.contracts import Leftover
from hermes_run.core.keys import digest
from hermes_run.errors import BackendMissing, SandboxError
from hermes_run.sandboxes._ending import to_the_end
from hermes_run.sandboxes._ground import (
    Ground,
    grounds,
    leftover_folders,
    mark_of,
    owner,
    remove_ground,
)
from hermes_run.sandboxes._images import ImageShelf
from hermes_run.sandboxes._modal_account import Account
from hermes_run.sandboxes._modal_box import MISSING, MaybeAway, ModalBox

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from hermes_run.core.contracts import Sandbox, SandboxRequest
    from hermes_run.spec.model import Settings

if find_spec("modal") is None:
    raise ModuleNotFoundError("No module named 'modal'", name="modal")

RUN, KEY, ROW, MARK = (f"hermes-run.{name}" for name in ("run", "key", "row", "mark"))
_NUMBER = "hermes-run.number"
_MOST_LABEL = 200
"""Characters of a label that hold a run's name or a row's id."""


class ModalBackend:
    """See `Backend`.

    Args:
        run_name: for labels.
        settings: the machine's; `sandbox.starts_in_flight` bounds the starts at one time.
    """

    name: ClassVar[str] = "modal"
    uses_images: ClassVar[bool] = True

    def __init__(self, run_name: str, settings: Settings) -> None:
        self._run = run_name
        self._starts = asyncio.Semaphore(settings.sandbox.starts_in_flight)
        self._ground = Ground(run_name, self.name, self._sweep, in_memory=True)
        self._account = Account()
        self._shelf: ImageShelf[Any] = ImageShelf(self._account.image)
        self._preparing = asyncio.Lock()
        self._number = 0

    async def check(self) -> tuple[str, ...]:
        """Ask whether the token is good; to start something would cost money. Raises BackendMissing."""
        await self._account.app()
        return MISSING

    def open(self, request: SandboxRequest) -> AbstractAsyncContextManager[Sandbox]:
        """See `Backend.open`."""
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: SandboxRequest) -> AsyncIterator[Sandbox]:
        if not request.image:
            raise SandboxError("a modal sandbox needs an image: sandbox.image, or a row's", reason="image")
        image = await self._shelf.get(request.image)
        await self._prepare()
        box, shell = await self._started(request, image)
        try:
            yield shell
        finally:
            await to_the_end(box.remove())

    async def _started(self, request: SandboxRequest, image: Any) -> tuple[ModalBox, Sandbox]:
        """A sandbox; once more when Modal was away meanwhile. Raises BackendMissing when it stays away."""
        for is_last in (False, True):
            self._number += 1
            box = ModalBox(self._account, self._ground, request, image, self._tags(request))
            try:
                async with self._starts:
                    return box, await box.start()
            except MaybeAway:
                await to_the_end(box.remove())
                if is_last or not await self._account.come_back():
                    raise
            except BaseException:  # a cancellation, too, leaves nothing that was begun
                await to_the_end(box.remove())
                raise
        raise AssertionError("the last try either returned or raised")

    async def _prepare(self) -> None:
        try:
            async with self._preparing:
                if not self._ground.path:
                    await to_the_end(asyncio.to_thread(self._ground.prepare))
        except OSError as error:
            why = f"no place for the run's lock: {error.strerror}"
            raise SandboxError(why, reason="sandbox_start") from error

    def _tags(self, request: SandboxRequest) -> dict[str, str]:
        tags = {
            RUN: request.run,
            KEY: digest(request.key.encode())[:12],
            ROW: request.row_id,
            MARK: self._ground.mark,
            **owner(),
            _NUMBER: str(self._number),
        }
        return {name: value[:_MOST_LABEL] for name, value in tags.items() if value}

    async def fetch(self, image: str) -> str:
        """See `Backend.fetch`."""
        return str((await self._shelf.get(image)).object_id)

    def prefetch(self, images: Iterable[str]) -> None:
        """See `Backend.prefetch`."""
        self._shelf.prefetch(images)

    async def images_present(self, images: Iterable[str]) -> dict[str, bool]:
        """None is here: Modal keeps them, and has what it lacks built when it is asked."""
        return dict.fromkeys(images, False)

    def leftovers(self) -> Sequence[Leftover]:
        """Sandboxes and locks of dead runs of this user on this machine. Raises BackendMissing.

        What other machines run there counts as living: their locks cannot be looked at from here.
        """
        folders = leftover_folders(self.name)
        known = {mark_of(path) for path in grounds()}
        found = {
            tags.get(MARK, ""): Leftover(
                run=tags.get(RUN, ""), what="modal sandboxes", handle=f"mark {tags.get(MARK, '')}"
            )
            for tags in _ask_tags(owner())
        }
        return [*folders, *(left for mark, left in found.items() if mark and mark not in known)]

    def remove(self, leftover: Leftover) -> None:
        """Remove one of them. Raises BackendMissing."""
        if leftover.handle not in {other.handle for other in self.leftovers()}:
            return
        kind, _, mark = leftover.handle.partition(" ")
        if kind == "mark":
            _terminate({MARK: mark})
        else:
            self._sweep(leftover.handle)

    def _sweep(self, path: str) -> None:
        """Remove the ground at `path` and the sandboxes of its run, or leave both to a later time."""
        try:
            if mark_of(path) != self._ground.mark and os.listdir(path):
                _terminate({MARK: mark_of(path)})
        except (BackendMissing, OSError):
            return
        remove_ground(path)

    async def aclose(self) -> None:
        """Give up what is still being built, and the run's lock."""
        await self._shelf.aclose()
        await to_the_end(self._account.finish_late())
        if self._ground.path:
            await to_the_end(asyncio.to_thread(self._ground.remove_now))


def _ask_tags(tags: dict[str, str]) -> list[dict[str, str]]:
    return [found for _, found in _in_a_loop_of_its_own(Account().sandboxes(tags))]


def _terminate(tags: dict[str, str]) -> None:
    _in_a_loop_of_its_own(Account().terminate(tags))


def _in_a_loop_of_its_own(work: Any) -> Any:
    """Run it to its end in another thread: whoever asks may be on an event loop already."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
