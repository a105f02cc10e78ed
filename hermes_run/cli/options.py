"""Options that several commands share: which spec, which settings, how to run."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_run.cli.plain import near
from hermes_run.cli.report import complain
from hermes_run.core.registry import which_are_known
from hermes_run.errors import UsageError
from hermes_run.spec.flags import FLAGS, Typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.cli.parser import Parser
    from hermes_run.spec.model import Settings, Spec

RETRIABLE = ("failed", "partial", "discarded")
_ONCE = ("--fresh", "--accept-spec-change")  # no part of the command that continues a run
_ONCE_WITH_VALUE = ("--retry", "--api-key")


class _Typed(argparse.Action):
    """Keeps under which of its names an option was given, for what is said of its value."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        value: Any,
        name: str | None = None,
    ) -> None:
        """Take the value that follows an option."""
        setattr(namespace, self.dest, Typed(value, name or ""))


def add_spec_options(parser: Parser) -> None:
    """`--config`, `--set`, and every shorthand of the predecessor."""
    group = parser.add_argument_group("the spec")
    group.add_argument("--config", metavar="FILE", help="machine settings instead of ./hermes.yaml")
    group.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="any spec key, VALUE in YAML; repeatable",
    )
    for flag in FLAGS:
        is_switch = flag.type == "boolean"
        what: dict[str, Any] = {"nargs": "?", "const": "true"} if is_switch else {}
        group.add_argument(
            *flag.names,
            action=_Typed,
            dest=flag.dest,
            metavar="true" if is_switch else flag.dest.rpartition("_")[2].upper(),
            help=f"{'.'.join(flag.key)}: {flag.help}",
            **what,
        )


def add_run_options(parser: Parser) -> None:
    """Everything that a run understands."""
    parser.add_argument("spec", metavar="SPEC", nargs="?", help="the run spec, a YAML file")
    group = parser.add_argument_group("how to run")
    group.add_argument("--resume", action="store_true", default=True, help="continue (the default)")
    group.add_argument(
        "--no-resume", dest="resume", action="store_false", help="refuse a run directory that has entries"
    )
    group.add_argument("--fresh", action="store_true", help="set the old run directory aside and start over")
    group.add_argument(
        "--retry",
        metavar="LIST",
        action="append",
        help=f"outcomes to run again: {', '.join(RETRIABLE)}, none (default: failed)",
    )
    group.add_argument(
        "--accept-spec-change", action="store_true", help="go on although the work fingerprint changed"
    )
    group.add_argument(
        "--allow-host-code", action="store_true", help="let the spec's own code run outside the sandbox"
    )
    group.add_argument(
        "--pilot", metavar="N", help="run N rollouts first, show what the rest will cost, and ask"
    )
    group.add_argument("--yes", action="store_true", help="go on after the pilot unasked")
    group.add_argument("--shard", metavar="K/N", help="only part K of N, in its own run directory")
    group.add_argument("--api-key", metavar="KEY", help="better: put it in the variable of model.api_key_env")
    group = parser.add_argument_group("instead of a run")
    group.add_argument("--dry-run", action="store_true", help="the plan; no model call, no sandbox")
    group.add_argument("--print-config", action="store_true", help="the effective spec, with every default")
    group.add_argument("--list-distributions", action="store_true", help="the toolset distributions")
    group = parser.add_argument_group("what is shown")
    group.add_argument("--json", action="store_true", help="the summary as one JSON object on stdout")
    group.add_argument("--quiet", "-q", action="store_true", help="no progress")
    add_spec_options(parser)


def flags_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the shorthands say: `Flag.dest` -> text, None where unset."""
    return {flag.dest: getattr(arguments, flag.dest) for flag in FLAGS}


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The machine's settings."""
    from hermes_run.spec.settings import load_settings

    return load_settings(Path(arguments.config) if arguments.config else None)


def read_spec(path: str | None, arguments: argparse.Namespace, settings: Settings) -> Spec:
    """The spec that a command line means. Raises SpecError."""
    from hermes_run.spec.load import load_spec

    return load_spec(
        Path(path) if path else None, sets=arguments.set, flags=flags_of(arguments), settings=settings
    )


def warn(spec: Spec, settings: Settings) -> None:
    """Tell what a person should know before a run."""
    from hermes_run.spec.endpoint import warnings_of

    for text in warnings_of(spec, settings):
        complain(f"warning: {text}")


MOST_SHARDS = 100_000
"""More parts than any cluster has; a typo is told before it makes an empty run."""


def retry_set(lists: Sequence[str] | None) -> frozenset[str]:
    """The outcomes of `--retry`, `failed` when it was not given. Raises UsageError."""
    if lists is None:
        return frozenset({"failed"})
    names = [name.strip() for text in lists for name in text.split(",") if name.strip()]
    for name in names:
        if name not in (*RETRIABLE, "none"):
            raise UsageError(
                f'--retry: "{name}" is no outcome to run again{which_are_known(name, (*RETRIABLE, "none"))}'
            )
    if not names or ("none" in names and len(names) > 1):
        raise UsageError(f"--retry takes some of {', '.join(RETRIABLE)}, or none alone")
    return frozenset(names) - {"none"}


def shard_of(text: str | None) -> str | None:
    """`--shard K/N` as it is used in names, or None. Raises UsageError."""
    if text is None:
        return None
    number, slash, count = text.partition("/")
    if not (slash and number.isascii() and number.isdigit() and count.isascii() and count.isdigit()):
        raise UsageError(f'--shard: "{text}" is no part; it takes K/N, such as 1/4 for the first of four')
    if not 1 <= int(number) <= int(count) <= MOST_SHARDS:
        raise UsageError(f"--shard: K goes from 1 to N, and N to {MOST_SHARDS}; it is {text}")
    return f"{int(number)}/{int(count)}"


def continuing(words: Sequence[str]) -> str:
    """The command that goes on with a run that was called with `words`: no key, nothing done twice."""
    kept: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.partition("=")
        name = name.replace("_", "-") if word.startswith("--") else name
        if name in _ONCE_WITH_VALUE:
            if not equals and rest:
                rest.pop(0)
        elif name not in _ONCE:
            kept.append(word)
    return shlex.join([program(), *kept])


def program() -> str:
    """How this program was called: `hermes-run`, or its path where that is not on the PATH."""
    called = Path(sys.argv[0])
    if called.name != "hermes-run" or shutil.which("hermes-run") == str(called):
        return "hermes-run"
    return near(called)
