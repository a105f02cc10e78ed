"""browser_get_images, browser_console, browser_vision: other ways to look at a page."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, ClassVar

from hermes_run.core.contracts import ToolSpec
from hermes_run.core.registry import TOOLS, load
from hermes_run.errors import HermesRunError, ToolError
from hermes_run.tools.browser_tool import EMPTY, BrowserTool
from hermes_run.tools.snapshots import box_of, is_interactive, ref_of
from hermes_run.tools.untrusted import defang

if TYPE_CHECKING:
    from collections.abc import Mapping

    from playwright.async_api import Page

_MOST_IMAGES = 100
_MOST_VALUE_CHARS = 10_000
_MOST_MARKS = 200
_MEND = "look at the expression again, and at the page with a new browser_snapshot"
_IMAGES = """(most) => Array.from(document.images).filter(i => i.currentSrc || i.src).slice(0, most)
.map(i => ({
  src: String(i.currentSrc || i.src).slice(0, 500), alt: String(i.alt || '').slice(0, 500),
  width: i.naturalWidth, height: i.naturalHeight }))"""
_EVALUATE = """async (text) => {
  const value = await (0, eval)(text);
  if (value === undefined) return 'undefined';
  try { return JSON.stringify(value) ?? String(value); } catch (e) { return String(value); }
}"""
_MARK = """(boxes) => {
  const layer = document.createElement('div');
  layer.id = 'hermes-run-marks';
  layer.style.cssText = 'all:initial;position:fixed;inset:0;pointer-events:none;z-index:2147483647';
  for (const [name, x, y, w, h] of boxes) {
    const box = document.createElement('div');
    box.style.cssText = `position:fixed;left:${x}px;top:${y}px;width:${w}px;height:${h}px;`
      + 'outline:2px solid red';
    const label = document.createElement('span');
    label.textContent = name;
    label.style.cssText = 'position:absolute;left:0;top:0;background:red;color:white;'
      + 'font:bold 11px sans-serif';
    box.append(label);
    layer.append(box);
  }
  document.documentElement.append(layer);
}"""
_UNMARK = "() => document.getElementById('hermes-run-marks')?.remove()"


class BrowserGetImages(BrowserTool):
    """Lists the pictures of the page."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "browser_get_images",
        "List the pictures on the page: address, alternative text, size in pixels. vision_analyze can look "
        "at one of them by its address.",
        EMPTY,
    )

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """List. Result: `success`, `images[]` {src, alt, width, height}, `count`, `url`, `title`."""
        del arguments
        page = await self._browsing.visited()
        found = await self._browsing.do(page.evaluate(_IMAGES, _MOST_IMAGES))
        images = [{**image, "src": defang(image["src"]), "alt": defang(image["alt"])} for image in found]
        return await self._browsing.result(page, images=images, count=len(images))


class BrowserConsole(BrowserTool):
    """Shows the page's console, and evaluates JavaScript in it."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "browser_console",
        "See what the page wrote to its console, errors included; with expression, evaluate JavaScript in "
        "the page and get its value.",
        {
            "type": "object",
            "properties": {
                "clear": {
                    "type": "boolean",
                    "default": False,
                    "description": "Whether to empty the list afterwards.",
                },
                "expression": {"type": "string", "description": "JavaScript to evaluate in the page."},
            },
            "required": [],
        },
    )

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Look. Result: `success`, `messages[]` {type, text}, `result` (of the expression, as JSON text)."""
        page = await self._browsing.visited()
        expression = arguments.get("expression", "")
        value: dict[str, Any] = {}
        if expression.strip():
            text = await self._browsing.do(page.evaluate(_EVALUATE, expression), cure=_MEND)
            left = (
                f" … [{len(text) - _MOST_VALUE_CHARS} more characters]"
                if len(text) > _MOST_VALUE_CHARS
                else ""
            )
            value = {"result": defang(text[:_MOST_VALUE_CHARS]) + left}
        messages = list(self._browsing.messages)
        if arguments.get("clear", False):
            self._browsing.messages.clear()
        return await self._browsing.result(page, messages=messages, **value)


class BrowserVision(BrowserTool):
    """Shows the page to the vision model."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "browser_vision",
        "Take a picture of what the browser shows and ask a vision model about it: layout, pictures, charts, "
        "captchas, whatever a snapshot does not tell.",
        {
            "type": "object",
            "properties": {
                "question": {"type": "string", "description": "What to find out."},
                "annotate": {
                    "type": "boolean",
                    "default": False,
                    "description": "Whether to draw the refs of the snapshot onto the picture.",
                },
            },
            "required": ["question"],
        },
    )

    @staticmethod
    def missing(machine: Any) -> str:
        """Whether there are a browser and a vision model."""
        why = BrowserTool.missing(machine)
        if why:
            return why
        try:
            why = str(load("tool", TOOLS, "vision_analyze").missing(machine))
        except HermesRunError as error:
            why = str(error)
        return f"{why}; or draw a toolset of your own without browser_vision" if why else ""

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask. Result: `success`, `analysis`, `screenshot` (its name among the artifacts), `url`, `title`."""
        question = arguments["question"].strip()
        if not question:
            raise ToolError("question is empty; say what to find out")
        page = await self._browsing.visited()
        picture = await self._picture(page, annotate=arguments.get("annotate", False))
        self._browsing.screenshots += 1
        name = f"screenshots/{self._browsing.screenshots}.png"
        self._session.keep(name, picture)
        address = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
        looking = load("tool", TOOLS, "vision_analyze")(self._session)
        try:
            seen = await looking.call({"image_url": address, "question": question})
        finally:
            await looking.aclose()
        if seen.get("error") is not None or seen.get("success") is False:
            return {**seen, "screenshot": name}
        return await self._browsing.result(page, analysis=seen.get("analysis", ""), screenshot=name)

    async def _picture(self, page: Page, *, annotate: bool) -> bytes:
        if not annotate:
            picture: bytes = await self._browsing.do(page.screenshot(animations="disabled"))
            return picture
        tree = await self._browsing.do(page.aria_snapshot(mode="ai", boxes=True))
        await self._browsing.do(page.evaluate(_MARK, boxes_of(tree)))
        try:
            return await self._picture(page, annotate=False)
        finally:
            await self._browsing.do(page.evaluate(_UNMARK))


def boxes_of(tree: str) -> list[list[Any]]:
    """[ref, x, y, width, height] of the interactive elements of a snapshot with boxes."""
    lines = [line for line in tree.split("\n") if is_interactive(line) and box_of(line)]
    return [[ref_of(line), *box_of(line)] for line in lines[:_MOST_MARKS]]
