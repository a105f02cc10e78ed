"""`hermes-run clean`: remove what dead runs left behind, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from hermes_run.cli.parser import Parser
from hermes_run.cli.plain import as_json
from hermes_run.cli.report import complain, say
from hermes_run.core.registry import BACKENDS, load
from hermes_run.errors import BackendMissing, MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hermes_run.cli.report import Trouble
    from hermes_run.core.contracts import Backend, Leftover
    from hermes_run.spec.model import Settings


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Remove leftovers of every available backend. Ends with 1 when something cannot be removed."""
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
    name = (arguments.run or "").rstrip("/").rpartition("/")[2]
    if arguments.run is not None and not name:
        parser.error("--run takes the name of a run, or its directory")

    from hermes_run.cli.options import settings_of

    found: list[dict[str, str]] = []
    kept: list[dict[str, str]] = []
    blind: dict[str, str] = {}
    for backend, leftover in _leftovers(settings_of(arguments), blind):
        if name and leftover.run != name:
            continue
        if not arguments.dry_run:
            backend.remove(leftover)
        is_there = not arguments.dry_run and leftover in backend.leftovers()
        entry = {"backend": backend.name, "run": leftover.run, "what": leftover.what}
        (kept if is_there else found).append(entry)
    if arguments.json:
        left = {"left": kept} if kept else {}
        unseen = {"not_looked_at": blind} if blind else {}
        say(as_json({"would_remove" if arguments.dry_run else "removed": found, **left, **unseen}))
    else:
        verb = "would remove" if arguments.dry_run else "removed"
        say("\n".join(f"{verb} {_told(entry)}" for entry in found) or "nothing was left behind")
        for unseen_backend, why in blind.items():
            say(f"not looked at: {unseen_backend} ({why.splitlines()[0]})")
    for entry in kept:
        complain(f"hermes-run: cannot remove {_told(entry)}: something in it is in use; try again later")
    return 1 if kept else 0


def _told(entry: dict[str, str]) -> str:
    whose = f"run {entry['run']}" if entry["run"] else "of a run that had only begun"
    return f"{entry['what']} ({entry['backend']}, {whose})"


class Leaver(Protocol):
    """What leaves things outside its process: a sandbox backend, the browser."""

    name: ClassVar[str]

    def leftovers(self) -> Sequence[Leftover]:
        """What dead runs left."""

    def remove(self, leftover: Leftover) -> None:
        """Remove one of them."""


def _leftovers(settings: Settings, blind: dict[str, str]) -> Iterator[tuple[Leaver, Leftover]]:
    """Backend by backend; `blind` takes in those that cannot be looked at here, with the reason.

    A backend whose extra is not installed has left nothing: it never ran here.
    """
    for name, row in BACKENDS.items():
        if not row.path:
            continue
        try:
            backend: Backend = load("sandbox backend", BACKENDS, name)("", settings)
            yield from ((backend, leftover) for leftover in backend.leftovers())
        except MissingExtra:
            continue
        except BackendMissing as missing:
            blind[name] = missing.why
    from hermes_run.outside.ground import BrowserLeftovers

    browser: Leaver = BrowserLeftovers()
    yield from ((browser, leftover) for leftover in browser.leftovers())
