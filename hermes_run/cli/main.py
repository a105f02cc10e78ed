"""`hermes-run`: which command is meant. Imports a command's module only when it is called."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hermes_run import __version__
from hermes_run.cli.report import Trouble, complain, prepare_streams, say
from hermes_run.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Command(NamedTuple):
    """A command: its module in this folder ("" while it is not available yet), and what it does."""

    module: str
    does: str


COMMANDS: dict[str, Command] = {
    "run": Command("run", "run what is missing of SPEC (the same as naming the SPEC alone)"),
    "validate": Command("validate", "all mistakes of specs and their datasets; runs nothing"),
    "status": Command("status", "how far a run is"),
    "stats": Command("stats", "a run's statistics"),
    "diff": Command("diff", "what two runs have in common, and what not"),
    "verify": Command("verify", "check every line of a run directory"),
    "repair": Command("repair", "rebuild a damaged journal from the batch files"),
    "schema": Command("schema", "a JSON Schema, for editors and checks"),
    "distributions": Command("distributions", "the toolset distributions there are"),
    "tools": Command("tools", "the tools there are, and which work here"),
    "clean": Command("clean", "remove what dead runs left behind"),
    "merge": Command("merge", "the union of runs, as a run"),
    "select": Command("select", "a part of a run, as a run or as a dataset"),
    "subtract": Command("subtract", "a run without another"),
    "intersect": Command("intersect", "what runs have in common"),
    "export": Command("", "trajectories in a training format"),
    "import": Command("importing", "take over a run directory of the predecessor"),
    "convert": Command("convert", "a spec from the predecessor's flags"),
    "init": Command("init", "a commented starter spec"),
    "report": Command("", "a report over runs"),
    "view": Command("", "look at trajectories"),
    "doctor": Command("doctor", "what works on this machine"),
}
"""Every command of the contract: adding one is one file in this folder and one line here."""


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says. Returns the exit code; prints all that there is to say."""
    prepare_streams()
    trouble = Trouble()
    gc.disable()  # imports make little garbage, and a tenth of their time goes into looking for it
    try:
        with trouble:
            trouble.exit_code = _dispatch(list(sys.argv[1:] if argv is None else argv), trouble)
    finally:
        gc.enable()
    return trouble.exit_code


def _dispatch(words: list[str], trouble: Trouble) -> int:
    if not words:
        complain(overview())
        return 2
    first = words[0]
    if first in ("-h", "--help", "help"):
        say(
            overview()
            + "\n\n`hermes-run run --help` lists the options of a run; every command has its --help."
        )
        return 0
    if first in ("-V", "--version"):
        say(f"hermes-run {__version__}")
        return 0
    if first not in COMMANDS:
        _refuse_typo(first)
        words, first = ["run", *words], "run"
    if not COMMANDS[first].module:
        raise UsageError(f'"{first}" is not available yet in this version of hermes-run ({__version__})')
    command = import_module(f"hermes_run.cli.{COMMANDS[first].module}")
    return int(command.main(words[1:], trouble))


def _refuse_typo(word: str) -> None:
    """Refuse a first word that is neither a command nor an option nor anything like a file."""
    if word.startswith("-") or Path(word).suffix or "/" in word or Path(word).exists():
        return
    from hermes_run.core.registry import did_you_mean

    here = [name for name, command in COMMANDS.items() if command.module]
    raise UsageError(
        f'there is no command and no spec file "{word}"{did_you_mean(word, here)}\n'
        "  `hermes-run` alone shows the commands"
    )


def overview() -> str:
    """What a newcomer needs: how to call it, and the commands there are."""
    commands = [f"  {name:<14} {command.does}" for name, command in COMMANDS.items() if command.module]
    return "\n".join(
        (
            "usage: hermes-run SPEC.yaml [options]      run it; the same command again continues",
            "       hermes-run COMMAND ...",
            "",
            "Runs a tool-calling agent over every prompt of a dataset, each in its own sandbox, and keeps",
            "what happened. A first minute, without key or account:  hermes-run runs/quickstart.yaml",
            "",
            *commands,
        )
    )
