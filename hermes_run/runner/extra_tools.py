"""The run's own tools and those of MCP servers: offered beside what is drawn, columns of every record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hermes_run.core.contracts import ToolSpec
from hermes_run.core.registry import TOOLS
from hermes_run.errors import UsageError
from hermes_run.store import layout

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_run.core.contracts import ToolKind
    from hermes_run.runner.options import RunOptions
    from hermes_run.spec.model import Spec


def check_host_code(spec: Spec, options: RunOptions) -> None:
    """Raises UsageError when code of the spec wants to run outside the sandbox and may not."""
    if options.allow_host_code:
        return
    wants = [f"tools.custom: {each.tool}" for each in spec.tools.custom if each.host]
    wants += [f"tools.mcp: {each.name} ({each.command})" for each in spec.tools.mcp if each.host]
    if wants:
        raise UsageError(
            "\n".join(f"{each} wants to run outside the sandbox, as you on this machine" for each in wants)
            + "\nIf you trust that code, add --allow-host-code; else take host: true out (it runs inside)"
        )


def own_kinds(spec: Spec) -> dict[str, ToolKind]:
    """The own tools of a spec by name, in its order. Raises UsageError for a file that has changed."""
    if not spec.tools.custom:
        return {}
    from hermes_run.spec.own_tools import Mistaken, own_tools
    from hermes_run.tools.custom import OwnToolKind

    try:
        return {own.spec.name: OwnToolKind(own) for own in own_tools(spec)}
    except Mistaken as why:
        raise UsageError(str(why)) from why


def remembered(folder: Path) -> dict[str, ToolSpec]:
    """The further tools that tools.json of a run directory names."""
    try:
        tools: Any = json.loads((folder / layout.TOOLS).read_bytes())
    except (OSError, ValueError):
        return {}
    found: dict[str, ToolSpec] = {}
    for tool in tools if isinstance(tools, list) else ():
        about = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(about, dict) and isinstance(about.get("name"), str) and about["name"] not in TOOLS:
            name = about["name"]
            found[name] = ToolSpec(name, str(about.get("description", "")), about.get("parameters") or {})
    return found
