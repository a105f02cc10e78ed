"""`hermes-run doctor`: what works on this machine, why the rest does not, and the cure."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes_run.cli.parser import Parser
from hermes_run.cli.plain import as_json, hanging, terminal_width
from hermes_run.cli.report import say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from hermes_run.cli.report import Trouble
    from hermes_run.dataset.plan import Plan
    from hermes_run.runner.checkup import Check
    from hermes_run.spec.model import Settings, Spec

_NOTHING_WORKS = 4
_NETWORK = (
    "network: full lets a sandbox reach whatever this machine reaches, other services of your network and, "
    "with bubblewrap, singularity and local, those on its loopback and a cloud's metadata address "
    "(169.254.169.254) included; docker closes that one. Give it to models that you trust with the rest."
)


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Check. Ends with 4 when the default backend, or something that SPEC needs, does not work here."""
    parser = Parser("doctor", "What works on this machine, why the rest does not, and what to do about it.")
    parser.add_argument("spec", metavar="SPEC", nargs="?", help="also all that this spec needs")
    parser.add_argument("--config", metavar="FILE", help="machine settings instead of ./hermes.yaml")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="any key of SPEC, VALUE in YAML"
    )
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    arguments = parser.parse(words)
    if arguments.set and not arguments.spec:
        parser.error("--set goes with a SPEC")

    from hermes_run.cli.options import settings_of

    settings = settings_of(arguments)
    spec, plan = _spec_and_plan(arguments, settings)
    from hermes_run.runner.checkup import check_up

    checks = asyncio.run(check_up(settings, spec, plan))
    say(as_json({"checks": [_as_dict(check) for check in checks]}) if arguments.json else _text(checks, spec))
    return _NOTHING_WORKS if any(check.is_needed and not check.works for check in checks) else 0


def _spec_and_plan(arguments: argparse.Namespace, settings: Settings) -> tuple[Spec | None, Plan | None]:
    if not arguments.spec:
        return None, None
    from pathlib import Path

    from hermes_run.runner.flow import plan_of
    from hermes_run.runner.options import RunOptions
    from hermes_run.spec.load import load_spec

    spec = load_spec(Path(arguments.spec), sets=arguments.set, settings=settings)
    return spec, plan_of(spec, RunOptions())


def _as_dict(check: Check) -> dict[str, Any]:
    fields = {"name": check.name, "works": check.works, "why": check.why, "cure": check.cure}
    return fields | {"cannot": list(check.cannot), "needed": check.is_needed}


def _text(checks: Sequence[Check], spec: Spec | None) -> str:
    width, room = max(len(check.name) for check in checks), terminal_width()
    lines = [line for check in checks for line in _lines(check, width, room)]
    broken = [check.name for check in checks if check.is_needed and not check.works]
    what = "the default backend" if spec is None else "this spec"
    verdict = f"{what} needs what does not work here: {', '.join(broken)}" if broken else f"{what} works here"
    return "\n".join([*lines, "", hanging("", _NETWORK, room), "", verdict])


def _lines(check: Check, width: int, room: int) -> Iterator[str]:
    state = "works" if check.works else "does not work"
    said = [*check.why.splitlines()] if check.why else []
    if check.cannot:
        said.append(f"cannot limit here: {', '.join(check.cannot)}")
    if check.cure:
        said.append(f"cure: {check.cure}")
    mark = "*" if check.is_needed else " "
    first, *rest = said or [""]
    lead = f"{mark} {check.name.ljust(width)}  {state.ljust(13)}  "
    yield hanging(lead, first, room)
    for line in rest:
        yield hanging(" " * len(lead), line, room)
