"""`hermes-run tools`: the tools there are, and which work here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_run.cli.parser import Parser
from hermes_run.cli.plain import as_json, columns, hanging, terminal_width
from hermes_run.cli.report import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.cli.report import Trouble


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """List the tools."""
    parser = Parser("tools", "The tools there are, the toolsets they belong to, and which work here.")
    parser.add_argument("--config", metavar="FILE", help="machine settings instead of ./hermes.yaml")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    arguments = parser.parse(words)

    from hermes_run.cli.options import settings_of
    from hermes_run.tools.toolkit import describe_tools

    tools = describe_tools(settings_of(arguments))
    say(as_json(tools) if arguments.json else _table(tools))
    return 0


def _table(tools: dict[str, dict[str, Any]]) -> str:
    leads = columns([(name, ", ".join(tool["toolsets"]), "") for name, tool in tools.items()], indent="")
    width = max(map(len, leads.splitlines()))
    states = ("works here" if tool["available"] else f"no: {tool['needs']}" for tool in tools.values())
    rows = zip(leads.splitlines(), states, strict=True)
    return "\n".join(hanging(lead.ljust(width + 2), state, terminal_width()) for lead, state in rows)
