"""Toolsets, and how a rollout's are drawn. Pure: names, percentages and a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.core.keys import key_chance
from hermes_run.core.registry import which_are_known
from hermes_run.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

TOOL_TEXTS_VERSION = 2
"""Version of what models read from us: tool descriptions, tool results, the built-in prompt. Raised on
purpose when they change; it is part of the work fingerprint (contract, section 4)."""

_BROWSER = (
    "browser_navigate",
    "browser_snapshot",
    "browser_click",
    "browser_type",
    "browser_scroll",
    "browser_back",
    "browser_press",
    "browser_get_images",
    "browser_vision",
    "browser_console",
)

TOOLSETS: dict[str, tuple[str, ...]] = {
    "terminal": ("terminal", "process"),
    "file": ("read_file", "write_file", "patch", "search_files"),
    "web": ("web_search", "web_extract"),
    "search": ("web_search",),
    "browser": (*_BROWSER, "web_search"),
    "vision": ("vision_analyze",),
    "image_gen": ("image_generate",),
    "tts": ("text_to_speech",),
    "todo": ("todo",),
    "code_execution": ("execute_code",),
    "debugging": ("terminal", "process", "web", "file"),
    "safe": ("web", "vision", "image_gen"),
}
"""Toolset -> its members: tools, or other toolsets. A name that is both is the tool."""


def tools_of(toolset: str, own: Mapping[str, Sequence[str]] | None = None) -> tuple[str, ...]:
    """The tools of a toolset, includes resolved, each once, in the order written.

    A member that names another toolset is included whole, unless that toolset has a tool of its own
    name (`terminal`, `todo`): then it is the tool. `own` are a spec's toolsets, which win over built-in
    ones. Raises UnknownName for a toolset that is nowhere, and for one that includes itself.
    """
    tables = {**TOOLSETS, **(own or {})}

    def members(name: str, path: tuple[str, ...]) -> Iterable[str]:
        if name not in tables:
            raise UnknownName(f'there is no toolset "{name}"{which_are_known(name, tables)}')
        if name in path:
            raise UnknownName(f'toolset "{name}" includes itself: {" -> ".join((*path, name))}')
        for member in tables[name]:
            is_tool = member == name or member in tables.get(member, ())
            if member in tables and not is_tool:
                yield from members(member, (*path, name))
            else:
                yield member

    return tuple(dict.fromkeys(members(toolset, ())))


def draw(toolsets: Mapping[str, float], seed: int, key: str) -> tuple[str, ...]:
    """The toolsets of one rollout, sorted: each drawn on its own with its percentage.

    If none comes up, the one with the highest percentage (the first on ties). Depends on
    (seed, rollout key) and on each toolset's own name, so that adding or reordering toolsets leaves
    the draws of the others alone.
    """
    return drawing(toolsets, seed)(key)


def drawing(toolsets: Mapping[str, float], seed: int) -> Callable[[str], tuple[str, ...]]:
    """`draw` for very many keys: what does not hang on the key is done once."""
    always = [name for name, percent in toolsets.items() if percent >= 100]
    chances = [(name, f"toolset:{name}", percent) for name, percent in toolsets.items() if 0 < percent < 100]
    at_least = always or [max(toolsets, key=lambda name: toolsets[name])]
    fixed = tuple(sorted(at_least))

    def drawn(key: str) -> tuple[str, ...]:
        more = [name for name, purpose, percent in chances if key_chance(seed, key, purpose) * 100 < percent]
        return tuple(sorted(always + more)) if more else fixed

    return drawn
