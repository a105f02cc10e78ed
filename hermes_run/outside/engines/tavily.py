"""Tavily."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.outside.engines.asking import Client, hits, unique

if TYPE_CHECKING:
    from hermes_run.core.answers import Hit
    from hermes_run.spec.web import Engine

_MOST = 20


class Tavily:
    """See `SearchEngine`. Gives 20 results at most."""

    def __init__(self, engine: Engine) -> None:
        headers = {"Authorization": f"Bearer {engine.key.reveal()}"} if engine.key else {}
        self._client = Client(engine, headers)

    async def search(self, query: str, limit: int) -> list[Hit]:
        """Results of the basic depth."""
        answer = await self._client.ask("/search", body={"query": query, "max_results": min(limit, _MOST)})
        return unique(hits(answer.get("results"), "title", "url", "content"), limit)

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()
