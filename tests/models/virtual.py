"""An event loop in which waiting takes no time: its clock jumps to the next timer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine


class VirtualLoop(asyncio.SelectorEventLoop):
    """`time()` starts at 1000 and jumps when nothing is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 1000.0
        selector: Any = self._selector  # type: ignore[attr-defined]
        wait = selector.select

        def select(timeout: float | None) -> Any:
            if timeout is None:
                raise RuntimeError("everything waits for something that never comes")
            self._now += timeout
            return wait(0)

        selector.select = select

    def time(self) -> float:
        return self._now


def run_virtual(main: Coroutine[Any, Any, Any]) -> Any:
    """What `main` returns, in no time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
