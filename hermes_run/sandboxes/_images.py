"""The images of one run: each is fetched once however many prompts need it, ahead of need, few at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import TYPE_CHECKING, Generic, TypeVar

from hermes_run.errors import SandboxError
from hermes_run.sandboxes._ending import to_the_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

_log = logging.getLogger("hermes_run.images")
_T = TypeVar("_T")

_AT_A_TIME = 3
"""Fetches in flight: registries count them, and one disk writes them all."""
_AHEAD = 4
"""Images that are here and that no prompt has asked for yet: more would only fill the disk earlier."""
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
_TRIES = 7
"""About two minutes of waiting in all, which outlasts the short bursts that registries refuse."""
_FORGIVEN_AFTER_S = 300.0
"""After a registry's trouble, how long its image counts as not to be had before it is asked for again."""


class FetchLater(Exception):
    """A registry cannot give an image now (429, 5xx, no connection).

    Args:
        text: why, as it is told when it stays so: deterministic, with the cure.
        after_s: what the registry said of when to come back, or None.
    """

    def __init__(self, text: str, after_s: float | None = None) -> None:
        super().__init__(text)
        self.after_s = after_s


class ImageShelf(Generic[_T]):
    """Images by reference.

    Args:
        fetch: makes sure that an image is here and tells what it is. Raises FetchLater, or
            SandboxError(image) when asking again is of no use. Bounded in time.
    """

    def __init__(self, fetch: Callable[[str], Awaitable[_T]]) -> None:
        self._fetch = fetch
        self._fetching: dict[str, asyncio.Task[_T]] = {}
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._waiting: dict[str, None] = {}  # in order, each once
        self._unasked: set[str] = set()

    async def get(self, image: str) -> _T:
        """What an image is, once it is here. Raises SandboxError(image), the same for everybody who asks."""
        self._unasked.discard(image)
        task = self._task(image)
        self._go_ahead()
        return await asyncio.shield(task)

    def prefetch(self, images: Iterable[str]) -> None:
        """Fetch `images` in their order, a few ahead of who asks for them. Returns at once."""
        self._waiting.update((image, None) for image in images if image not in self._fetching)
        self._go_ahead()

    async def aclose(self) -> None:
        """Give up what is still being fetched."""
        self._waiting.clear()
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        await to_the_end(_all_over(tasks))

    def _go_ahead(self) -> None:
        while self._waiting and len(self._unasked) < _AHEAD:
            image = next(iter(self._waiting))
            del self._waiting[image]
            if image not in self._fetching:
                self._unasked.add(image)
                self._task(image)

    def _task(self, image: str) -> asyncio.Task[_T]:
        task = self._fetching.get(image)
        if task is None:
            task = self._fetching[image] = asyncio.ensure_future(self._fetch_patiently(image))
            task.add_done_callback(_note_error)
        return task

    async def _fetch_patiently(self, image: str) -> _T:
        for number in range(1, _TRIES + 1):
            try:
                async with self._turns:
                    return await self._fetch(image)
            except FetchLater as later:
                wait_s = _wait_s(number, later.after_s)
                if number == _TRIES or (later.after_s or 0) > _LONGEST_WAIT_S:
                    self._forgive_later(image)
                    raise SandboxError(str(later), reason="image") from later
                what = "%s (%s); trying again in %.0f s"
                _log.warning(what, later, image, wait_s, extra={"wait_s": wait_s})
            await asyncio.sleep(wait_s)
        raise AssertionError("the last try either gave the image or raised")

    def _forgive_later(self, image: str) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(_FORGIVEN_AFTER_S, self._fetching.pop, image, None)


def _wait_s(number: int, after_s: float | None) -> float:
    """Seconds until the next try: what the registry said, else doubling; up to a tenth more, at random."""
    wait_s = after_s if after_s is not None else min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (number - 1))
    return wait_s * random.uniform(1, 1.1)  # noqa: S311 - many runners should not come back in step


def _note_error(task: asyncio.Task[_T]) -> None:
    """A prefetched image that cannot be had is told to whoever asks for it; until then nobody has to hear."""
    if not task.cancelled():
        task.exception()


async def _all_over(tasks: Iterable[asyncio.Task[_T]]) -> None:
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError, SandboxError):
            await task
