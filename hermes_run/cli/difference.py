"""What `hermes-run diff` says to people: 80 columns or the terminal's, colours only in a terminal."""

from __future__ import annotations

import json
import shutil
import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

from hermes_run.cli.plain import cut, money, number, printable, table
from hermes_run.cli.turns import turn_lines, without_shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hermes_run.store.comparison import Comparison

_NARROWEST, _WIDEST = 60, 120
_LONGEST_NAME = 18
_LONGEST_VALUE = 60
_SHORT_HASH = 12
_TURN_LINES = 4
_COLOURS = {"-": "31", "+": "32", "~": "33"}


class Difference:
    """A comparison in words. `shown` is how many keys of a kind are listed; None: all."""

    def __init__(self, found: Comparison, names: tuple[str, str], shown: int | None) -> None:
        self._found = found
        self._names = names
        self._shown = shown
        self._width = max(_NARROWEST, min(shutil.get_terminal_size().columns, _WIDEST))
        self._has_colours = has_colours()

    def lines(self) -> Iterator[str]:
        """The counts, what both come to, the keys, the dataset and the spec."""
        found, (a, b) = self._found, self._names
        counts = (
            f"{number(found.same)} the same",
            f"{number(found.different)} changed",
            f"{number(len(found.only_a))} only in {a}",
            f"{number(len(found.only_b))} only in {b}",
        )
        head = ", ".join(counts)
        yield head if len(head) <= self._width else ",\n".join(counts)
        if not found.is_equal:
            yield ""
            yield from self._sums()
            yield ""
            yield from self._listed("-", found.only_a, len(found.only_a))
            yield from self._listed("+", found.only_b, len(found.only_b))
            yield from self._listed("~", map(self._entry, found.changed()), found.different)
        yield from self._origins()

    def _sums(self) -> Iterator[str]:
        about = self._found.about
        heads = self._names if max(map(len, self._names)) <= _LONGEST_NAME else ("A", "B")
        yield table([("", *heads, ""), *_figures(about)])
        if about["tools"]:
            yield from _tools(about["tools"])
        if about["fields"]:
            parts = [f"{name} {number(count)}" for name, count in about["fields"].items()]
            yield from self._wrapped(parts, "changed fields: ")
        for move in about["moves"]:
            yield f"  {number(move['count'])} x {printable(move['from'])} -> {printable(move['to'])}"

    def _origins(self) -> Iterator[str]:
        dataset = self._found.about["dataset"]
        told = {
            name: pair
            for name, pair in (dataset or {}).items()
            if pair[0] != pair[1] and None not in pair  # a manifest alone knows none
        }
        if told:
            yield "\ndataset:"
            yield from (f"  {_change(*item)}" for item in told.items())
        if spec := self._found.about["spec"]:
            yield "\nspec:"
            yield from (f"  {_change(*item)}" for item in spec.items())

    def _listed(self, mark: str, texts: Iterable[str], count: int) -> Iterator[str]:
        yield from (self._marked(mark, text) for text in islice(texts, self._shown))
        if self._shown is not None and count > self._shown:
            yield self._marked(mark, f"and {number(count - self._shown)} more (--all shows them)")

    def _marked(self, mark: str, text: str) -> str:
        if not self._has_colours:
            return f"{mark} {text}"
        first, newline, rest = text.partition("\n")
        return f"\x1b[{_COLOURS[mark]}m{mark} {first}\x1b[0m{newline}{rest}"

    def _entry(self, entry: dict[str, Any]) -> str:
        parts = [text for name, pair in entry["fields"].items() for text in _field(name, pair)]
        return "\n".join([entry["key"], *self._wrapped(parts, "    ")])

    def _wrapped(self, parts: Sequence[str], head: str) -> Iterator[str]:
        line = ""
        for part in parts:
            if line and len(head) + len(line) + len(part) + 3 > self._width:
                yield f"{head}{line},"
                line, head = "", " " * min(len(head), 4)
            line += f", {part}" if line else part
        yield head + line

    def parting_lines(self, partings: Iterable[dict[str, Any]]) -> Iterator[str]:
        """Where trajectories part: the first turn that differs, both sides cut to a few lines."""
        count = 0
        for count, each in enumerate(partings, 1):
            if self._shown is None or count <= self._shown:
                if count == 1:
                    yield "\nwhere the trajectories part:"
                yield self._marked("~", each["key"])
                yield from self._parting(each)
        if self._shown is not None and count > self._shown:
            yield self._marked("~", f"and {number(count - self._shown)} more (--all shows them)")

    def _parting(self, each: dict[str, Any]) -> Iterator[str]:
        if "missing" in each:
            sides = " and ".join(self._names["ab".index(side)] for side in each["missing"])
            yield f"    no trajectory in {sides}"
        elif each["turn"] is None:
            yield f"    the same turns; what differs: {', '.join(each['differs'])}"
        else:
            yield f"    turn {each['turn']}"
            texts = without_shared(turn_lines(each["a"]), turn_lines(each["b"]))
            for mark, text in zip("-+", texts, strict=True):
                yield from self._side(mark, text)

    def _side(self, mark: str, lines: Sequence[str]) -> Iterator[str]:
        room = self._width - 8
        for line in lines[:_TURN_LINES]:
            yield f"    {self._marked(mark, cut(printable(line), room))}"
        if len(lines) > _TURN_LINES:
            yield f"    {self._marked(mark, f'… {number(len(lines) - _TURN_LINES)} lines more')}"


def has_colours() -> bool:
    """Whether stdout is a terminal that shows colours, and wants to (NO_COLOR)."""
    if sys.stdout is None or not sys.stdout.isatty():
        return False
    from hermes_run.cli import display

    return display.shows_colours()


def _figures(about: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for status, pair in about["outcomes"].items():
        if any(pair):
            yield _row(status, pair)
        if status != "completed":
            yield from (
                _row(f"  {printable(reason)}", both)
                for reason, both in about["reasons"].get(status, {}).items()
            )
    yield _row("turns", about["turns"])
    yield _tokens_row(about["tokens"]["total_tokens"], about["api_calls"])
    if any(about["cost"]):
        yield ("cost", *(money(cost) for cost in about["cost"]), "")
    for served in (about["served_models"], about["served_providers"] or {}):
        if len(served) > 1:
            yield from (_row(cut(printable(name), 36), pair) for name, pair in served.items())


def _row(name: str, pair: Sequence[int]) -> tuple[str, ...]:
    before, after = pair
    return name, number(before), number(after), f"{after - before:+,}" if after != before else ""


def _tokens_row(tokens: Sequence[int], calls: Sequence[int]) -> tuple[str, ...]:
    """Calls that used no tokens at all did not report them."""
    row = _row("tokens", tokens)
    known = [count > 0 or not asked for count, asked in zip(tokens, calls, strict=True)]
    shown = (text if is_known else "unknown" for text, is_known in zip(row[1:3], known, strict=True))
    return row[0], *shown, row[3] if all(known) else ""


def _tools(tools: dict[str, Any]) -> Iterator[str]:
    rows = [
        (
            name,
            " -> ".join(map(number, tool["calls"])),
            " -> ".join("none" if rate is None else f"{rate:.1f} %" for rate in tool["success_rate"]),
        )
        for name, tool in tools.items()
        if tool["calls"][0] != tool["calls"][1] or tool["success"][0] != tool["success"][1]
    ]
    if rows:
        yield table([("tool", "calls", "success"), *rows])


def _field(name: str, pair: Sequence[Any]) -> Iterator[str]:
    """A changed field of an entry, in words."""
    if name == "usage":
        parts = {part: [pair[0].get(part), pair[1].get(part)] for part in pair[0] | pair[1]}
        differing = [part for part, (before, after) in parts.items() if before != after]
        if "total_tokens" in differing:
            yield _change("tokens", [_tokens(usage) for usage in pair])
        else:
            yield from (_change(f"usage.{part}", parts[part]) for part in differing)
    elif name == "cost":
        yield f"cost: {money(pair[0])} -> {money(pair[1])}"
    elif name == "hash":
        yield _change("content", [value[:_SHORT_HASH] or None for value in pair])
    else:
        yield _change(name, pair)


def _tokens(usage: dict[str, Any]) -> int | str:
    return usage["total_tokens"] or ("unknown" if usage["calls_without_usage"] else 0)


def _change(name: str, pair: Sequence[Any]) -> str:
    return f"{printable(name)}: {_value(pair[0])} -> {_value(pair[1])}"


def _value(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return number(value)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = ", ".join(value) or None
    if value is None or value == "":
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cut(printable(text), _LONGEST_VALUE)
