"""`hermes-run stats RUN`: a run's statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.cli.parser import Parser
from hermes_run.cli.places import run_path
from hermes_run.cli.plain import as_json
from hermes_run.cli.report import say
from hermes_run.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.cli.report import Trouble


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Show a run's statistics."""
    parser = Parser("stats", "A run's statistics: outcomes, tool use, reasoning, tokens, cost.")
    parser.add_argument("run", metavar="RUN", help="a run directory or a manifest file")
    parser.add_argument("--json", action="store_true", help="statistics.json as it is")
    arguments = parser.parse(words)
    path = run_path(arguments.run)
    if path.is_file():
        raise UsageError(
            f"{path}: a manifest has no statistics of its own; name the run directory it is from"
        )

    from hermes_run.store import inspect

    statistics = inspect.read_statistics(path)
    if arguments.json:
        say(as_json(statistics))
        return 0
    from hermes_run.cli import display

    try:
        display.show_summary(statistics)
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{path / 'statistics.json'}: does not hold what a run writes there; running the spec again "
            "writes it anew"
        ) from error
    return 0
