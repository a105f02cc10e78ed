"""Command lines of the predecessor, as people paste them, and the spec that is equal to one.

Its command line is made by a library that takes `--flag=value`, `--flag value`, switches alone, with a
value or as `--noflag`, hyphens or underscores, and values without a flag in the order of the parameters.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_run.core.registry import did_you_mean
from hermes_run.errors import UsageError
from hermes_run.spec.distributions import is_path
from hermes_run.spec.effective import dump_plain
from hermes_run.spec.flags import BY_DEST, FLAGS, WITHOUT_SPEC, spec_from_flags
from hermes_run.spec.keys_and_hosts import KNOWN_HOSTS
from hermes_run.spec.model import DEFAULT_BASE_URL, DEFAULT_MODEL
from hermes_run.spec.schema import load_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

POSITIONS = (
    "dataset_file",
    "batch_size",
    "run_name",
    "distribution",
    "model",
    "api_key",
    "base_url",
    "max_turns",
    "num_workers",
)
"""What values without a flag are, in order."""
OWN = ("resume", "list_distributions", "api_key")
"""Its options that set no spec key."""
_SWITCHES = {*OWN[:2], *(flag.dest for flag in FLAGS if flag.type == "boolean")}
_KEYS = {name for names in KNOWN_HOSTS.values() for name in names}
_PATHS = ("dataset_file", "prefill_messages_file", "distribution")
_ALIASES = {
    name.lstrip("-").replace("-", "_"): flag.dest for flag in FLAGS for name in flag.names if len(name) > 2
}
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_PROGRAM = "batch_runner.py"
_PROGRAMS = {"uv", "run", "env", "hermes-run", "batch_runner"}
_SWITCH_OF_PYTHON = re.compile("-[a-zA-Z]")
_SHELL = re.compile(r"[0-9]*[<>|&;].*|&>.*", re.DOTALL)
"""A word of a shell, if it is not quoted: what follows is no option of the program any more."""


@dataclass(slots=True)
class OldCommand:
    """A command line, understood.

    Attributes:
        flags: `Flag.dest` -> text, as `spec.flags` takes them.
        own: what it said of `resume`, `list_distributions` and `api_key`.
        environment: variables set before the program, names only.
        unknown: options that nothing here is equal to, as written, with what was probably meant.
    """

    flags: dict[str, str] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)
    environment: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def without_equal(self) -> list[str]:
        """What nothing here is equal to: a known provider's key is looked for in the same variable."""
        others = [name for name in self.environment if name not in _KEYS]
        return [*self.unknown, *(f"the variable {name}" for name in others)]

    def count_paths_from(self, folder: Path) -> None:
        """Spell relative paths as they count from a folder, instead of from the working directory."""
        here, there = os.path.realpath("."), os.path.realpath(folder)
        for name in _PATHS:
            text = self.flags.get(name, "")
            is_relative = text and not text.startswith(("/", "~"))
            if is_relative and here != there and (name != "distribution" or is_path(text)):
                self.flags[name] = os.path.relpath(Path(here) / text, there)

    @property
    def missing(self) -> list[str]:
        """The options without which there is no run."""
        return [name for name in WITHOUT_SPEC if name[2:].replace("-", "_") not in self.flags]


def read_command(words: Sequence[str]) -> OldCommand:
    """What a pasted command line says: the program's name in front or not, quoted whole or not.

    Raises UsageError when it is one text with a quote that is never closed.
    """
    chosen, others = _split(words)
    rest = [word for word in chosen if word.strip("\\\n ")]
    found = OldCommand()
    for other in others:
        _note_other(other, found)
    _skip_program(rest, found)
    if len(words) == 1:
        _cut_shell(rest, found)
    values: list[str] = []
    while rest:
        word = rest.pop(0)
        if word == "-v":
            found.flags["verbose"] = "true"
        elif word.startswith("-") and len(word) > 1:
            _read_option(word, rest, found)
        else:
            values.append(word)
    free = (name for name in POSITIONS if name not in found.flags and name not in found.own)
    for name, value in list(zip_longest(free, values))[: len(values)]:
        if name is None:
            found.unknown.append(_one_line(value))
        else:
            _put(name, value, found)
    return found


def _skip_program(rest: list[str], found: OldCommand) -> None:
    """Take off what calls the program: a shell's words, variables, python and its switches, the file."""
    names = [word.rpartition("/")[2] for word in rest]
    if _PROGRAM in names:
        before = rest[: names.index(_PROGRAM)]
        del rest[: len(before) + 1]
        found.environment += [word.partition("=")[0] for word in before if _ASSIGNMENT.fullmatch(word)]
        if "cd" in before[:-1]:
            found.unknown.append(_one_line(f"cd {before[before.index('cd') + 1]}"))
        return
    is_after_python = False
    while rest:
        word = rest[0]
        name = word.rpartition("/")[2]
        is_after_python = name.startswith("python") or (
            is_after_python and _SWITCH_OF_PYTHON.fullmatch(word) is not None
        )
        if _ASSIGNMENT.fullmatch(word):
            found.environment.append(word.partition("=")[0])
        elif not is_after_python and name not in _PROGRAMS:
            return
        del rest[0]


def _cut_shell(rest: list[str], found: OldCommand) -> None:
    """Take off what a shell does after the program, such as `> log.txt 2>&1 &`."""
    for place, word in enumerate(rest):
        if _SHELL.fullmatch(word):
            found.unknown.append(_one_line(" ".join(rest[place:])))
            del rest[place:]
        elif word.endswith(";"):
            rest[place] = word[:-1]
            del rest[place + 1 :]


def _split(words: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """One quoted text is split as a shell would: the first command that calls the program, and the others."""
    if len(words) != 1 or not any(c.isspace() for c in words[0]):
        return list(words), []
    commands: list[list[str]] = []
    begun = ""
    for line in words[0].replace("\r\n", "\n").replace("\\\n", " ").split("\n"):
        begun += line
        try:
            commands.append(shlex.split(begun, comments=True))
            begun = ""
        except ValueError:  # a quote goes on
            begun += "\n"
    if begun:
        raise UsageError("the command line ends within a quotation; close it, or give its words unquoted")
    place = next((place for place, each in enumerate(commands) if _calls_program(each)), None)
    if place is None:
        return [word for each in commands for word in each], []
    return commands.pop(place), commands


def _calls_program(words: Sequence[str]) -> bool:
    return any(word.rpartition("/")[2] == _PROGRAM for word in words)


def _note_other(words: Sequence[str], found: OldCommand) -> None:
    """What else a pasted script does that the run depends on: no values, they may be keys."""
    names = [word.partition("=")[0] for word in words if _ASSIGNMENT.fullmatch(word)]
    if len(names) == len([word for word in words if word != "export"]):
        found.environment += names
    elif _calls_program(words):
        found.unknown.append(f"a further command line of {_PROGRAM}: convert it by itself")
    elif words[:1] == ["cd"]:
        found.unknown.append(_one_line(" ".join(words)))


def _read_option(word: str, rest: list[str], found: OldCommand) -> None:
    name, equals, value = word.lstrip("-").partition("=")
    name = name.replace("-", "_")
    if name not in _ALIASES and name not in OWN and name.startswith("no"):
        opposite = name[2:].lstrip("_")
        if opposite in _SWITCHES and not equals:
            _put(opposite, "false", found)
            return
    dest = _ALIASES.get(name, name)
    is_known = dest in BY_DEST or dest in OWN
    if not equals and dest in _SWITCHES:
        value = rest.pop(0) if rest and rest[0] in ("True", "False") else "true"
    elif not equals and rest and not rest[0].startswith("--"):
        value = rest.pop(0)
    if is_known:
        _put(dest, value, found)
        return
    option = word.partition("=")[0]
    said = f"{option}={shlex.quote(value)}" if value else option
    found.unknown.append(_one_line(said) + did_you_mean(dest, [*BY_DEST, *OWN]))


def _one_line(text: str) -> str:
    """A text as it is, unless a comment could not hold it."""
    return text if text.isprintable() else json.dumps(text)


def _put(dest: str, value: str, found: OldCommand) -> None:
    (found.own if dest in OWN else found.flags)[dest] = value


def write_spec(command: OldCommand) -> str:
    """The equal spec as YAML, commented where something is another thing here. Raises SpecError."""
    spec = spec_from_flags(command.flags)
    lines = [f"# {text}" for text in _head(command)]
    for name in load_schema("run-spec")["properties"]:
        if name in spec:
            lines += [f"# {text}" for text in _about(name, command)]
            lines.append(dump_plain({name: spec[name]}).rstrip("\n"))
    lines += [f"# {text}" for text in _defaults(spec)]
    return "\n".join(lines) + "\n"


def _head(command: OldCommand) -> Iterator[str]:
    yield "The spec of a command line of hermes-agent's batch runner: hermes-run THIS_FILE runs it."
    yield "Paths in it count from the folder of this file."
    for text in command.without_equal:
        yield f"Without an equal: {text}"
    if any(name not in _KEYS for name in command.environment):
        yield "What variables set there belongs in this file (such as sandbox.backend) or in hermes.yaml."
    if command.own.get("resume") == "true":
        yield "--resume is how every run goes here: the same command continues."
    if "api_key" in command.own:
        yield "--api_key: a key is never written into a file; put it into the variable of model.api_key_env."
    if "list_distributions" in command.own:
        yield "--list_distributions is a command here: hermes-run distributions"


_CHANGED: Mapping[str, str] = {
    "workers": "prompts in flight, not processes; none is idle while prompts are left",
    "batch_size": "only which file a result goes to: prompts are run one by one",
    "distribution": "drawn from seed and prompt, so that a resume draws the same",
    "provider_routing": "lists, not comma-separated text",
    "reasoning": "unset, off and a level stay apart; `disabled` wins over `effort`",
}


def _about(name: str, command: OldCommand) -> Iterator[str]:
    if name in _CHANGED:
        yield f"{name}: {_CHANGED[name]}"
    if name == "model" and "base_url" in command.flags:
        yield "model.api_key_env: the known variable of base_url's host, else no key is sent; name yours here"


def _defaults(spec: Mapping[str, Any]) -> Iterator[str]:
    """What the old defaults are here, where the command line did not say."""
    yield "Not said, and as there unless noted:"
    if "distribution" not in spec:
        yield "distribution: default   # every toolset; `hermes-run --dry-run` names what cannot work here"
    model = spec.get("model", {})
    if "name" not in model:
        yield f"model.name: {DEFAULT_MODEL}"
    if "base_url" not in model:
        yield f"model.base_url: {DEFAULT_BASE_URL}   # the key in OPENROUTER_API_KEY"
    if "workers" not in spec:
        yield "workers: 4"
    if "max_turns" not in spec.get("agent", {}):
        yield "agent.max_turns: 10"
    yield "seed: 0                  # draws were unseeded there"
    yield "sandbox.backend: auto    # there TERMINAL_ENV, by default your own machine; here a sandbox each"
