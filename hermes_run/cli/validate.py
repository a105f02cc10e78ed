"""`hermes-run validate SPEC…`: all mistakes of all files; executes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_run.cli.options import add_spec_options, read_spec, settings_of
from hermes_run.cli.parser import Parser
from hermes_run.cli.plain import as_json, count_of, near
from hermes_run.cli.report import complain, say
from hermes_run.errors import DatasetError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from hermes_run.cli.report import Trouble
    from hermes_run.spec.model import Settings, Spec


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
    for text in settings.warnings:
        complain(f"warning: {text}")
    checks = {path: _check(path, arguments, settings) for path in dict.fromkeys(arguments.specs)}
    found = sum(len(check.mistakes) for check in checks.values())
    if arguments.json:
        mistakes = {path: check.mistakes for path, check in checks.items()}
        notes = {path: check.notes for path, check in checks.items()}
        say(as_json({"valid": not found, "mistakes": mistakes, "notes": notes}))
        return 2 if found else 0
    for path, check in checks.items():
        for line in (*check.mistakes, *(f"warning: {note}" for note in check.notes)):
            complain(line)
        if not check.mistakes and not arguments.quiet:
            say(f"{path}: no mistakes{check.sizes}")
    if found:
        complain(f"hermes-run: {count_of(found, 'mistake')} in {count_of(len(checks), 'spec')}")
    return 2 if found else 0


@dataclass(slots=True)
class _Check:
    """What is wrong with one spec, what a person should know, and how much there is to do."""

    mistakes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sizes: str = ""


def _check(path: str, arguments: argparse.Namespace, settings: Settings) -> _Check:
    """The spec, and once that is right, its tape and its dataset."""
    check = _Check()
    try:
        spec = read_spec(path, arguments, settings)
    except UsageError as error:
        check.mistakes += str(error).splitlines()
        return check
    from hermes_run.spec.endpoint import warnings_of

    check.notes += [note for note in warnings_of(spec, settings) if note not in settings.warnings]
    try:
        if spec.model.script is not None:
            from hermes_run.models.tape import read_tape

            read_tape(spec.model.script)
    except UsageError as error:
        check.mistakes += str(error).splitlines()
    try:
        _check_dataset(spec, settings, check)
    except DatasetError as error:
        lines = str(error).splitlines()
        check.mistakes += lines[:-1] or lines  # the last of several is their sum
    except UsageError as error:
        check.mistakes += str(error).splitlines()
    return check


def _check_dataset(spec: Spec, settings: Settings, check: _Check) -> None:
    """Every row, and whether the backend can use the images they name. Raises UsageError."""
    from hermes_run.dataset.plan import Selection, make_plan

    chosen = spec.dataset
    selection = Selection(chosen.prompt_field, chosen.max_samples, chosen.dedupe, spec.samples)
    plan = make_plan(chosen.path, selection, skip_bad_rows=True)
    bad = [f"{near(chosen.path)}:{row.line}: {row.reason}" for row in plan.invalid]
    if chosen.on_bad_row == "fail":
        check.mistakes += bad
    else:
        check.notes += [f"{line}; kept in the ledger as invalid" for line in bad]
    if plan.images:
        from hermes_run.runner.backends import make_backends

        make_backends(spec, settings, plan)
    if not plan.rows:
        check.notes.append(f"there are no rows in {near(chosen.path)}")
    check.sizes = f", {count_of(plan.rows, 'row')}, {count_of(plan.planned, 'rollout')}"
