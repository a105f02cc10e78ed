"""`hermes-run repair RUN`: rebuild a damaged journal from the batch files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.cli.parser import Parser
from hermes_run.cli.places import run_path
from hermes_run.cli.plain import as_json
from hermes_run.cli.report import complain, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.cli.report import Trouble


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Mend a run directory. Returns 1 when something is left that only the next run mends."""
    parser = Parser(
        "repair",
        "Rebuild a missing or damaged journal from the batch files, and find lines again that something has "
        "moved there. What was there before is kept beside it; failed entries cannot be rebuilt and become "
        "pending. Exit code 1: something is left.",
    )
    parser.add_argument("run", metavar="RUN", help="a run directory")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    arguments = parser.parse(words)
    path = run_path(arguments.run)

    from hermes_run.store import inspect

    mended = inspect.repair(path)
    left = inspect.verify(path) if mended else []
    if arguments.json:
        say(as_json({"mended": mended, "left": left}))
    else:
        say("\n".join(mended) if mended else f"{path} was sound: nothing to mend")
        for damage in left:
            complain(damage)
    return 1 if left else 0
