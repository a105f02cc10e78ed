"""`hermes-run diff A B`: what two runs have in common, and what not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hermes_run.cli.parser import Parser
from hermes_run.cli.places import run_path
from hermes_run.cli.plain import as_json, number
from hermes_run.cli.report import say

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hermes_run.cli.report import Trouble

_SHOWN = 20  # of each kind, unless --all


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Compare two runs. Returns 1 when an entry differs or is only in one of them."""
    parser = Parser("diff", "What two runs have in common, and what not. Exit code 1: they differ.")
    parser.add_argument("a", metavar="A", help="a run directory or a manifest file")
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_argument(
        "--all", action="store_true", help=f"every key, not only the first {_SHOWN} of a kind"
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    arguments = parser.parse(words)
    a, b = run_path(arguments.a), run_path(arguments.b)

    from hermes_run.store import inspect

    found = inspect.diff(a, b)
    say(as_json(found) if arguments.json else _text(found, arguments.a, arguments.b, show_all=arguments.all))
    return 1 if found["only_a"] or found["only_b"] or found["changed"] else 0


def _text(found: dict[str, Any], a: str, b: str, *, show_all: bool) -> str:
    shown = None if show_all else _SHOWN
    lines = [
        (
            f"{number(found['same'])} the same, {number(len(found['changed']))} changed, "
            f"{number(len(found['only_a']))} only in {a}, {number(len(found['only_b']))} only in {b}"
        )
    ]
    lines += _listed("-", found["only_a"], shown)
    lines += _listed("+", found["only_b"], shown)
    changed = [
        f"{entry['key']}  {', '.join(_change(*field) for field in entry['fields'].items())}"
        for entry in found["changed"]
    ]
    lines += _listed("~", changed, shown)
    if found["spec"]:
        lines += ["spec:", *(f"  {_change(*field)}" for field in found["spec"].items())]
    return "\n".join(lines)


def _change(name: str, values: Sequence[Any]) -> str:
    before, after = (json.dumps(value, ensure_ascii=False) for value in values)
    return f"{name}: {before} -> {after}"


def _listed(mark: str, texts: Sequence[str], shown: int | None) -> Iterable[str]:
    yield from (f"{mark} {text}" for text in texts[:shown])
    if shown is not None and len(texts) > shown:
        yield f"{mark} and {number(len(texts) - shown)} more (--all shows them)"
