"""`hermes-run intersect A B -o OUT`: what runs have in common, as a run or as a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.cli.chosen import add_destinations, destinations, tell
from hermes_run.cli.parser import Parser
from hermes_run.cli.places import run_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.cli.report import Trouble


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Choose entries of A by the keys of the others."""
    parser = Parser(
        "intersect",
        "The entries of A whose rollout keys every B has, as a new run directory or as dataset rows.",
    )
    parser.add_argument("a", metavar="A", help="a run directory or a manifest file: what is chosen from")
    parser.add_argument("b", metavar="B", nargs="+", help="runs or manifest files to compare with, by key")
    add_destinations(parser)
    arguments = parser.parse(words)
    paths = [run_path(text) for text in (arguments.a, *arguments.b)]

    from hermes_run.store.combine import intersect_runs

    out, rows = destinations(arguments)
    tell(intersect_runs(paths, out, rows), arguments)
    return 0
