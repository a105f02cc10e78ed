"""`hermes-run run SPEC`: run what is missing. A bare `hermes-run SPEC` is the same."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_run.cli.asking import asker, forecast_lines
from hermes_run.cli.options import (
    add_run_options,
    continuing,
    read_spec,
    retry_set,
    settings_of,
    shard_of,
    warn,
)
from hermes_run.cli.parser import Parser
from hermes_run.cli.plain import as_json, columns, count_of, number
from hermes_run.cli.report import complain, say
from hermes_run.errors import HermesRunError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from hermes_run.cli.progress import Quiet
    from hermes_run.cli.report import Trouble
    from hermes_run.runner.observe import RunReport
    from hermes_run.runner.options import RunOptions
    from hermes_run.spec.model import Settings, Spec

_KEY_IS_VISIBLE = (
    "--api-key: command lines are visible to other users of this machine and stay in the shell's history; "
    "put the key into an environment variable and name that in model.api_key_env"
)
_SHORTEST_SECRET = 6


def main(words: Sequence[str], trouble: Trouble) -> int:
    """Do what the options say: run, or show the plan, the effective spec, the distributions."""
    parser = Parser("run", "Run what is missing of a spec. The same command again continues.")
    parser.usage = (
        "hermes-run SPEC.yaml [options]\n"
        "       hermes-run --dataset-file FILE --batch-size N --run-name NAME [options]"
    )
    add_run_options(parser)
    arguments = parser.parse(words)
    if arguments.list_distributions:
        from hermes_run.cli import distributions

        return distributions.main(["--json"] if arguments.json else [], trouble)
    if arguments.api_key is not None:
        complain(f"warning: {_KEY_IS_VISIBLE}")
    shard = shard_of(arguments.shard)
    retry = retry_set(arguments.retry)
    settings = settings_of(arguments)
    spec = read_spec(arguments.spec, arguments, settings)
    if arguments.print_config:
        return _print_config(spec, arguments)
    warn(spec, settings)
    from hermes_run.runner.options import RunOptions

    options = RunOptions(
        resume=arguments.resume,
        fresh=arguments.fresh,
        retry=retry,
        accept_spec_change=arguments.accept_spec_change,
        allow_host_code=arguments.allow_host_code,
        api_key=arguments.api_key,
        shard=shard,
        pilot=_pilot(arguments),
    )
    if arguments.dry_run:
        from hermes_run.runner import flow

        plan = flow.plan_only(spec, settings, options)
        say(as_json(plan) if arguments.json else _plan_text(plan))
        return 0
    report = _run(spec, settings, options, arguments, trouble)
    _tell(report, spec, arguments, continuing(words), trouble)
    return report.exit_code


def _pilot(arguments: argparse.Namespace) -> int:
    if arguments.pilot is None:
        return 0
    if not arguments.pilot.isdecimal() or int(arguments.pilot) < 1:
        raise UsageError(f"--pilot takes a number of rollouts from 1 on, not {arguments.pilot}")
    return int(arguments.pilot)


def _print_config(spec: Spec, arguments: argparse.Namespace) -> int:
    from hermes_run.spec.effective import dump_effective, load_effective

    say(as_json(load_effective(spec)) if arguments.json else dump_effective(spec).rstrip("\n"))
    return 0


def _run(
    spec: Spec, settings: Settings, options: RunOptions, arguments: argparse.Namespace, trouble: Trouble
) -> RunReport:
    import asyncio

    from hermes_run.cli.logs import logging_to
    from hermes_run.core.secrets import make_redactor
    from hermes_run.runner import flow

    trouble.redact = make_redactor(_secrets(spec, settings, options))
    with logging_to(settings.log, spec.logging, trouble.redact) as log:

        def on_planned(run_dir: Path) -> None:
            trouble.folder = run_dir
            with suppress(OSError):  # a disk that is full stops the run where it writes results
                log.open(run_dir)

        observer = _observer(arguments, on_planned)
        log.show_waits(observer.show_warning)
        options = replace(options, confirm=asker(observer, yes=arguments.yes))
        try:
            return asyncio.run(flow.run(spec, settings, observer, options))
        finally:
            observer.close()


def _secrets(spec: Spec, settings: Settings, options: RunOptions) -> Iterator[str]:
    """What must never be written: the keys that this run sends, what it gives to MCP servers and proxies."""
    from hermes_run.spec.endpoint import read_key
    from hermes_run.spec.mcp import variables_of
    from hermes_run.spec.media import keys_of
    from hermes_run.spec.proxy import proxy_passwords

    if options.api_key:
        yield options.api_key
    for server in spec.tools.mcp:
        with suppress(HermesRunError):
            yield from (value for value in variables_of(server).values() if len(value) >= _SHORTEST_SECRET)
    yield from keys_of(settings)
    yield from proxy_passwords()
    with suppress(HermesRunError):  # a key that is missing is told by the run itself
        key = read_key(spec, settings, options.api_key)
        if key is not None:
            yield key.reveal()


def _observer(arguments: argparse.Namespace, on_planned: Callable[[Path], None]) -> Quiet:
    from hermes_run.cli import progress

    if arguments.quiet:
        return progress.Quiet(on_planned)
    if sys.stderr is not None and sys.stderr.isatty():
        from hermes_run.cli import display

        if display.can_redraw():
            return display.LivePicture(on_planned)
    return progress.PlainLines(on_planned)


def _tell(
    report: RunReport, spec: Spec, arguments: argparse.Namespace, command: str, trouble: Trouble
) -> None:
    if arguments.json:
        say(as_json(report.statistics))
    else:
        from hermes_run.cli import display

        display.show_summary(report.statistics, after=list(_after(report, spec, command)))
    if report.stopped:
        complain(f"hermes-run: {trouble.redact(report.stopped)}")


def _after(report: RunReport, spec: Spec, command: str) -> Iterator[tuple[str, str]]:
    """(label, text): where everything is, and what comes next."""
    outcomes = report.statistics["outcomes"]
    kept = outcomes["completed"] + outcomes["partial"]
    yield "trajectories", f"{report.run_dir / 'trajectories.jsonl'} ({number(kept)})"
    yield "statistics", f"{report.run_dir / 'statistics.json'}"
    yield "log", f"{report.run_dir / 'run.log'}"
    if report.pending:
        yield "continue", f"{command}   ({number(report.pending)} pending)"
    elif outcomes["failed"]:
        yield "try again", f"{command}   ({count_of(outcomes['failed'], 'failed prompt')})"
    if outcomes["partial"] and not report.pending:
        yield "partial", f"{command} --retry partial"
    if spec.model.script is not None and report.exit_code == 0:
        yield from _real_model(spec, command)


def _real_model(spec: Spec, command: str) -> Iterator[tuple[str, str]]:
    again = f"{command} --run-name {shlex.quote(spec.run_name + '_real')} --set model.script=null --model"
    yield "", ""
    yield "a real model", f"{again} anthropic/claude-sonnet-4.6   (its key in OPENROUTER_API_KEY)"
    yield "or your own", f"{again} NAME --base-url http://127.0.0.1:8000/v1"


def _plan_text(plan: dict[str, Any]) -> str:
    rows = [(name, number(plan[name])) for name in ("rows", "invalid", "planned", "done", "pending")]
    if plan["reused"]:
        rows.append(("of them to be taken over (reuse)", number(plan["reused"])))
    lines = ["plan", columns(rows)]
    if plan["toolsets"]:
        lines += ["toolsets", columns((name, number(count)) for name, count in plan["toolsets"].items())]
    lines += ["backends", columns((name,) for name in plan["backends"])]
    if plan["images"]:
        found = {
            True: "here",
            False: "not here",
            None: "unknown: its backend does not answer, see hermes-run doctor",
        }
        lines += ["images", columns((image, found[is_here]) for image, is_here in plan["images"].items())]
    lines += forecast_lines(plan["forecast"])
    return "\n".join(lines)
