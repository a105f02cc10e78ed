"""Values that know where they were written, and the list of mistakes that points there."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_run.errors import SpecError
from hermes_run.spec.keys_and_hosts import looks_like_key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KeyPath = tuple[str | int, ...]
"""Where a value stands in a spec: map keys and list indices, from the root."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True)
class Source:
    """A file, or an option of the command line, in which values are written.

    Attributes:
        shown: its name in messages.
        folder: what relative paths written in it count from.
        order: its place among the sources, for the order of messages.
        is_file: whether it has lines; an option has none.
    """

    shown: str
    folder: Path
    order: int = 0
    is_file: bool = True


@dataclass(frozen=True, slots=True)
class Place:
    """A source and, in a file, line and column from 1 (0: the file as a whole)."""

    source: Source
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if self.line and self.source.is_file:
            return f"{self.source.shown}:{self.line}:{self.column}"
        return self.source.shown


@dataclass(frozen=True, slots=True)
class Node:
    """A value with its place.

    Attributes:
        value: a scalar, a list of nodes, or a map of nodes.
        place: where the value begins.
        keys: a map's keys -> where each is written.
        written: a scalar as it stands in the file, without quotes.
        size: how many nodes it is when all aliases are written out.
    """

    value: Any
    place: Place
    keys: dict[str, Place] = field(default_factory=dict)
    written: str = ""
    size: int = 1

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, dict):
            return {name: node.plain() for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def find(self, path: KeyPath) -> Node | None:
        """The node at `path`, or None."""
        node: Node | None = self
        for step in path:
            node = node.child(step) if node is not None else None
        return node

    def child(self, step: str | int) -> Node | None:
        """The node under a key or an index, or None."""
        found: Node | None = None
        if isinstance(step, str) and isinstance(self.value, dict):
            found = self.value.get(step)
        elif isinstance(step, int) and isinstance(self.value, list) and step < len(self.value):
            found = self.value[step]
        return found

    def place_of(self, path: KeyPath) -> Place:
        """Where the value at `path` is written, or the nearest thing around it."""
        for length in range(len(path), -1, -1):
            node = self.find(path[:length])
            if node is not None:
                return node.place
        return self.place

    def key_place_of(self, path: KeyPath) -> Place:
        """Where the key that `path` ends with is written."""
        parent = self.find(path[:-1])
        key = path[-1] if path else ""
        if parent is not None and isinstance(key, str) and key in parent.keys:
            return parent.keys[key]
        return self.place_of(path)

    def walk(self, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Node]]:
        """Every node below this one and itself, with its path."""
        yield path, self
        if isinstance(self.value, dict):
            for name, node in self.value.items():
                yield from node.walk((*path, name))
        elif isinstance(self.value, list):
            for index, node in enumerate(self.value):
                yield from node.walk((*path, index))


def dotted(path: KeyPath) -> str:
    """`a.b[0].c`; keys with odd characters in quotes."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = step if _PLAIN_KEY.fullmatch(step) and not looks_like_key(step) else shown(step)
            text += f".{name}" if text else name
    return text


def shown(value: Any) -> str:
    """A value for a message: one line, bounded, and never a key."""
    if isinstance(value, str):
        if looks_like_key(value):
            return "a text that looks like a key"
        text = _printable(json.dumps(value[:_SHOWN_CHARACTERS], ensure_ascii=False))
        return text if len(value) <= _SHOWN_CHARACTERS else f'{text[:-1]}…"'
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    return (
        {True: "true", False: "false", None: "null"}.get(value, "") if not _is_number(value) else repr(value)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown_path(path: Path) -> str:
    """A path for a message: as it was given, without `x/../`."""
    return _printable(os.path.normpath(path))


def _printable(text: str) -> str:
    """One line without anything that a terminal would act on."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


class Mistakes:
    """What is wrong, collected so that all of it is told at once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, KeyPath, str], Place] = {}

    def add(self, place: Place, path: KeyPath, text: str) -> None:
        """Note one. `text` says what is wrong and the cure."""
        self._found.setdefault((str(place), path, text), place)

    def __len__(self) -> int:
        return len(self._found)

    def lines(self) -> list[str]:
        """One line each, in the order of the sources and of the lines in them."""
        entries = [
            ((place.source.order, place.line, place.column), _line(place, path, text))
            for (_, path, text), place in self._found.items()
        ]
        return [line for _, line in sorted(entries, key=lambda entry: entry[0])]

    def stop_if_any(self) -> None:
        """Raises SpecError with every line when there is any mistake."""
        if self._found:
            raise SpecError("\n".join(self.lines()))


def _line(place: Place, path: KeyPath, text: str) -> str:
    key = dotted(path)
    named_already = not place.source.is_file and place.source.shown.split(" ")[-1] == key
    return f"{place}: {text}" if not key or named_already else f"{place}: {key}: {text}"
