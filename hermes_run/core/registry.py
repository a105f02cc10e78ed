"""Which kinds there are: name -> where it lives. Adding one is one file there and one line here.

A row is `"package.module:attribute"`, imported when first asked for; `needs` is the extra of
hermes-run that brings what it imports. A row with an empty path is a name of the contract whose
feature is not available yet: it is known, counted and refused by name.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hermes_run.errors import MissingExtra, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterable


class Row(Struct, frozen=True):
    """Where a thing lives, and the extra it needs ("" for none)."""

    path: str
    needs: str = ""


BACKENDS: dict[str, Row] = {
    "local": Row("hermes_run.sandboxes.local:LocalBackend"),
    "bubblewrap": Row("hermes_run.sandboxes.bubblewrap:BubblewrapBackend"),
    "docker": Row("hermes_run.sandboxes.docker:DockerBackend"),
    "singularity": Row("hermes_run.sandboxes.singularity:SingularityBackend"),
    "modal": Row("hermes_run.sandboxes.modal:ModalBackend", needs="modal"),
}

MODELS: dict[str, Row] = {
    "openai": Row("hermes_run.models.openai:OpenAIClient"),
    "scripted": Row("hermes_run.models.scripted:ScriptedModel"),
}

TOOLS: dict[str, Row] = {
    "terminal": Row("hermes_run.tools.terminal:Terminal"),
    "process": Row("hermes_run.tools.process:Process"),
    "read_file": Row("hermes_run.tools.file:ReadFile"),
    "write_file": Row("hermes_run.tools.file:WriteFile"),
    "patch": Row("hermes_run.tools.patch:Patch"),
    "search_files": Row("hermes_run.tools.search:SearchFiles"),
    "web_search": Row("hermes_run.tools.web_search:WebSearch"),
    "web_extract": Row("hermes_run.tools.web_extract:WebExtract"),
    "browser_navigate": Row("hermes_run.tools.browser_pages:BrowserNavigate"),
    "browser_snapshot": Row("hermes_run.tools.browser_pages:BrowserSnapshot"),
    "browser_click": Row("hermes_run.tools.browser_actions:BrowserClick"),
    "browser_type": Row("hermes_run.tools.browser_actions:BrowserType"),
    "browser_scroll": Row("hermes_run.tools.browser_actions:BrowserScroll"),
    "browser_back": Row("hermes_run.tools.browser_pages:BrowserBack"),
    "browser_press": Row("hermes_run.tools.browser_actions:BrowserPress"),
    "browser_get_images": Row("hermes_run.tools.browser_views:BrowserGetImages"),
    "browser_vision": Row("hermes_run.tools.browser_views:BrowserVision"),
    "browser_console": Row("hermes_run.tools.browser_views:BrowserConsole"),
    "vision_analyze": Row("hermes_run.tools.vision:VisionAnalyze"),
    "image_generate": Row("hermes_run.tools.image:ImageGenerate"),
    "text_to_speech": Row("hermes_run.tools.speech:TextToSpeech"),
    "todo": Row("hermes_run.tools.todo:Todo"),
    "execute_code": Row("hermes_run.tools.code:ExecuteCode"),
}
"""The built-in tools: the columns of `tool_stats` in every record, offered or not."""

SEARCH_ENGINES: dict[str, Row] = {
    "searxng": Row("hermes_run.outside.engines.searxng:Searxng"),
    "tavily": Row("hermes_run.outside.engines.tavily:Tavily"),
    "brave": Row("hermes_run.outside.engines.brave:Brave"),
    "exa": Row("hermes_run.outside.engines.exa:Exa"),
    "firecrawl": Row("hermes_run.outside.engines.firecrawl:Firecrawl"),
    "nous": Row("hermes_run.outside.engines.firecrawl:Firecrawl"),
    "ddgs": Row("hermes_run.outside.engines.ddgs:Ddgs", "ddgs"),
}
"""Where each is, and the variable of its key: `spec/web.py`."""

FORMATS: dict[str, Row] = {
    "sharegpt": Row("hermes_run.formats.sharegpt:ShareGPT"),
    "hermes": Row("hermes_run.formats.hermes:Hermes"),
}

FILTERS: dict[str, Row] = {
    "no_reasoning": Row("hermes_run.quality.filters:NoReasoning"),
    "unknown_tool": Row("hermes_run.quality.filters:UnknownTool"),
}

ENGINES: dict[str, Row] = {
    "local": Row("hermes_run.runner.engines.local:LocalEngine"),
    "ray": Row(""),
}


def did_you_mean(name: str, known: Iterable[str], nearness: float = 0.6) -> str:
    """`; did you mean "x"?`, or "" when nothing is near: 1.0 is equal but for case, 0.0 nothing in common."""
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=nearness)
    return f'; did you mean "{names[near[0]]}"?' if near else ""


def which_are_known(name: str, known: Iterable[str]) -> str:
    """`; did you mean "x"? Known: x, y`, or `. Known: x, y`: how a message about a wrong name ends."""
    names = list(known)
    return f"{did_you_mean(name, names) or '.'} Known: {', '.join(names)}"


def load(kind: str, table: dict[str, Row], name: str) -> Any:
    """The class behind a name.

    Raises UnknownName for a name that is in no row or not available yet, MissingExtra when what it
    needs is not installed.
    """
    row = table.get(name)
    if row is None:
        raise UnknownName(f'there is no {kind} "{name}"{which_are_known(name, table)}')
    if not row.path:
        raise UnknownName(f'the {kind} "{name}" is not available yet in this version of hermes-run')
    module, _, attribute = row.path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if not row.needs or (error.name or "").startswith("hermes_run"):
            raise
        raise MissingExtra(
            f'the {kind} "{name}" needs {error.name}: pip install "hermes-run[{row.needs}]"'
        ) from error
