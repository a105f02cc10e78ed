"""`hermes-run distributions [NAME]`: the toolset distributions there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_run.cli.parser import Parser
from hermes_run.cli.plain import as_json, columns
from hermes_run.cli.report import say
from hermes_run.core.registry import which_are_known
from hermes_run.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.cli.report import Trouble


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """List the distributions, or show one."""
    parser = Parser("distributions", "The toolset distributions: with which percentage a toolset is drawn.")
    parser.add_argument("name", metavar="NAME", nargs="?", help="only this one")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    arguments = parser.parse(words)

    from hermes_run.spec.distributions import load_distributions

    found = load_distributions()
    if arguments.name is not None:
        if arguments.name not in found:
            raise UnknownName(
                f'there is no distribution "{arguments.name}"{which_are_known(arguments.name, found)}'
            )
        found = {arguments.name: found[arguments.name]}
    shown = {
        name: {"description": each.description, "toolsets": dict(each.toolsets)}
        for name, each in found.items()
    }
    say(as_json(shown) if arguments.json else _table(shown))
    return 0


def _table(shown: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, distribution in shown.items():
        toolsets = ", ".join(
            f"{toolset} {percent:g}" for toolset, percent in distribution["toolsets"].items()
        )
        rows += [(name, distribution["description"]), ("", toolsets)]
    return columns(rows, indent="")
