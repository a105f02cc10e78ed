"""browser_click, browser_type, browser_press, browser_scroll: what is done on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hermes_run.core.contracts import ToolSpec
from hermes_run.errors import ToolError
from hermes_run.tools.browser_tool import REF, BrowserTool
from hermes_run.tools.browsing import ACTION_TIMEOUT_S
from hermes_run.tools.snapshots import element

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEYS = "Enter, Tab, Escape, ArrowDown, PageDown, a letter, or keys together such as Control+A"
_MS = ACTION_TIMEOUT_S * 1000 / 2
_SCROLL = """(way) => {
  const tall = (e) => e.scrollHeight > e.clientHeight + 1
    && ['auto', 'scroll', 'overlay'].includes(getComputedStyle(e).overflowY);
  let part = document.scrollingElement || document.documentElement;
  if (part.scrollHeight <= part.clientHeight + 1) {
    let most = 0;
    for (const e of Array.from(document.querySelectorAll('*')).slice(0, 20000)) {
      const size = e.clientWidth * e.clientHeight;
      if (size > most && tall(e)) { most = size; part = e; }
    }
  }
  const before = part.scrollTop;
  part.scrollBy({top: way * Math.max(100, part.clientHeight * 0.8), behavior: 'instant'});
  const end = Math.round(part.scrollHeight - part.clientHeight);
  return [Math.round(part.scrollTop), end, part.scrollTop !== before];
}"""


class BrowserClick(BrowserTool):
    """Clicks."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "browser_click",
        "Click an element of the last snapshot: links, buttons, boxes. Afterwards take a browser_snapshot "
        "to see what changed.",
        {"type": "object", "properties": {"ref": REF}, "required": ["ref"]},
    )

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Click. Result: `success`, `clicked`, `url`, `title`, `happened`."""
        page = await self._browsing.visited()
        target = await element(self._browsing, page, arguments["ref"])
        await self._browsing.act(target.click(timeout=_MS))
        return await self._browsing.after(page, clicked=arguments["ref"])


class BrowserType(BrowserTool):
    """Types into a field."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "browser_type",
        "Write a text into a field of the last snapshot, in place of what stands there; in a drop-down list, "
        "choose the option of that name. Send a form with browser_press Enter, or click its button.",
        {
            "type": "object",
            "properties": {"ref": REF, "text": {"type": "string", "description": "What to write."}},
            "required": ["ref", "text"],
        },
    )

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write. Result: `success`, `typed`, `element`, `url`, `title`, `happened`."""
        page = await self._browsing.visited()
        text = arguments["text"]
        target = await element(self._browsing, page, arguments["ref"])
        is_list = await self._browsing.do(target.evaluate("e => e.tagName === 'SELECT'"))
        writing = target.select_option(text, timeout=_MS) if is_list else target.fill(text, timeout=_MS)
        await self._browsing.act(writing)
        return await self._browsing.after(page, typed=text[:1_000], element=arguments["ref"])


class BrowserPress(BrowserTool):
    """Presses a key."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "browser_press",
        "Press a key where the focus is: Enter, Tab, Escape, ArrowDown, PageDown, a letter, or keys together "
        "such as Control+A.",
        {
            "type": "object",
            "properties": {"key": {"type": "string", "description": "The key's name."}},
            "required": ["key"],
        },
    )

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Press. Result: `success`, `pressed`, `url`, `title`, `happened`."""
        page = await self._browsing.visited()
        key = arguments["key"]
        if not key or len(key) > 60:
            raise ToolError(f"key names no key; write {_KEYS}")
        is_sign = len(key) == 1 and not key.isascii()  # no key of its own, on most keyboards
        pressing = page.keyboard.insert_text(key) if is_sign else page.keyboard.press(key)
        await self._browsing.act(pressing, cure=f"write {_KEYS}")
        return await self._browsing.after(page, pressed=key)


class BrowserScroll(BrowserTool):
    """Scrolls."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "browser_scroll",
        "Scroll the page by most of a screen. Snapshots show the whole page anyway; scrolling is for pages "
        "that load more on the way, and for browser_vision.",
        {
            "type": "object",
            "properties": {
                "direction": {"type": "string", "enum": ["up", "down"], "description": "Which way."}
            },
            "required": ["direction"],
        },
    )

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Scroll. Result: `success`, `scrolled` (whether it moved), `position`, `end`, `url`, `title`."""
        page = await self._browsing.visited()
        way = 1 if arguments["direction"] == "down" else -1
        position, end, has_moved = await self._browsing.do(page.evaluate(_SCROLL, way))
        return await self._browsing.after(page, scrolled=has_moved, position=position, end=end)
