"""`hermes-run clean`: remove what dead runs left behind, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.cli.parser import Parser
from hermes_run.cli.plain import as_json
from hermes_run.cli.report import say
from hermes_run.core.registry import BACKENDS, load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hermes_run.cli.report import Trouble
    from hermes_run.core.contracts import Backend, Leftover
    from hermes_run.spec.model import Settings


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Remove leftovers of every available backend."""
    parser = Parser(
        "clean",
        "Remove what dead runs left behind: sandboxes, their folders. Nothing of a living run is touched.",
    )
    parser.add_argument("--run", metavar="R", help="only what this run left (its name or its directory)")
    parser.add_argument("--all", action="store_true", help="of every dead run (the default without --run)")
    parser.add_argument("--dry-run", action="store_true", help="only list it")
    parser.add_argument("--config", metavar="FILE", help="machine settings instead of ./hermes.yaml")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    arguments = parser.parse(words)
    if arguments.run and arguments.all:
        parser.error("--run and --all exclude each other")

    from hermes_run.cli.options import settings_of

    name = arguments.run.rstrip("/").rpartition("/")[2] if arguments.run else ""
    found = []
    for backend, leftover in _leftovers(settings_of(arguments)):
        if name and leftover.run != name:
            continue
        if not arguments.dry_run:
            backend.remove(leftover)
        found.append({"backend": backend.name, "run": leftover.run, "what": leftover.what})
    if arguments.json:
        say(as_json({"would_remove" if arguments.dry_run else "removed": found}))
    else:
        verb = "would remove" if arguments.dry_run else "removed"
        lines = [f"{verb} {entry['what']} ({entry['backend']}, run {entry['run']})" for entry in found]
        say("\n".join(lines) or "nothing was left behind")
    return 0


def _leftovers(settings: Settings) -> Iterator[tuple[Backend, Leftover]]:
    for name, row in BACKENDS.items():
        if row.path:
            backend: Backend = load("sandbox backend", BACKENDS, name)("", settings)
            for leftover in backend.leftovers():
                yield backend, leftover
