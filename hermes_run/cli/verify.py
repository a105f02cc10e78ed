"""`hermes-run verify RUN`: check every line of a run directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.cli.parser import Parser
from hermes_run.cli.places import run_path
from hermes_run.cli.plain import as_json
from hermes_run.cli.report import complain, say
from hermes_run.core.text import command_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.cli.report import Trouble


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Check a run directory. Returns 1 when it is damaged."""
    parser = Parser("verify", "Check every line of a run directory, and its ledger. Exit code 1: damage.")
    parser.add_argument("run", metavar="RUN", help="a run directory or a manifest file")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    arguments = parser.parse(words)
    path = run_path(arguments.run)

    from hermes_run.store import inspect, layout
    from hermes_run.store.batches import batch_numbers

    if path.is_dir() and layout.is_locked(path):
        complain(f"warning: {path}: a run is going on there; checked as far as it is")
    damages = inspect.verify(path)
    if arguments.json:
        say(as_json({"sound": not damages, "damages": damages}))
    elif not damages:
        say(f"{path} is sound")
    else:
        for damage in damages:
            complain(damage)
        is_whole_run = path.is_dir() and (batch_numbers(path) or (path / layout.JOURNAL).exists())
        cure = f"; `{command_line('repair', path)}` mends what can be mended" if is_whole_run else ""
        complain(f"hermes-run: {path} is damaged{cure}")
    return 1 if damages else 0
