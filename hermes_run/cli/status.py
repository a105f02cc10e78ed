"""`hermes-run status RUN`: how far a run is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_run.cli.parser import Parser
from hermes_run.cli.places import run_path
from hermes_run.cli.plain import as_json, columns, number
from hermes_run.cli.report import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.cli.report import Trouble


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Say how far a run is."""
    parser = Parser("status", "How far a run is: outcomes, what is pending, what lies outside its plan.")
    parser.add_argument("run", metavar="RUN", help="a run directory or a manifest file")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    arguments = parser.parse(words)
    path = run_path(arguments.run)

    from hermes_run.store import inspect

    status = inspect.status(path)
    say(as_json(status) if arguments.json else f"{path}\n{_table(status)}")
    return 0


def _table(status: dict[str, Any]) -> str:
    rows: list[tuple[str, str]] = [(name, number(count)) for name, count in status["outcomes"].items()]
    rows.append(("pending", "unknown" if status["pending"] is None else number(status["pending"])))
    if status["outside_plan"]:
        rows.append(("outside the plan", number(status["outside_plan"])))
    if "without_trajectory" in status:
        rows.append(("without trajectory, pending for a run", number(status["without_trajectory"])))
    rows.append(("running", "yes" if status["running"] else "no"))
    return columns(rows)
