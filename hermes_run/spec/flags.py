"""The predecessor's options as shorthands of spec keys: a table, and what it makes of a command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from hermes_run.spec.locate import Mistakes, Node, Place, Source, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FlagType = Literal["text", "integer", "list", "boolean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One option.

    Attributes:
        names: as on the command line, with hyphens; underscores mean the same. The first is the
            one in messages.
        key: the spec key that it sets.
        type: `list` is comma-separated; `boolean` takes no value, or true/false.
        help: one line.
    """

    names: tuple[str, ...]
    key: tuple[str, ...]
    type: FlagType
    help: str

    @property
    def dest(self) -> str:
        """Its name in a mapping of flags: `--max-turns` is `max_turns`."""
        return self.names[0].lstrip("-").replace("-", "_")


def _flag(names: str, key: str, kind: FlagType, text: str) -> Flag:
    return Flag(names=tuple(names.split()), key=tuple(key.split(".")), type=kind, help=text)


FLAGS: tuple[Flag, ...] = (
    _flag("--dataset-file", "dataset.path", "text", "the dataset, JSON lines"),
    _flag("--batch-size", "batch_size", "integer", "prompts per batch file"),
    _flag("--run-name", "run_name", "text", "name of the run and of its directory"),
    _flag("--distribution", "distribution", "text", "toolset distribution: a name or a file"),
    _flag("--model", "model.name", "text", "the model"),
    _flag("--base-url", "model.base_url", "text", "an OpenAI-compatible endpoint"),
    _flag("--max-turns", "agent.max_turns", "integer", "most model turns of a rollout"),
    _flag("--num-workers --workers", "workers", "integer", "prompts in flight"),
    _flag("--max-samples", "dataset.max_samples", "integer", "only the first N rows"),
    _flag("--max-tokens", "model.max_tokens", "integer", "most tokens of one reply"),
    _flag("--providers-allowed", "provider_routing.allowed", "list", "only these providers"),
    _flag("--providers-ignored", "provider_routing.ignored", "list", "never these providers"),
    _flag("--providers-order", "provider_routing.order", "list", "providers to try, in order"),
    _flag("--provider-sort", "provider_routing.sort", "text", "price, throughput or latency"),
    _flag(
        "--reasoning-effort",
        "reasoning.effort",
        "text",
        "none, minimal, low, medium, high, xhigh, max or ultra",
    ),
    _flag("--reasoning-disabled", "reasoning.disabled", "boolean", "switch reasoning off"),
    _flag(
        "--ephemeral-system-prompt",
        "agent.ephemeral_system_prompt",
        "text",
        "a system prompt that is not saved",
    ),
    _flag(
        "--prefill-messages-file",
        "agent.prefill_messages_file",
        "text",
        "a JSON list of {role, content}, not saved",
    ),
    _flag("--log-prefix-chars", "logging.log_prefix_chars", "integer", "where a preview in the log is cut"),
    _flag("--verbose -v", "logging.verbose", "boolean", "previews in the log"),
    _flag("--without", "without", "list", "toolsets never drawn"),
)
"""`--list-distributions`, `--resume` and `--api-key` set no spec key and are the command line's own."""

WITHOUT_SPEC = ("--dataset-file", "--batch-size", "--run-name")
"""With these three no spec file is needed."""

BY_DEST = {flag.dest: flag for flag in FLAGS}

OTHER_NAMES = {
    name.lstrip("-").replace("-", "_"): ".".join(flag.key)
    for flag in FLAGS
    for name in flag.names
    if len(name) > 2
} | {"output_dir": "output.dir", "name": "run_name", "temperature": "model.sampling.temperature"}
"""Names that people bring along as spec keys -> the key that is meant."""


OPTIONS_ONLY = (
    "resume",
    "no_resume",
    "fresh",
    "retry",
    "shard",
    "dry_run",
    "accept_spec_change",
    "allow_host_code",
)
"""Options of a run, with underscores, that people look for in a spec in vain."""


class Typed(str):
    """A value as it was typed, with the name of the option that it was typed for."""

    __slots__ = ("option",)
    option: str

    def __new__(cls, text: str, option: str) -> Self:
        """Make one."""
        made = super().__new__(cls, text)
        made.option = option
        return made


_AROUND_NAMES = " \t\n[]()'\""
"""What may stand around the names of a list: blanks, and how the predecessor's command line took lists."""


class _NotThat(Exception):
    """A value that its option cannot take."""


def _convert(flag: Flag, value: Any) -> Any:
    if value is None or not isinstance(value, str):
        return list(value) if flag.type == "list" and isinstance(value, tuple) else value
    if flag.type == "integer":
        try:
            return int(value)
        except ValueError:
            raise _NotThat(f"must be a whole number, not {shown(value)}") from None
    if flag.type == "list":
        parts = (part.strip(_AROUND_NAMES) for part in value.split(","))
        return [part for part in parts if part]
    if flag.type == "boolean":
        word = value.lower()
        if word not in {"true", "false", "yes", "no", "on", "off", "1", "0"}:
            raise _NotThat(f"must be true or false, not {shown(value)}; the option alone means true")
        return word in {"true", "yes", "on", "1"}
    return value


def flag_nodes(
    flags: Mapping[str, Any], folder: Path, mistakes: Mistakes
) -> list[tuple[tuple[str, ...], Node]]:
    """The spec keys that options set, each with its value located at the option.

    Args:
        flags: `Flag.dest` -> the text of the command line, or a value of its type; None is unset.
        folder: the working directory.
        mistakes: values that cannot be read are added here.
    """
    nodes = []
    for dest, given in flags.items():
        if given is None:
            continue
        flag, value = BY_DEST[dest], str(given) if isinstance(given, Typed) else given
        name = given.option if isinstance(given, Typed) else flag.names[0]
        place = Place(Source(name, folder, order=1_000, is_file=False))
        try:
            converted = _convert(flag, value)
        except _NotThat as error:
            mistakes.add(place, flag.key, str(error))
            continue
        written = value if isinstance(value, str) else ""
        inside = [Node(item, place) for item in converted] if isinstance(converted, list) else converted
        nodes.append((flag.key, Node(inside, place, written=written)))
    return nodes


def spec_from_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The spec, as nested maps, that options alone amount to; None values are left out.

    Raises SpecError for a value that its option cannot take.
    """
    from pathlib import Path

    mistakes = Mistakes()
    spec: dict[str, Any] = {}
    for key, node in flag_nodes(flags, Path.cwd(), mistakes):
        inside = spec
        for name in key[:-1]:
            inside = inside.setdefault(name, {})
        inside[key[-1]] = node.plain()
    mistakes.stop_if_any()
    return spec
