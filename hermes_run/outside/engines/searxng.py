"""SearXNG, wherever `web.searxng_url` says; its settings have to allow the format json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.errors import ToolError
from hermes_run.outside.engines.asking import Client, hits, unique

if TYPE_CHECKING:
    from hermes_run.core.answers import Hit
    from hermes_run.spec.web import Engine

_MOST_PAGES = 10
_USUAL_PAGE = 10
"""Results that one page usually has: a second one is not asked for the sake of a few."""


class Searxng:
    """See `SearchEngine`."""

    def __init__(self, engine: Engine) -> None:
        self._client = Client(engine)

    async def search(self, query: str, limit: int) -> list[Hit]:
        """As many pages of results as `limit` needs, as long as they bring something new."""
        found: list[Hit] = []
        for page in range(1, _MOST_PAGES + 1):
            params = {"q": query, "format": "json", **({"pageno": page} if page > 1 else {})}
            try:
                answer = await self._client.ask("/search", params=params)
            except ToolError:
                if not found:
                    raise
                break  # what was found is found
            more = unique([*found, *hits(answer.get("results"), "title", "url", "content")], limit)
            if len(more) == len(found):
                break
            found = more
            if len(found) == limit or limit <= _USUAL_PAGE:
                break
        return found

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()
