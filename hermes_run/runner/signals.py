"""SIGINT, SIGTERM and SIGHUP: the first drains, the second leaves at once; outside the rollouts one suffices.

SIGHUP is a terminal that was closed; where it is ignored (`nohup`) it stays so.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

GRACE_S = 30.0
"""How long a drain waits for rollouts in flight before it abandons them (they stay pending)."""


class Interrupted(KeyboardInterrupt):
    """A signal outside the rollouts: planning and merging stop where they are, nothing half-written."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.exit_code = 128 + signum


class StopSignal:
    """Listens for signals while a run goes on. A context manager; must be entered in the main thread.

    Attributes:
        signum: the first signal that came, or 0.
        count: how many came.
    """

    def __init__(self) -> None:
        self.signum = 0
        self.count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_signal: Callable[[int], None] | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)  # type: ignore[arg-type]

    def listen(self, on_signal: Callable[[int], None] | None) -> None:
        """From now on call `on_signal` on the event loop with the count; None: raise Interrupted."""
        self._loop = asyncio.get_running_loop() if on_signal else None
        self._on_signal = on_signal

    @property
    def exit_code(self) -> int:
        """128 + the first signal, or 0."""
        return 128 + self.signum if self.signum else 0

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        del frame
        self.count += 1
        self.signum = self.signum or signum
        if self._loop is None or self._on_signal is None:
            raise Interrupted(signum)
        self._loop.call_soon_threadsafe(self._on_signal, self.count)
