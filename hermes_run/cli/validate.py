"""`hermes-run validate SPEC…`: all mistakes of all files; executes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.cli.options import add_spec_options, read_spec, settings_of
from hermes_run.cli.parser import Parser
from hermes_run.cli.plain import as_json, count_of
from hermes_run.cli.report import complain, say
from hermes_run.errors import HermesRunError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from hermes_run.cli.report import Trouble
    from hermes_run.spec.model import Settings


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Check specs, their datasets and tapes. Returns 2 when there is a mistake."""
    parser = Parser(
        "validate", "All mistakes of specs, their datasets and tapes. Runs nothing, calls nobody."
    )
    parser.add_argument("specs", metavar="SPEC", nargs="+", help="run specs, YAML files")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    parser.add_argument("--quiet", "-q", action="store_true", help="say nothing about files without mistakes")
    add_spec_options(parser)
    arguments = parser.parse(words)
    settings = settings_of(arguments)
    mistakes = {path: _mistakes(path, arguments, settings) for path in dict.fromkeys(arguments.specs)}
    found = sum(map(len, mistakes.values()))
    if arguments.json:
        say(as_json({"valid": not found, "mistakes": mistakes}))
        return 2 if found else 0
    for path, lines in mistakes.items():
        for line in lines:
            complain(line)
        if not lines and not arguments.quiet:
            say(f"{path}: no mistakes")
    if found:
        complain(f"hermes-run: {count_of(found, 'mistake')} in {count_of(len(mistakes), 'spec')}")
    return 2 if found else 0


def _mistakes(path: str, arguments: argparse.Namespace, settings: Settings) -> list[str]:
    """What is wrong with a spec; with its dataset and tape only once the spec itself is right."""
    try:
        spec = read_spec(path, arguments, settings)
    except UsageError as error:
        return str(error).splitlines()
    found: list[str] = []
    if spec.model.script is not None:
        from hermes_run.models.tape import read_tape

        try:
            read_tape(spec.model.script)
        except HermesRunError as error:
            found += str(error).splitlines()
    from hermes_run.dataset.plan import check_rows

    return [*found, *check_rows(spec)]
