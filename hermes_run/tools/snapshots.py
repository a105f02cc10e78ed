"""What a page looks like to a model: an indented accessibility tree with `[ref=eN]`, bounded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hermes_run.errors import ToolError
from hermes_run.tools.browsing import WindowGoneError
from hermes_run.tools.untrusted import BEGIN, END, marked

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

    from hermes_run.tools.browsing import Browsing

MAX_CHARS = 15_000
"""Of a snapshot, with the lines around it and the one about the cut."""
_ROOM = MAX_CHARS - len(BEGIN) - len(END) - 120
_TIMEOUT_S = 15.0

_REF = re.compile(r"\[ref=((?:f\d+)?e\d+)\]")
_BOX = re.compile(r"\[box=([-0-9.,]+)\]")
_ADDRESS = re.compile(r"@?((?:f\d+)?e\d+)|\[?ref=((?:f\d+)?e\d+)\]?")
_LINE = re.compile(r"^\s*- ([a-z]+)")
_EMPTY_GENERIC = re.compile(r"^\s*- generic(?: \[[a-z]+\])* \[ref=(?:f\d+)?e\d+\]:$")
_INTERACTIVE = frozenset(
    [
        "button",
        "link",
        "textbox",
        "searchbox",
        "checkbox",
        "radio",
        "combobox",
        "listbox",
        "option",
        "menuitem",
        "menuitemcheckbox",
        "menuitemradio",
        "tab",
        "switch",
        "slider",
        "spinbutton",
        "treeitem",
        "iframe",
    ]
)


async def snapshot_of(browsing: Browsing, page: Page, *, full: bool) -> dict[str, Any]:
    """`snapshot` (marked as untrusted) and `element_count` (interactive ones). Raises ToolError.

    Of the window below, when the page's own closes meanwhile.
    """
    try:
        tree = await _tree_of(browsing, page)
    except WindowGoneError:
        tree = await _tree_of(browsing, await browsing.visited())
    count = sum(map(is_interactive, tree.split("\n")))
    text = tree if full else compact(tree)
    if len(text) > _ROOM:
        cut = text[:_ROOM].rpartition("\n")[0] or text[:_ROOM]
        left = text.count("\n") - cut.count("\n")
        text = f"{cut}\n[{left} more lines left out; scrolling does not change that, a narrower page does]"
    return {"snapshot": marked(text or "(an empty page)"), "element_count": count}


async def _tree_of(browsing: Browsing, page: Page) -> str:
    tree: str = await browsing.do(page.aria_snapshot(mode="ai", timeout=_TIMEOUT_S * 1000))
    return tree


def compact(tree: str) -> str:
    """The tree without the levels that only hold others: their children move up."""
    kept: list[str] = []
    dropped: list[int] = []  # indentations of the levels left out around the current line
    for line in tree.split("\n"):
        indent = len(line) - len(line.lstrip())
        while dropped and indent <= dropped[-1]:
            dropped.pop()
        if _EMPTY_GENERIC.match(line):
            dropped.append(indent)
        elif line.strip():
            kept.append(" " * (indent - 2 * len(dropped)) + line.lstrip())
    return "\n".join(kept)


def is_interactive(line: str) -> bool:
    """Whether a line of a snapshot is something to click or to write into."""
    role = _LINE.match(line)
    has_ref = _REF.search(line) is not None
    return has_ref and ("[cursor=pointer]" in line or (role is not None and role[1] in _INTERACTIVE))


def ref_of(line: str) -> str:
    """The ref of a line, such as "e5", or ""."""
    found = _REF.search(line)
    return found[1] if found is not None else ""


def box_of(line: str) -> list[int]:
    """x, y, width, height in pixels of a line of a snapshot with boxes; [] for none, or an empty one."""
    found = _BOX.search(line)
    box = [int(float(number)) for number in found[1].split(",")] if found is not None else []
    return box if len(box) == 4 and box[2] > 0 and box[3] > 0 else []


async def element(browsing: Browsing, page: Page, ref: str) -> Locator:
    """The element that a ref of the last snapshot names. Raises ToolError."""
    address = _ADDRESS.fullmatch(ref.strip())
    if address is None:
        raise ToolError(f"{ref[:80]!r} is no ref; give one of the snapshot, such as @e5")
    name = address[1] or address[2]
    found = page.locator(f"aria-ref={name}")
    if not await browsing.do(_count(found)):
        raise ToolError(f"there is no element @{name} on the page now; take a new browser_snapshot")
    return found


async def _count(found: Locator) -> int:
    from playwright.async_api import Error

    try:
        return await found.count()
    except Error as error:
        if "aria-ref" in str(error) or "ref" in str(error).lower():
            return 0  # no snapshot was taken of this page yet
        raise
