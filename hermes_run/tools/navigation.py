"""The way to another page: what may stop it, and how it goes on all the same."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from hermes_run.errors import ToolError
from hermes_run.tools.ways import why_not_opened

if TYPE_CHECKING:
    from playwright.async_api import Page, Response

    from hermes_run.core.contracts import Outside
    from hermes_run.tools.browsing import Browsing

NAVIGATE_TIMEOUT_S = 30.0
_WITHOUT_PAGE = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.RESET_CONTENT})
"""After these a browser stays where it is (RFC 9110, 15.3.5 and 15.3.6)."""


class StoppedError(ToolError):
    """The way to a page was stopped, mostly by the page before."""


class Navigation:
    """One call's way to `url`, in the rollout's window; in another where the page before holds on to that."""

    def __init__(self, browsing: Browsing, outside: Outside, url: str) -> None:
        self._browsing = browsing
        self._outside = outside
        self._url = url
        self._before = ""

    async def go(self) -> Response | None:
        """Go there and come to rest. None for what is no page: a download. Raises ToolError, BrowserError."""
        page = await self._browsing.page()
        self._before = page.url
        was_restless = self._browsing.is_restless
        self._browsing.begin_navigation()
        response = await (self._in_fresh_window() if was_restless else self._through())
        await self._settle()
        return response

    async def is_dragged_back(self, response: Response | None) -> bool:
        """Whether the page before is there again: it was on its way somewhere itself, and came later."""
        page = await self._browsing.page()
        return response is not None and page.url == self._before != response.url

    async def go_again(self) -> Response | None:
        """The same without the page before. Raises ToolError, BrowserError."""
        response = await self._in_fresh_window()
        await self._settle()
        return response

    async def _in_fresh_window(self) -> Response | None:
        return await self.open(await self._browsing.fresh_window())

    async def _settle(self) -> None:
        await self._browsing.settle(await self._browsing.page())

    async def _through(self) -> Response | None:
        """The page before may be on its way somewhere itself, or close itself: then it is tried again."""
        for _ in range(2):
            try:
                return await self.open(await self._browsing.page())
            except StoppedError:
                if self._browsing.is_restless:
                    break
                await self._settle()
        return await self._in_fresh_window()

    async def open(self, page: Page) -> Response | None:
        """One try. Raises StoppedError, ToolError, BrowserError."""
        from playwright.async_api import Error
        from playwright.async_api import TimeoutError as TooLate

        end = time.monotonic() + NAVIGATE_TIMEOUT_S
        without_page: list[Response] = []

        def came(response: Response) -> None:
            if response.status in _WITHOUT_PAGE and response.request.is_navigation_request():
                without_page.append(response)

        page.on("response", came)
        try:
            response = await page.goto(self._url, wait_until="commit", timeout=NAVIGATE_TIMEOUT_S * 1000)
        except TooLate:
            await self._browsing.stop(page)
            why = f"no answer within {NAVIGATE_TIMEOUT_S:g} s; try again later or another address"
            raise (StoppedError if self._browsing.is_restless else ToolError)(why) from None
        except Error as error:
            if "Download is starting" in str(error) or self._browsing.is_downloading:
                return None
            if without_page:
                raise ToolError(failure_of(without_page[-1].status)) from None
            self._browsing.must_live()
            why = why_not_opened(self._outside, str(error), self._browsing.failed_url)
            was_on_its_way = "interrupted by another navigation" in str(error) or "ERR_ABORTED" in str(error)
            raise (StoppedError if was_on_its_way or page.is_closed() else ToolError)(why) from None
        finally:
            page.remove_listener("response", came)
        try:
            left_ms = max(1.0, (end - time.monotonic()) * 1000)
            await page.wait_for_load_state("domcontentloaded", timeout=left_ms)
        except TooLate:  # an endless page: what has come so far can be looked at
            await self._browsing.stop(page)
        except Error:  # it closed itself or crashed, which is told where it is looked at
            self._browsing.must_live()
        return response


def failure_of(status: int) -> str:
    """What an HTTP status says went wrong, or ""."""
    phrase = next((f" ({known.phrase})" for known in HTTPStatus if known == status), "")
    if status in _WITHOUT_PAGE:
        return f"the server answered HTTP {status}{phrase}: there is no page; try another address"
    if status < 400:
        return ""
    return f"the server answered HTTP {status}{phrase}; its page is in snapshot, or try another address"
