"""Sees to it that a call ends: by itself, by its time limit, or by the end of its sandbox."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hermes_run.sandboxes._link import Reply

_KILL_S = 1.5
"""How long a killed command may take to be gone (timeout + 2 s in all)."""
_KILL_AGAIN_S = 0.03


class Killable(Protocol):
    """Where a call runs."""

    def kill_call(self, started_s: float) -> None:
        """See `Place.kill_call`."""

    def destroy(self) -> None:
        """See `Place.destroy`."""


class Losable(Protocol):
    """The way to it. `lost` says why it is gone, or is ""."""

    lost: str

    def lose(self, why: str) -> None:
        """It is gone, for good."""


class Ending:
    """One call's time limit, running from the time it is made."""

    def __init__(self, place: Killable, link: Losable, started_s: float, timeout_s: float) -> None:
        self._place = place
        self._link = link
        self._started_s = started_s
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(timeout_s, self._time_out)
        self._give_up_at = 0.0
        self.timed_out = False

    async def reply(self, reply: asyncio.Future[Reply]) -> Reply:
        """The call's reply. A caller that is cancelled leaves nothing of the call running."""
        try:
            return await reply
        except asyncio.CancelledError:
            if not self._link.lost:
                self._place.kill_call(self._started_s)
            raise
        finally:
            self._timer.cancel()

    def _time_out(self) -> None:
        self.timed_out = True
        self._give_up_at = self._loop.time() + _KILL_S
        self._kill()

    def _kill(self) -> None:
        if self._loop.time() > self._give_up_at:
            self._place.destroy()
            self._link.lose("its shell did not answer after a timeout")
            return
        self._place.kill_call(self._started_s)
        self._timer = self._loop.call_later(_KILL_AGAIN_S, self._kill)
