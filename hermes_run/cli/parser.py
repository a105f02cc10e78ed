"""An argument parser for people: says what is wrong, where, and what was probably meant."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NoReturn

from hermes_run.core.registry import did_you_mean
from hermes_run.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_TRUE = ("true", "yes", "1")
_FALSE = ("false", "no", "0")


class Parser(argparse.ArgumentParser):
    """argparse with hyphens or underscores in options, and errors raised as UsageError."""

    def __init__(self, command: str, description: str, epilog: str = "") -> None:
        super().__init__(
            prog=f"hermes-run {command}".strip(),
            description=description,
            epilog=epilog or None,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        """Raises UsageError instead of leaving."""
        raise UsageError(f"{message}\n  {self.prog} --help shows how it is used")

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments. Raises UsageError for anything that is not understood."""
        arguments, rest = self.parse_known_args(self._spell(list(words)))
        if rest and rest[0].startswith("-") and rest[0] != "-":
            self._refuse_option(rest[0])
        if rest:
            self.error(f'unexpected argument "{rest[0]}"')
        return arguments

    def _refuse_option(self, option: str) -> NoReturn:
        known = [name for name in self._option_string_actions if name.startswith("--")]
        self.error(f'there is no option "{option}"{did_you_mean(option, known)}')

    def _spell(self, rest: list[str]) -> list[str]:
        """Options in their one spelling: hyphens, `--name=value`, switches without a value.

        A value is whatever follows its option, hyphens in front or not, unless it is an option itself.
        """
        spelled: list[str] = []
        while rest:
            word = rest.pop(0)
            if word == "--":
                return [*spelled, word, *rest]
            if word.startswith("--"):
                spelled += self._spell_option(word, rest)
            else:
                spelled += self._spell_letters(word)
        return spelled

    def _spell_option(self, word: str, rest: list[str]) -> list[str]:
        """One option, with its value taken from the front of `rest`."""
        name, equals, value = word.partition("=")
        name = _hyphens(name)
        action = self._option_string_actions.get(name)
        if action is None:
            self._refuse_option(name)
        takes_value = action.nargs not in (0, "?")
        if rest and not equals and self._follows(rest[0], takes_value=takes_value):
            equals, value = "=", rest.pop(0)
        if action.nargs == 0:
            return self._switch(name, value) if equals else [name]
        if action.nargs == "?" and not equals:
            return [f"{name}={action.const}"]
        return [name + equals + value]

    def _spell_letters(self, word: str) -> list[str]:
        """`-qv` as its switches; an argument, or a letter with a value, as it is."""
        actions = [self._option_string_actions.get(f"-{letter}") for letter in word[1:]]
        if not word.startswith("-") or not actions:
            return [word]
        switches = [action for action in actions if action is not None and action.nargs in (0, "?")]
        if len(switches) < len(actions):
            return [word]
        return [
            f"{action.option_strings[0]}={action.const}" if action.nargs == "?" else action.option_strings[0]
            for action in switches
        ]

    def _follows(self, word: str, *, takes_value: bool) -> bool:
        if takes_value:
            return _hyphens(word.partition("=")[0]) not in self._option_string_actions
        return word in ("True", "False")  # how the predecessor's switches could be written

    def _switch(self, name: str, value: str) -> list[str]:
        if value.lower() in _TRUE:
            return [name]
        if value.lower() not in _FALSE:
            self.error(f'{name} is a switch: true or false, not "{value}"')
        opposite = f"--no-{name[2:]}"
        return [opposite] if opposite in self._option_string_actions else []


def _hyphens(option: str) -> str:
    return option.replace("_", "-")
