"""The package ddgs, which asks several free engines: no key, and no promise that they answer."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ddgs import DDGS
from ddgs.exceptions import DDGSException

from hermes_run.errors import ToolError
from hermes_run.outside.engines.asking import hits, unique

if TYPE_CHECKING:
    from hermes_run.core.answers import Hit
    from hermes_run.spec.web import Engine

_TIMEOUT_S = 20
_THREADS = 2
"""More searches at once than this are soon refused there."""


class Ddgs:
    """See `SearchEngine`. The package blocks, so it has threads of its own."""

    def __init__(self, engine: Engine) -> None:
        del engine  # it has neither an address nor a key
        self._threads = ThreadPoolExecutor(_THREADS, "ddgs")

    async def search(self, query: str, limit: int) -> list[Hit]:
        """Results of whichever engine answers."""

        def ask() -> Any:
            return DDGS(timeout=_TIMEOUT_S).text(query, max_results=limit)

        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(3 * _TIMEOUT_S):
                rows = await loop.run_in_executor(self._threads, ask)
        except (DDGSException, TimeoutError) as error:
            raise ToolError(f"ddgs does not answer ({type(error).__name__}); try again later") from None
        return unique(hits(rows, "title", "href", "body"), limit)

    async def aclose(self) -> None:
        """End its threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
