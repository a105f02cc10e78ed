"""Brave Search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.outside.engines.asking import Client, hits, unique

if TYPE_CHECKING:
    from hermes_run.core.answers import Hit
    from hermes_run.spec.web import Engine

_PAGE = 20
_MOST_PAGES = 5


class Brave:
    """See `SearchEngine`. Gives 20 results a page."""

    def __init__(self, engine: Engine) -> None:
        headers = {"X-Subscription-Token": engine.key.reveal()} if engine.key else {}
        self._client = Client(engine, headers)

    async def search(self, query: str, limit: int) -> list[Hit]:
        """As many pages of results as `limit` needs, as long as they bring something new."""
        found: list[Hit] = []
        for page in range(_MOST_PAGES):
            params = {"q": query, "count": min(limit, _PAGE), **({"offset": page} if page else {})}
            answer = await self._client.ask("/res/v1/web/search", params=params)
            rows = (answer.get("web") or {}).get("results")
            more = unique([*found, *hits(rows, "title", "url", "description")], limit)
            if len(more) == len(found):
                break
            found = more
            if len(found) == limit:
                break
        return found

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()
