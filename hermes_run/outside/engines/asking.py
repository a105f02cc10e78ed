"""One question to an engine's API over HTTP. Keys go into headers, and into no message."""

from __future__ import annotations

import asyncio
import html
import re
from typing import TYPE_CHECKING, Any

from hermes_run.core.answers import Hit
from hermes_run.errors import ToolError
from hermes_run.outside import services

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import httpx2

    from hermes_run.spec.web import Engine

TIMEOUT_S = 30.0
_TRIES = 3
_TAG = re.compile(r"<[^>]{0,200}>")


class Client:
    """Asks one engine. Made when first used; `aclose` at the end."""

    def __init__(self, engine: Engine, headers: Mapping[str, str] | None = None) -> None:
        self.engine = engine
        self._headers = dict(headers or {})
        self._made: httpx2.AsyncClient | None = None

    def _client(self) -> httpx2.AsyncClient:
        if self._made is None:
            import httpx2

            from hermes_run.spec.endpoint import proxy_for

            self._made = httpx2.AsyncClient(
                proxy=proxy_for(self.engine.base_url) or None,
                trust_env=False,
                follow_redirects=False,
                timeout=TIMEOUT_S,
                headers={"Accept": "application/json", "User-Agent": "hermes-run", **self._headers},
            )
        return self._made

    async def ask(
        self, path: str, *, params: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The JSON object of an answer: of a GET, or of a POST where there is a body.

        Asks again when the engine is busy or broken. Raises ToolError.
        """
        import httpx2

        name, method = self.engine.name, "GET" if body is None else "POST"
        for left in reversed(range(_TRIES)):
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    answer = await services.bounded(
                        self._client(), method, self.engine.base_url + path, params=params, json=body
                    )
            except services.TooLarge as error:
                raise ToolError(f"{name}: {error}; ask for less, or go on without it") from None
            except (httpx2.HTTPError, TimeoutError) as error:
                if left:
                    await asyncio.sleep(services.WAIT_S)
                    continue
                raise ToolError(
                    f"{name} does not answer ({type(error).__name__}); go on without it, or try again later"
                ) from None
            if (answer.status_code == 429 or answer.status_code >= 500) and left:
                await asyncio.sleep(services.wait_s(answer))
                continue
            return self._read(answer)
        raise AssertionError("the last try returns or raises")

    def _read(self, answer: httpx2.Response) -> dict[str, Any]:
        name, status = self.engine.name, answer.status_code
        if status in {401, 403}:
            cure = f"the key in {self.engine.variable}" if self.engine.variable else "its settings"
            more = "; for SearXNG, json has to be among search.formats" if name == "searxng" else ""
            raise ToolError(f"{name} refuses to answer (HTTP {status}): {cure} may be wrong{more}")
        if status == 402:
            raise ToolError(f"the account at {name} has no credit left (HTTP 402); go on without it")
        if status == 429:
            raise ToolError(f"{name} is busy (HTTP 429); go on without it, or try again later")
        if not 200 <= status < 300:
            raise ToolError(f"{name} answers HTTP {status}; try another query, or go on without it")
        content = services.json_object(answer, self.engine.key)
        if content is None:
            raise ToolError(f"{name} gave no JSON object; its address may be that of something else")
        return content

    async def aclose(self) -> None:
        """Close its connections."""
        if self._made is not None:
            await self._made.aclose()


def hits(rows: Any, title: str, url: str, *descriptions: str) -> list[Hit]:
    """Results out of an engine's list; the first description that is there is taken."""
    found = []
    for row in rows if isinstance(rows, list) else ():
        address = row.get(url) if isinstance(row, dict) else None
        if isinstance(address, str) and address:
            text = next((part for name in descriptions if (part := _text(row.get(name)))), "")
            found.append(Hit(_text(row.get(title)), address, text))
    return found


def _text(value: Any) -> str:
    """Plain text: engines mark words with HTML, and give lists of pieces."""
    if isinstance(value, list):
        return " … ".join(part for each in value if isinstance(each, str) and (part := _text(each)))
    text = _TAG.sub("", value) if isinstance(value, str) else ""
    return " ".join(html.unescape(text).split())


def unique(found: Iterable[Hit], limit: int) -> list[Hit]:
    """The first `limit` results, each address once."""
    by_url: dict[str, Hit] = {}
    for hit in found:
        by_url.setdefault(hit.url, hit)
    return list(by_url.values())[:limit]
