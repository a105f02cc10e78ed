"""One rollout's browsing: its context of the run's browser, the page it is on, and what happened beside.

The browser tools of a rollout share one `Browsing`. Pages are strangers' programs: they open windows, ask
questions, start downloads, close themselves and hang. Each of these is noted and told with the next
result, and no wait is without an end.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any

from hermes_run.errors import BrowserError, ToolError
from hermes_run.tools.downloads import Downloads, quietly
from hermes_run.tools.untrusted import NOTE, defang, outside_of
from hermes_run.tools.ways import led_nowhere

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    from playwright.async_api import BrowserContext, ConsoleMessage, Dialog, Frame, Page, Request

    from hermes_run.core.contracts import ToolSession

ACTION_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 20.0
"""After this a page that does not answer is given up."""
BEGIN_S = 0.25
"""What a click or a key leads to has mostly begun by then; what has not is told with the next result."""
SETTLE_S = 1.5
PROBE_S = 3.0
RESTLESS = "the page loads itself or others again and again and cannot be used; open another address"
LOOK_AGAIN = "take a new browser_snapshot"

_NOTHING = frozenset({"", "about:blank"})
_MANY = 4
"""A navigation of ours has three tries; what departs more often in one call does so by itself."""
_MOST_NOTES = 20
_MOST_MESSAGES = 200
_MOST_CHARS = 1_000
_MOST_PAGES = 5


class WindowGoneError(ToolError):
    """The window that something was done in is closed."""


class Browsing:
    """See the module. `close` gives the context back."""

    def __init__(self, session: ToolSession) -> None:
        self._session = session
        self._context: BrowserContext | None = None
        self._page: Page | None = None
        self._downloads = Downloads(session, self._note)
        self._answering: set[asyncio.Task[None]] = set()
        self._crashed: list[Page] = []
        self._happened: list[str] = []
        self._is_closed = False
        self._arrived = asyncio.Event()  # cleared while the page is on its way to another address
        self._arrived.set()
        self._departures = 0  # of a page for another one, in this call
        self.failed_url = ""
        """Where the last page was to come from that did not come, redirects followed."""
        self.closed_itself = False
        """Whether the page that the rollout was on is gone by its own doing."""
        self.messages: list[dict[str, str]] = []
        """The page's console: {type, text}."""
        self.screenshots = 0

    @staticmethod
    def of(session: ToolSession) -> Browsing:
        """The rollout's one Browsing."""
        found: Browsing = session.shared.setdefault("browsing", Browsing(session))
        return found

    # ------------------------------------------------------------------ the page

    async def page(self) -> Page:
        """The page that the rollout is on; an empty one at first. Raises ToolError, BrowserError."""
        if self._context is None:
            self._context = await outside_of(self._session).open_browser()
            self._context.set_default_timeout(ACTION_TIMEOUT_S * 1000)
            self._context.on("page", self._opened)
        self.must_live()
        if self._page is None or self._page.is_closed() or self._page in self._crashed:
            pages = self._context.pages
            others = [page for page in pages if not page.is_closed() and page not in self._crashed]
            if others and self._page is not None:
                self._note("the page closed itself; another window is the page now")
            self._page = others[-1] if others else None
            self._page = self._page or await self.do(self._context.new_page())
        return self._page

    def begin_navigation(self) -> None:
        """A call begins that leads to another page: what the pages before did counts no more."""
        self.closed_itself, self.failed_url = False, ""
        self._departures = 0

    async def fresh_window(self) -> Page:
        """An empty window in the page's place, which would not be left. Raises ToolError, BrowserError."""
        old = await self.page()
        self._page = None  # so that the new one is not taken for one that the page opened
        self._page = await self.do(old.context.new_page())
        self._arrived.set()
        await quietly(old.close())
        return self._page

    async def visited(self) -> Page:
        """The page, which has to be one that was navigated to: a call begins. Raises ToolError."""
        self._departures = 0
        page = await self.page()
        if page.url in _NOTHING:
            if await self.do(page.opener()) is not None:
                raise ToolError("this window is empty; browser_back closes it")
            why = "the page closed itself" if self.closed_itself else "no page is open"
            raise ToolError(f"{why}; open one with browser_navigate{self._told_so_far()}")
        return page

    async def do(
        self, work: Awaitable[Any], timeout_s: float = ANSWER_TIMEOUT_S, *, cure: str = LOOK_AGAIN
    ) -> Any:
        """Wait for the browser, not for ever. `cure` is what to do about what it says went wrong.

        Raises ToolError for what went wrong (WindowGoneError when the window closed meanwhile), BrowserError
        when the browser is gone.
        """
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as TooLate

        try:
            async with asyncio.timeout(timeout_s):
                return await work
        except TooLate as error:
            why = _said(error, cure) if await self._answers() else ""
        except TimeoutError:
            is_alive = self._page is not None and await self._answers()
            why = f"that did not end within {timeout_s:g} s; {cure}" if is_alive else ""
        except Error as error:
            self.must_live()
            why = _said(error, cure)
            if "has been closed" in str(error):
                raise WindowGoneError(f"the page closed itself meanwhile; {LOOK_AGAIN}") from None
        if why:
            raise ToolError(RESTLESS if self.is_restless else why)
        await self._abandon()
        raise ToolError(
            "the page does not answer any more; it was closed, with all windows and cookies; open another one"
        )

    async def act(self, action: Awaitable[Any], *, cure: str = LOOK_AGAIN) -> None:
        """Do something to the page, which may close its window. Raises as `do` does otherwise."""
        with contextlib.suppress(WindowGoneError):
            await self.do(action, cure=cure)

    async def stop(self, page: Page) -> None:
        """Give up what is still on its way to a page."""
        await quietly(_stop_loading(page))

    @property
    def is_restless(self) -> bool:
        """Whether the page departs again and again by itself, in this call."""
        return self._departures > _MANY

    async def _answers(self) -> bool:
        """Whether the page's program still gives way to others."""
        from playwright.async_api import Error

        if self._page is None or self._page.is_closed():
            return True
        try:
            async with asyncio.timeout(PROBE_S):
                await self._page.evaluate("1")
        except TimeoutError:
            return False
        except Error:
            return True
        return True

    def must_live(self) -> None:
        """Raises BrowserError when the browser is gone."""
        browser = self._context.browser if self._context is not None else None
        if browser is not None and not browser.is_connected():
            raise BrowserError("the browser has died")

    async def _abandon(self) -> None:
        """Give up all windows: a page that hangs may hold up every other one of its process."""
        context, self._context, self._page = self._context, None, None
        if context is not None:
            await quietly(context.close())

    async def settle(self, page: Page) -> None:
        """Let what an action began come to rest, for a moment."""
        from playwright.async_api import Error

        await asyncio.sleep(BEGIN_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ACTION_TIMEOUT_S):
                await self._arrived.wait()
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(ACTION_TIMEOUT_S):
                await page.wait_for_load_state("domcontentloaded", timeout=ACTION_TIMEOUT_S * 1000)
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await page.wait_for_load_state("networkidle", timeout=SETTLE_S * 1000)

    async def after(self, page: Page, **result: Any) -> dict[str, Any]:
        """The result of an action: where the page is now, and what happened meanwhile."""
        await self.settle(page)
        page = await self.page()
        if page.url in _NOTHING:
            self._note("the page closed itself" if self.closed_itself else "this window is empty")
        done = await self.result(page, **result)
        wrong = led_nowhere(outside_of(self._session), page.url, self.failed_url)
        return {**done, "success": False, "error": wrong} if wrong else done

    async def result(self, page: Page, **result: Any) -> dict[str, Any]:
        """A result with the page's address and title, and what happened since the last one."""
        try:
            title = await self.do(page.title())
        except WindowGoneError:
            page = await self.page()
            title = await self.do(page.title())
        await self._downloads.finish()
        happened = {"happened": self._take_happened()} if self._happened else {}
        where = {"url": defang(page.url)[:2_000], "title": defang(title)[:500]}
        return {"success": True, "note": NOTE, **where, **result, **happened}

    # ------------------------------------------------------------------ what happens beside

    def _opened(self, page: Page) -> None:
        is_first = self._page is None
        page.on("request", self._requested)
        page.on("requestfailed", self._failed)
        page.on("framenavigated", self._moved)
        page.on("close", self._closed)
        page.on("dialog", self._asked)
        page.on("console", self._printed)
        page.on("pageerror", lambda error: self._message("error", str(error)))
        page.on("download", self._downloads.begin)
        page.on("crash", self._has_crashed)
        if not is_first:
            pages = self._context.pages if self._context is not None else []
            if len(pages) > _MOST_PAGES:
                self._note("the page opened more windows than can be kept; the new one was closed")
                self._later(page.close())
                return
            self._note("the page opened a new window, which is the page now; browser_back closes it")
        self._page = page

    def _requested(self, request: Request) -> None:
        if request.is_navigation_request() and self._is_main(request.frame):
            self._arrived.clear()
            self._departures += 1

    def _closed(self, page: Page) -> None:
        self._arrived.set()
        self.closed_itself = self.closed_itself or page == self._page

    def _failed(self, request: Request) -> None:
        if request.is_navigation_request():
            self.failed_url = request.url
            self._arrived.set()

    def _moved(self, frame: Frame) -> None:
        if self._is_main(frame):
            self._arrived.set()

    def _is_main(self, frame: Frame) -> bool:
        return self._page is not None and frame == self._page.main_frame

    def _has_crashed(self, page: Page) -> None:
        self._arrived.set()
        self._crashed.append(page)
        self.closed_itself = True
        self._note("the page crashed; open it again or another one")
        self._later(page.close())

    def _asked(self, dialog: Dialog) -> None:
        """Dialogs hold up everything: they are answered at once. What asks for a decision gets a no."""
        does_accept = dialog.type in {"alert", "beforeunload"}
        what = "closed" if does_accept else "answered with Cancel"
        self._note(f"a dialog ({dialog.type}) said: {dialog.message[:_MOST_CHARS]!r}; it was {what}")
        self._later(dialog.accept() if does_accept else dialog.dismiss())

    def _printed(self, message: ConsoleMessage) -> None:
        self._message(message.type, message.text)

    def _message(self, kind: str, text: str) -> None:
        self.messages.append({"type": kind, "text": defang(text)[:_MOST_CHARS]})
        del self.messages[:-_MOST_MESSAGES]

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(quietly(work))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    @property
    def is_downloading(self) -> bool:
        """Whether a download began since the last result."""
        return self._downloads.is_any

    def _note(self, text: str) -> None:
        if len(self._happened) < _MOST_NOTES:
            self._happened.append(defang(text))

    def _take_happened(self) -> list[str]:
        taken, self._happened = self._happened, []
        return taken

    def _told_so_far(self) -> str:
        happened = self._take_happened()
        return f" (before that: {'; '.join(happened)})" if happened else ""

    # ------------------------------------------------------------------ the end

    async def leave_empty_window(self) -> bool:
        """Close the window if it is one that a page opened and left empty; whether it was."""
        return (await self.page()).url in _NOTHING and await self.close_window()

    async def close_window(self) -> bool:
        """Close the window that the page opened, if it is one; whether there was one."""
        page = await self.page()
        opener = await self.do(page.opener())
        if opener is None or opener.is_closed():
            return False
        self._page = opener
        await quietly(page.close())
        return True

    async def close(self) -> None:
        """Give the context back."""
        if self._is_closed:
            return
        self._is_closed = True
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        await self._downloads.close()
        if self._context is not None:
            await quietly(self._context.close())


async def _stop_loading(page: Page) -> None:
    session = await page.context.new_cdp_session(page)
    await session.send("Page.stopLoading")
    await session.detach()


def _said(error: Exception, cure: str) -> str:
    """What playwright says, in one line, without its log and its colours, and what to do."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    first = text.partition("\n")[0]
    if "Timeout" in first:
        if "intercepts pointer events" in text:
            return "another element covers it; close that one first, or scroll"
        what = next((what for what in ("visible", "enabled", "editable") if f"not {what}" in text), "")
        if what:
            return f"the element is not {what}; {LOOK_AGAIN}"
        return f"the page did not do that in time; {LOOK_AGAIN} and try again"
    first = re.sub(r"^(?:[A-Za-z]+\.[a-z_A-Z]+: )+", "", first)
    return f"{defang(first[:300])}; {cure}"
