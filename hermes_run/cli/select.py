"""`hermes-run select RUN -o OUT`: a part of a run, as a run or as a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.cli.chosen import add_destinations, destinations, tell
from hermes_run.cli.parser import Parser
from hermes_run.cli.places import run_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.cli.report import Trouble

_EPILOG = """\
A rollout is chosen when it fulfils all that is asked; of a LIST one is enough.

--where compares fields of manifest entries, joined by "and":
  hermes-run select data/coding_v1 --where 'turns>3 and cost<0.5' -o data/long_and_cheap
numbers   turns, api_calls, cost, usage.total_tokens and the other parts of usage:  = != < <= > >=
texts     status, reason, model, work, hash, image_digest, error, key:  = != (quote what holds blanks)
toolsets  = it was among those offered, != it was not
An unknown cost compares with null alone (cost=null); of texts, null is one that is not there (error=null).

The failed ones as a dataset of their own:
  hermes-run select data/coding_v1 --status failed --rows failed.jsonl"""


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Choose entries of a run."""
    parser = Parser("select", "A part of a run, as a new run directory or as dataset rows.", _EPILOG)
    parser.add_argument("run", metavar="RUN", help="a run directory or a manifest file")
    parser.add_argument(
        "--status", metavar="LIST", action="append", help="completed,partial,discarded,failed"
    )
    parser.add_argument("--reason", metavar="LIST", action="append", help="such as max_turns,no_reasoning")
    parser.add_argument("--toolset", metavar="LIST", action="append", help="toolsets that were offered")
    parser.add_argument("--where", metavar="TEXT", action="append", help="comparisons joined by and")
    add_destinations(parser)
    arguments = parser.parse(words)
    path = run_path(arguments.run)

    from hermes_run.store.combine import select_run
    from hermes_run.store.where import wanted_by

    wanted = wanted_by(arguments.status, arguments.reason, arguments.toolset, arguments.where)
    out, rows = destinations(arguments)
    found = select_run(path, out, wanted, rows)
    found["warnings"] += wanted.warnings()
    tell(found, arguments)
    return 0
