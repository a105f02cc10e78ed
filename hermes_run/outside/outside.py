"""What a run's tools share beyond their sandboxes: the proxy, the engine, pages read, the browser."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag, urlsplit

from hermes_run.core.answers import Hit, Page
from hermes_run.core.registry import SEARCH_ENGINES, load
from hermes_run.errors import ToolError
from hermes_run.outside.cassette import Cassette
from hermes_run.outside.chromium import Chromium
from hermes_run.outside.downloads import Downloads, check_url
from hermes_run.outside.gate import Gate
from hermes_run.outside.media import Media
from hermes_run.outside.proxy import Proxy
from hermes_run.outside.reader import Readers
from hermes_run.spec.web import extract_name, find_engine, search_name, with_pins

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from hermes_run.core.answers import Made, Seen
    from hermes_run.core.contracts import SearchEngine
    from hermes_run.outside.downloads import Document
    from hermes_run.spec.model import Settings, Spec

MOST_PAGE_BYTES = 20 * 2**20
_MOST_CACHED_CHARS = 50_000_000


class Outside:
    """See the Protocol. Made for one run; everything in it is made when first used.

    Args:
        spec: which hosts are allowed, what is pinned, where the cassette is.
        settings: the machine's.
    """

    def __init__(self, spec: Spec, settings: Settings) -> None:
        self.settings = with_pins(spec, settings)
        self.gate = Gate(spec.tools.allowed_hosts)
        self._proxy: Proxy | None = None
        self._downloads: Downloads | None = None
        self._readers = Readers()
        self._engines: dict[str, Any] = {}
        self._chromium = Chromium(spec.run_name, self.settings, self.proxy)
        self._answers = _Answers(Cassette(spec.tools.web.cassette, replay_only=spec.tools.web.replay_only))
        self._starting = asyncio.Lock()
        self._media = Media(self.settings, self.download)

    async def search(self, query: str, limit: int) -> Sequence[Hit]:
        """See `Outside.search`."""
        name = search_name(self.settings)

        async def ask() -> dict[str, Any]:
            found = await self._engine(name).search(query, limit)
            return {"hits": [[hit.title, hit.url, hit.description] for hit in found]}

        question = {"kind": "search", "engine": name, "query": query, "limit": limit}
        answer = await self._answers.get(question, ask)
        return [Hit(*row) for row in answer["hits"]]

    async def read_page(self, url: str) -> Page:
        """See `Outside.read_page`."""
        check_url(url)
        url = urldefrag(url).url  # a part of a page is the same page
        name = extract_name(self.settings)

        async def ask() -> dict[str, Any]:
            page = await (self._read_here(url) if name == "trafilatura" else self._read_there(name, url))
            return {"title": page.title, "content": page.content}

        answer = await self._answers.get({"kind": "page", "by": name, "url": url}, ask)
        return Page(url, answer["title"], answer["content"])

    async def _read_there(self, name: str, url: str) -> Page:
        """A page that an engine's own service fetches; it is not told of what is not public."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        if not self.gate.is_allowed(host, port):
            await self.gate.check(host, port)
        page: Page = await self._engine(name).read_page(url)
        return page

    async def _read_here(self, url: str) -> Page:
        document = await self.download(url, max_bytes=MOST_PAGE_BYTES)
        title, content = await self._readers.read(document)
        if document.is_cut:
            content += f"\n\n[the page is longer than {MOST_PAGE_BYTES >> 20} MiB; the rest was not read]"
        return Page(url, title, content)

    async def download(self, url: str, *, max_bytes: int) -> Document:
        """See `Outside.download`."""
        if self._downloads is None:
            self._downloads = Downloads(await self.proxy())
        document = await self._downloads.get(url, max_bytes=max_bytes)
        if document.status >= 400:
            raise ToolError(_status(document.status))
        return document

    async def check_browser(self) -> str:
        """See `Outside.check_browser`."""
        return await self._chromium.check()

    async def open_browser(self) -> Any:
        """See `Outside.open_browser`."""
        return await self._chromium.open_context()

    async def see(self, image: bytes, media_type: str, question: str) -> Seen:
        """See `Outside.see`."""
        return await self._media.see(image, media_type, question)

    async def draw(self, prompt: str, aspect_ratio: str) -> Made:
        """See `Outside.draw`."""
        return await self._media.draw(prompt, aspect_ratio)

    async def speak(self, text: str, kind: str) -> Made:
        """See `Outside.speak`."""
        return await self._media.speak(text, kind)

    async def check_address(self, host: str, port: int) -> None:
        """See `Outside.check_address`."""
        await self.gate.check(host, port)

    def refusal(self, host: str, port: int) -> str:
        """See `Outside.refusal`."""
        return self.gate.refusal(host, port)

    async def proxy(self) -> Proxy:
        """The run's proxy, started."""
        async with self._starting:
            if self._proxy is None:
                proxy = Proxy(self.gate)
                await proxy.start()
                self._proxy = proxy
        return self._proxy

    def _engine(self, name: str) -> Any:
        if name not in self._engines:
            found = find_engine(name, self.settings)
            if isinstance(found, str):
                raise ToolError(found)
            engine: SearchEngine = load("search engine", SEARCH_ENGINES, name)(found)
            self._engines[name] = engine
        return self._engines[name]

    async def aclose(self) -> None:
        """Close all of it."""
        await self._answers.aclose()
        await self._media.aclose()
        await self._chromium.aclose()
        for engine in self._engines.values():
            await engine.aclose()
        if self._downloads is not None:
            await self._downloads.aclose()
        await self._readers.aclose()
        if self._proxy is not None:
            await self._proxy.close()
        self.gate.close()


def _status(status: int) -> str:
    texts = {
        401: "the page wants a login",
        403: "the site refuses to show the page",
        404: "there is no such page",
        410: "the page is gone",
        429: "the site is busy",
    }
    what = texts.get(status, "the site is broken" if status >= 500 else "the site refuses")
    return f"HTTP {status}: {what}; try another page"


class _Answers:
    """What the web said in this run: each question is asked once, so that samples see the same answer.

    Failures are not kept: the next one to ask may be luckier. Only a replay has them from the cassette.
    """

    def __init__(self, cassette: Cassette) -> None:
        self._cassette = cassette
        self._kept: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._size = 0
        self._asking: dict[str, asyncio.Task[dict[str, Any]]] = {}

    async def get(
        self, question: dict[str, Any], ask: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        """The answer, asked for at most once at a time."""
        name = repr(sorted(question.items()))
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        recorded = self._cassette.get(question)
        if recorded is not None:
            return recorded
        if self._cassette.replay_only:
            why = self._cassette.failure(question)
            raise ToolError(
                why or "that is not on the cassette that this run replays; ask for something else"
            )
        if name not in self._asking:
            task = asyncio.ensure_future(self._ask(name, question, ask))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._asking[name] = task
        # shielded: the rollout that asked first may end while another one waits for the same
        return await asyncio.shield(self._asking[name])

    async def _ask(
        self, name: str, question: dict[str, Any], ask: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        try:
            answer = await ask()
        except ToolError as error:
            self._cassette.put_failure(question, str(error))
            raise
        finally:
            self._asking.pop(name, None)
        answer = self._cassette.put(question, answer)
        self._kept[name] = answer
        self._size += len(repr(answer))
        while self._size > _MOST_CACHED_CHARS and len(self._kept) > 1:
            _, old = self._kept.popitem(last=False)
            self._size -= len(repr(old))
        return answer

    async def aclose(self) -> None:
        """Stop asking."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
