"""Each image is fetched once, ahead of need, and a registry that is busy is asked again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hermes_run.errors import SandboxError
from hermes_run.sandboxes import _images
from hermes_run.sandboxes._images import FetchLater, ImageShelf

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Registry:
    """Counts who fetches what; an image gives its troubles first."""

    def __init__(self, **troubles: list[Exception]) -> None:
        self.fetched: list[str] = []
        self.most_at_a_time = 0
        self._now = 0
        self._troubles = troubles

    async def fetch(self, image: str) -> str:
        self.fetched.append(image)
        self._now += 1
        self.most_at_a_time = max(self.most_at_a_time, self._now)
        await asyncio.sleep(0.01)
        self._now -= 1
        if self._troubles.get(image):
            raise self._troubles[image].pop(0)
        return f"digest of {image}"


def on_a_shelf(registry: Registry, work: Callable[[ImageShelf[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        shelf = ImageShelf(registry.fetch)
        try:
            await work(shelf)
        finally:
            await shelf.aclose()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_images, "_FIRST_WAIT_S", 0.001)


def test_twenty_prompts_of_one_image_fetch_it_once() -> None:
    registry = Registry()

    async def work(shelf: ImageShelf[str]) -> None:
        assert set(await asyncio.gather(*(shelf.get("a") for _ in range(20)))) == {"digest of a"}

    on_a_shelf(registry, work)
    assert registry.fetched == ["a"]


def test_a_busy_registry_is_asked_again_by_one_on_behalf_of_all() -> None:
    registry = Registry(b=[FetchLater("too many requests"), FetchLater("too many requests", 0.002)])

    async def work(shelf: ImageShelf[str]) -> None:
        assert set(await asyncio.gather(*(shelf.get("b") for _ in range(5)))) == {"digest of b"}

    on_a_shelf(registry, work)
    assert registry.fetched == ["b"] * 3


def test_a_registry_that_stays_busy_fails_the_image_and_not_the_others() -> None:
    registry = Registry(b=[FetchLater("the registry refuses") for _ in range(100)])

    async def work(shelf: ImageShelf[str]) -> None:
        with pytest.raises(SandboxError, match="the registry refuses") as raised:
            await shelf.get("b")
        assert raised.value.reason == "image"
        assert await shelf.get("a") == "digest of a"

    on_a_shelf(registry, work)
    assert registry.fetched.count("b") == _images._TRIES


def test_an_image_that_does_not_exist_is_asked_for_once_and_told_to_everybody() -> None:
    registry = Registry(c=[SandboxError("there is no image c", reason="image")])

    async def work(shelf: ImageShelf[str]) -> None:
        told = await asyncio.gather(*(shelf.get("c") for _ in range(5)), return_exceptions=True)
        assert [str(error) for error in told] == ["there is no image c"] * 5

    on_a_shelf(registry, work)
    assert registry.fetched == ["c"]


def test_images_are_fetched_ahead_of_need_but_not_all_of_them() -> None:
    registry = Registry()
    images = [f"image-{number}" for number in range(20)]

    async def work(shelf: ImageShelf[str]) -> None:
        shelf.prefetch(images)
        await asyncio.sleep(0.1)
        assert registry.fetched == images[: _images._AHEAD]
        await shelf.get(images[0])
        await asyncio.sleep(0.05)
        assert registry.fetched == images[: _images._AHEAD + 1]
        await asyncio.gather(*map(shelf.get, images))

    on_a_shelf(registry, work)
    assert sorted(registry.fetched) == sorted(images)
    assert registry.most_at_a_time <= _images._AT_A_TIME


def test_who_gives_up_waiting_takes_nothing_from_the_others() -> None:
    registry = Registry()

    async def work(shelf: ImageShelf[str]) -> None:
        impatient = asyncio.ensure_future(shelf.get("a"))
        patient = asyncio.ensure_future(shelf.get("a"))
        await asyncio.sleep(0)
        impatient.cancel()
        assert await patient == "digest of a"

    on_a_shelf(registry, work)


def test_the_end_of_a_run_gives_up_what_is_being_fetched() -> None:
    async def never(_image: str) -> str:
        await asyncio.Event().wait()
        return ""

    async def main() -> None:
        shelf = ImageShelf(never)
        shelf.prefetch(["a", "b"])
        await asyncio.sleep(0)
        await asyncio.wait_for(shelf.aclose(), 5)

    asyncio.run(main())
