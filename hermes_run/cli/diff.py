"""`hermes-run diff A B`: what two runs have in common, and what not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hermes_run.cli.parser import Parser
from hermes_run.cli.places import run_path
from hermes_run.cli.plain import as_json
from hermes_run.cli.report import complain, say, say_all, say_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hermes_run.cli.report import Trouble
    from hermes_run.store.comparison import Comparison

_SHOWN = 20  # of each kind, unless --all

_EPILOG = """\
In git, where a manifest.jsonl is committed, as a difftool:
  git config difftool.hermes-run.cmd 'hermes-run diff "$LOCAL" "$REMOTE"'
  git difftool -y -t hermes-run HEAD~1 -- data/coding/manifest.jsonl
`hermes-run status --help` says how `git diff` itself shows manifests readably."""


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Compare two runs. Returns 1 when an entry differs or is only in one of them."""
    parser = Parser("diff", "What two runs have in common, and what not. Exit code 1: they differ.", _EPILOG)
    parser.add_argument("a", metavar="A", help="a run directory or a manifest file")
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_argument(
        "--trajectories",
        action="store_true",
        help="for changed rollouts, the first turn in which their trajectories differ",
    )
    parser.add_argument(
        "--all", action="store_true", help=f"every key, not only the first {_SHOWN} of a kind"
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    arguments = parser.parse(words)
    a, b = run_path(arguments.a), run_path(arguments.b)

    from hermes_run.store import layout
    from hermes_run.store.comparison import compare

    for run in (a, b):
        if run.is_dir() and layout.is_locked(run):
            complain(f"warning: {run}: a run is going on there; compared as far as it is")
    shown = None if arguments.all else _SHOWN
    output = _Json() if arguments.json else None
    if arguments.trajectories:
        found = compare(a, b)
    elif output:
        found = compare(a, b, stream=output.say_changed)
    else:
        found = compare(a, b, shown)
    parted = None
    if arguments.trajectories:
        from hermes_run.store.parting import partings

        parted = partings(a, b, found.changed())
    if output:
        output.say_rest(found, parted)
    else:
        from hermes_run.cli.difference import Difference

        text = Difference(found, (arguments.a, arguments.b), shown)
        say_all(text.lines())
        if parted is not None:
            say_all(text.parting_lines(parted))
    return 0 if found.is_equal else 1


class _Json:
    """One JSON object; an entry of its long lists is a line, so that a million of them need no memory.

    `changed` comes first: of very many, it is printed while the runs are still being compared.
    """

    def __init__(self) -> None:
        self._has_begun = False

    def say_changed(self, chunk: bytes) -> None:
        """Some of the changed entries, as `Comparison` gives them."""
        if not self._has_begun:
            say('{\n  "changed": [')
        self._has_begun = True
        say_bytes(chunk)

    def say_rest(self, found: Comparison, parted: Iterator[dict[str, Any]] | None) -> None:
        """All else."""
        for chunk in found.changed_json():
            self.say_changed(chunk)
        say("\n  ]," if self._has_begun else '{\n  "changed": [],')
        say_all(_json_list("only_a", (f'"{key}"' for key in found.only_a)))
        say_all(_json_list("only_b", (f'"{key}"' for key in found.only_b)))
        say(f'  "same": {found.same},')
        if parted is not None:
            say_all(_json_list("trajectories", (json.dumps(each, ensure_ascii=False) for each in parted)))
        say(as_json(found.about)[len("{\n") :])


def _json_list(name: str, items: Iterable[str]) -> Iterator[str]:
    before = f'  "{name}": ['
    for item in items:
        yield before
        before = f"    {item},"
    yield f"{before}]," if before.endswith("[") else f"{before[:-1]}\n  ],"
