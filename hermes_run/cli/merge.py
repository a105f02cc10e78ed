"""`hermes-run merge A B... -o OUT`: the union of runs, as a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hermes_run.cli.chosen import account
from hermes_run.cli.parser import Parser
from hermes_run.cli.places import run_path
from hermes_run.cli.plain import as_json, count_of, number
from hermes_run.cli.report import complain, say
from hermes_run.core.registry import which_are_known
from hermes_run.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.cli.report import Trouble

_POLICIES = ("best", "first", "last", "error")

_EPILOG = """\
policies, for a rollout that several runs have:
  best    completed over partial over discarded over failed; of equal ones one whose trajectory is at
          hand, then the one whose manifest line sorts first: the order of the runs changes nothing
  first   that of the run named first
  last    that of the run named last
  error   refuse when their results differ

OUT is a run directory: it can be resumed (the spec with run_name: OUT's name), verified, compared and
merged again. Its plan is the union of the rows of all: a row counts as often as the run that plans it
most often. Manifest files alone make a run whose trajectories are elsewhere: it can be compared, and a
run of it does those prompts anew."""


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Merge runs."""
    parser = Parser("merge", "The union of runs by rollout key, as a new run directory.", _EPILOG)
    parser.add_argument("runs", metavar="RUN", nargs="+", help="run directories or manifest files")
    parser.add_argument("-o", "--out", metavar="OUT", required=True, help="the new run directory")
    parser.add_argument(
        "--policy", metavar="POLICY", default="best", help="best (the default), first, last or error"
    )
    parser.add_argument(
        "--renumber",
        action="store_true",
        help="keep all rollouts: those of each run as further samples of their prompts",
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    arguments = parser.parse(words)
    if arguments.policy not in _POLICIES:
        raise UsageError(
            f'--policy: there is no "{arguments.policy}"{which_are_known(arguments.policy, _POLICIES)}'
        )
    paths = [run_path(text) for text in arguments.runs]

    from hermes_run.store.combine import merge_runs

    found = merge_runs(paths, Path(arguments.out), arguments.policy, renumber=arguments.renumber)
    if arguments.json:
        say(as_json(found))
        return 0
    for text in found["warnings"]:
        complain(f"warning: {text}")
    lines = [f"{found['out']}: {count_of(found['chosen'], 'rollout')} of {count_of(len(paths), 'run')}"]
    if "overlaps" in found:
        lines.append(
            f"  {number(found['overlaps'])} in several of them, {number(found['conflicts'])} with "
            f"other results (policy: {found['policy']})"
        )
    say("\n".join([*lines, account(found)]))
    return 0
