"""`hermes-run diff A B`: what two runs have in common, and what not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hermes_run.cli.parser import Parser
from hermes_run.cli.places import run_path
from hermes_run.cli.plain import as_json
from hermes_run.cli.report import say_all

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

    from hermes_run.store.comparison import compare

    found = compare(a, b)
    parted = None
    if arguments.trajectories:
        from hermes_run.store.parting import partings

        parted = partings(a, b, found.changed())
    if arguments.json:
        say_all(_json(found, parted))
    else:
        from hermes_run.cli.difference import Difference

        text = Difference(found, (arguments.a, arguments.b), None if arguments.all else _SHOWN)
        say_all(text.lines())
        if parted is not None:
            say_all(text.parting_lines(parted))
    return 0 if found.is_equal else 1


def _json(found: Comparison, parted: Iterator[dict[str, Any]] | None) -> Iterator[str]:
    """One JSON object; an entry of its long lists is a line, so that a million of them need no memory."""
    yield "{"
    yield from _json_list("only_a", (f'"{key}"' for key in found.only_a))
    yield from _json_list("only_b", (f'"{key}"' for key in found.only_b))
    yield f'  "same": {found.same},'
    yield from _json_list("changed", map(_items, filter(None, found.differing)))
    if parted is not None:
        yield from _json_list("trajectories", (json.dumps(each, ensure_ascii=False) for each in parted))
    yield as_json(found.about)[len("{\n") :]


def _json_list(name: str, items: Iterable[str]) -> Iterator[str]:
    before = f'  "{name}": ['
    for item in items:
        yield before
        before = f"    {item},"
    yield f"{before}]," if before.endswith("[") else f"{before[:-1]}\n  ],"


def _items(lines: bytes) -> str:
    """Some lines as items of a list, each but the last with its comma."""
    return lines.decode().rstrip("\n").replace("\n", ",\n    ")
