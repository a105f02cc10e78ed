"""Exa."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.outside.engines.asking import Client, hits, unique

if TYPE_CHECKING:
    from hermes_run.core.answers import Hit
    from hermes_run.spec.web import Engine

_SUMMARY_CHARS = 500


class Exa:
    """See `SearchEngine`."""

    def __init__(self, engine: Engine) -> None:
        headers = {"x-api-key": engine.key.reveal()} if engine.key else {}
        self._client = Client(engine, headers)

    async def search(self, query: str, limit: int) -> list[Hit]:
        """Results with the beginning of each page."""
        body = {
            "query": query,
            "numResults": limit,
            "contents": {"text": {"maxCharacters": _SUMMARY_CHARS}},
        }
        answer = await self._client.ask("/search", body=body)
        return unique(hits(answer.get("results"), "title", "url", "summary", "highlights", "text"), limit)

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.aclose()
