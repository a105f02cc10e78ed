"""Removals are finished, and whoever is cancelled meanwhile is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from hermes_run.sandboxes._ending import to_the_end


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("turns", range(8))
def test_a_cancellation_is_kept_whenever_it_comes(turns: int, *, fails: bool) -> None:
    """Also in the very turn of the event loop in which the work ends."""

    async def main() -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done = []

        async def work() -> None:
            await over
            done.append(1)
            if fails:
                raise OSError

        waiting = asyncio.ensure_future(to_the_end(work()))
        for _ in range(3):
            await asyncio.sleep(0)
        over.set_result(None)
        for _ in range(turns):
            await asyncio.sleep(0)
        was_over = waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert done == [1]
        assert waiting.cancelled() or was_over

    asyncio.run(main())


def test_an_error_of_the_work_is_its_callers() -> None:
    async def work() -> None:
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - it has no text
        asyncio.run(to_the_end(work()))
