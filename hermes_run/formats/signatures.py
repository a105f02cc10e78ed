"""The system turn of the tagged form: what calls look like, and the tools inside `<tools>`…`</tools>`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from hermes_run.core.registry import TOOLS
from hermes_run.core.text import clean_within
from hermes_run.core.toolsets import TOOLSETS, tools_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.core.contracts import ToolSpec

_INTRODUCTION = "Functions that you may call stand as JSON signatures between <tools> and </tools>."
_INSTRUCTIONS = f"""{_INTRODUCTION} Call only these, with arguments that fit.
<tools>
{{tools}}
</tools>
Write each call as a JSON object of its name and its arguments between <tool_call> and </tool_call>:
<tool_call>
{{{{"name": "<name>", "arguments": {{{{"<argument>": "<value>"}}}}}}}}
</tool_call>
The results come back between <tool_response> and </tool_response>."""
_BLOCK = re.compile(r"<tools>\s*(\[.*?\])\s*</tools>", re.DOTALL)


def offered(toolsets: Sequence[str], tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """The signatures of the tools of some toolsets: names alone where no schema is at hand.

    A toolset that is not built in may hold any of `tools`: then all of them are shown.
    """
    schemas = {tool.name: (tool.description, tool.parameters) for tool in tools}
    names = {tool for toolset in toolsets if toolset in TOOLSETS for tool in tools_of(toolset)}
    if any(toolset not in TOOLSETS for toolset in toolsets):
        names |= set(schemas)
    names |= {name for name in schemas if name not in TOOLS}  # own tools stand beside what was drawn
    return [
        {"name": name, "description": description, "parameters": parameters, "required": None}
        for name in sorted(names)
        for description, parameters in [schemas.get(name, ("", {}))]
    ]


def write(prompt: str, tools: list[dict[str, Any]]) -> str:
    """The value of the system turn; `prompt` is the conversation's own system text, or ""."""
    written = json.dumps(tools, ensure_ascii=False).replace("</tools>", "\\u003c/tools>")
    return (f"{prompt}\n\n" if prompt else "") + _INSTRUCTIONS.format(tools=written)


def rest(value: str) -> str:
    """What of a system turn is the conversation's own: all, less the signatures and what explains them.

    Of a turn that somebody else wrote, nothing is left when it explains calls, for then it was made for
    this form; else all but the signatures.
    """
    own, found, _ = value.partition(_INTRODUCTION)
    if found:
        return own.removesuffix("\n\n")
    text = _BLOCK.sub("", value)
    if text == value:
        return value
    return "" if "<tool_call>" in text else text.strip()


def read(value: str) -> dict[str, dict[str, Any]]:
    """The tools that a system turn offers: name -> {name, description, parameters}."""
    found: dict[str, dict[str, Any]] = {}
    for block in _BLOCK.findall(value):
        try:
            tools = clean_within(json.loads(block))
        except (ValueError, RecursionError):
            continue
        for tool in tools if isinstance(tools, list) else ():
            inner = tool.get("function", tool) if isinstance(tool, dict) else {}
            name = inner.get("name") if isinstance(inner, dict) else None
            if isinstance(name, str):
                found[name] = {
                    "name": name,
                    "description": inner.get("description") or "",
                    "parameters": inner.get("parameters") or {},
                }
    return found
