"""Which entries are wanted: `--status`, `--reason`, `--toolset` and `--where`.

`--where` is comparisons over the fields of a manifest entry, joined by `and`; nothing more::

    turns > 3 and cost < 0.5 and model = "some/model" and usage.total_tokens >= 1000

Numbers take all six comparisons, texts `=` and `!=`; for `toolsets` these ask whether one is among
them. `==` is `=`. An unknown cost compares with `null` alone: it is neither less nor more than any number.
Of texts `null` (without quotes) is one that is not there, such as the error of what did not fail.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any

from hermes_run.core.messages import Usage
from hermes_run.core.registry import did_you_mean, which_are_known
from hermes_run.core.toolsets import TOOLSETS
from hermes_run.core.trajectory import DISCARDED_REASONS, FAILED_REASONS, Status, StopReason
from hermes_run.errors import UsageError
from hermes_run.store.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Test = Callable[[Entry], bool]

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
_SPELLINGS = {"==": "="}
_NUMBERS = ("turns", "api_calls", "cost", *(f"usage.{name}" for name in Usage.__struct_fields__))
_TEXTS = tuple(
    name
    for name in Entry.__struct_fields__
    if name not in ("turns", "api_calls", "cost", "usage", "toolsets")
)
FIELDS = (*_TEXTS, "toolsets", *_NUMBERS)
"""What can be compared."""

_STATUSES = tuple(status.value for status in Status)
_REASONS = (*(reason.value for reason in StopReason), *DISCARDED_REASONS, *FAILED_REASONS)
_VALUES = {"status": _STATUSES, "reason": _REASONS}
"""Texts that are one of a few: another one is a mistake, not a choice of nothing."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<operator><=|>=|!=|==|=|<|>)|"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<word>[^\s<>=!"']+))"""
)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


class Wanted:
    """Whether an entry fulfils all that was asked. Remembers which toolsets it has seen.

    Attributes:
        toolsets: names that were asked for.
    """

    def __init__(self) -> None:
        self.toolsets: dict[str, None] = {}
        self._tests: list[Test] = []
        self._seen: set[str] = set()

    def __call__(self, entry: Entry) -> bool:
        """Whether this one does."""
        if self.toolsets:
            self._seen.update(entry.toolsets)
        return all(test(entry) for test in self._tests)

    def add(self, test: Test) -> None:
        """Ask for one thing more."""
        self._tests.append(test)

    def where(self, text: str) -> Wanted:
        """Ask for comparisons. Raises UsageError: what is wrong, where, and what would be right."""
        tokens = list(_tokens(text))
        while True:
            part, tokens = tokens[:3], tokens[3:]
            self.add(_comparison(part, text))
            if part[0][1] == "toolsets" and part[2] != ("word", "null"):
                self.toolsets[part[2][1]] = None
            if not tokens:
                return self
            kind, word = tokens.pop(0)
            if kind != "word" or word.lower() != "and":
                what = f'"{word}" stands where "and" should; comparisons are joined by "and" alone'
                raise _wrong(text, what)

    def warnings(self) -> list[str]:
        """Toolsets that none of the entries had: a name that was mistyped chooses nothing."""
        known = self._seen | TOOLSETS.keys()
        return [
            f'no rollout there was offered a toolset "{name}"'
            + (did_you_mean(name, known) if name not in known else "")
            for name in self.toolsets
            if name not in self._seen
        ]


def parse_where(text: str) -> Wanted:
    """Whether an entry fulfils `text`. Raises as `Wanted.where`."""
    return Wanted().where(text)


def _wrong(text: str, what: str) -> UsageError:
    return UsageError(f"--where '{text}': {what}")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise _wrong(
                text, f"cannot be read from character {at + 1} on; a comparison is FIELD OPERATOR VALUE"
            )
        kind = str(match.lastgroup)
        yield ("text" if kind in ("double", "single") else kind), match[kind]
        at = match.end()


def _comparison(part: Sequence[tuple[str, str]], text: str) -> Test:
    kinds = [kind for kind, _ in part]
    if len(part) < 3 or kinds[0] != "word" or kinds[1] != "operator" or kinds[2] == "operator":
        found = f'"{" ".join(word for _, word in part)}"' if part else "nothing"
        raise _wrong(text, f"{found} is no comparison; one is FIELD OPERATOR VALUE, such as turns>3")
    (_, name), (_, sign), value = part
    sign = _SPELLINGS.get(sign, sign)
    if name in _NUMBERS:
        return _number_test(name, sign, value, text)
    if name in _TEXTS or name == "toolsets":
        return _text_test(name, sign, value, text)
    if name == "usage":
        raise _wrong(text, f"usage has parts, such as {_NUMBERS[3]} or usage.total_tokens")
    raise _wrong(text, f'an entry has no "{name}"{which_are_known(name, FIELDS)}')


def _number_test(name: str, sign: str, value: tuple[str, str], text: str) -> Test:
    kind, word = value
    if name == "cost" and (kind, word) == ("word", "null") and sign in ("=", "!="):
        return lambda entry: (entry.cost is None) == (sign == "=")
    if kind != "word" or not _NUMBER.fullmatch(word):
        raise _wrong(text, f'{name} is a number, and "{word}" is none')
    limit, compare, get = float(word), _COMPARE[sign], operator.attrgetter(name)

    def test(entry: Entry) -> bool:
        found = get(entry)
        return found is not None and compare(found, limit)

    return test


def _text_test(name: str, sign: str, value: tuple[str, str], text: str) -> Test:
    if sign not in ("=", "!="):
        what = "a list of names" if name == "toolsets" else "a text"
        raise _wrong(text, f"{name} is {what}, which takes = and !=, not {sign}")
    word, is_wanted, get = value[1], sign == "=", operator.attrgetter(name)
    known = _VALUES.get(name)
    if known is not None and word not in known:
        raise _wrong(text, f'{name} is never "{word}"{which_are_known(word, known)}')
    if value == ("word", "null"):
        return lambda entry: (not get(entry)) == is_wanted
    if name == "toolsets":
        return lambda entry: (word in entry.toolsets) == is_wanted
    return lambda entry: (get(entry) == word) == is_wanted


def wanted_by(
    statuses: Sequence[str] | None,
    reasons: Sequence[str] | None,
    toolsets: Sequence[str] | None,
    wheres: Sequence[str] | None,
) -> Wanted:
    """Whether an entry fulfils all that was asked; of names in a list, one is enough. Raises UsageError."""
    wanted = Wanted()
    for text in wheres or ():
        wanted.where(text)
    if statuses is not None:
        of_status = _listed("--status", statuses, _STATUSES)
        wanted.add(lambda entry: entry.status in of_status)
    if reasons is not None:
        of_reason = _listed("--reason", reasons, _REASONS)
        wanted.add(lambda entry: entry.reason in of_reason)
    if toolsets is not None:
        of_toolset = _listed("--toolset", toolsets, None)
        wanted.toolsets |= dict.fromkeys(sorted(of_toolset))
        wanted.add(lambda entry: not of_toolset.isdisjoint(entry.toolsets))
    return wanted


def _listed(option: str, lists: Sequence[str], known: Sequence[str] | None) -> frozenset[str]:
    names = [name.strip() for text in lists for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError(f"{option} names nothing")
    for name in names:
        if name == "pending" and option == "--status":
            raise UsageError("--status pending: what is pending has no entry yet; running the spec runs it")
        if known is not None and name not in known:
            raise UsageError(f'{option}: there is no "{name}"{which_are_known(name, known)}')
    return frozenset(names)
