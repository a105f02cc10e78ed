"""Firecrawl, its own service, one of the user's, or the Nous tool gateway, which speaks the same.

It searches, and turns pages into text too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_run.core.answers import Hit, Page
from hermes_run.errors import ToolError
from hermes_run.outside.engines.asking import Client, hits, unique

if TYPE_CHECKING:
    from hermes_run.spec.web import Engine


class Firecrawl:
    """See `SearchEngine`."""

    def __init__(self, engine: Engine) -> None:
        headers = {"Authorization": f"Bearer {engine.key.reveal()}"} if engine.key else {}
        self._client = Client(engine, headers)

    async def search(self, query: str, limit: int) -> list[Hit]:
        """Results of the web."""
        answer = self._checked(await self._client.ask("/v2/search", body={"query": query, "limit": limit}))
        data = answer.get("data")
        rows = data.get("web") if isinstance(data, dict) else data
        return unique(hits(rows, "title", "url", "description", "snippet"), limit)

    async def read_page(self, url: str) -> Page:
        """A page as markdown. Raises ToolError."""
        answer = self._checked(
            await self._client.ask("/v2/scrape", body={"url": url, "formats": ["markdown"]})
        )
        data = answer.get("data")
        content = data.get("markdown") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(content, str) or not content.strip():
            raise ToolError("there is no text on that page; try another one")
        metadata = data.get("metadata")
        title = metadata.get("title") if isinstance(metadata, dict) else ""
        return Page(url, title if isinstance(title, str) else "", content)

    def _checked(self, answer: dict[str, Any]) -> dict[str, Any]:
        if answer.get("success") is False:
            raise ToolError(f"{self._client.engine.name} could not do it; try another query or page")
        return answer

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()
