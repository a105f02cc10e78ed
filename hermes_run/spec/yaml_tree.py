"""YAML text -> Node tree, and what is wrong with the text.

The tree is built from parse events, so neither nesting nor aliases can exhaust stack or memory: a
node that is aliased is shared, and its size when written out is known before it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from hermes_run.spec.locate import KeyPath, Mistakes, Node, Place, Source, shown
from hermes_run.spec.scalars import ScalarTrap, plain_value

MAX_NODES = 20_000
"""Values after all aliases are written out."""
MAX_DEPTH = 40

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TEXT = "tag:yaml.org,2002:str"
_TAGS = {_TEXT, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}


@dataclass(slots=True)
class _Open:
    """A list or map whose end has not come yet."""

    place: Place
    is_map: bool
    anchor: str | None
    path: KeyPath
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, Place] = field(default_factory=dict)
    merged: list[Node] = field(default_factory=list)
    key: str | None = None
    key_place: Place | None = None
    skips_value: bool = False


class _Stop(Exception):
    """Reading on would only repeat the mistake."""


class _Builder:
    """Turns the events of one document into nodes."""

    def __init__(self, source: Source, mistakes: Mistakes, path: KeyPath) -> None:
        self.source = source
        self.mistakes = mistakes
        self.start = path
        self.open: list[_Open] = []
        self.anchors: dict[str, Node | None] = {}
        self.root: Node | None = None
        self.documents = 0
        self.total = 0

    def place(self, mark: Any) -> Place:
        return Place(self.source, mark.line + 1, mark.column + 1)

    def path(self) -> KeyPath:
        """The path of the value that comes next."""
        if not self.open:
            return self.start
        top = self.open[-1]
        if top.is_map:
            return (*top.path, top.key) if top.key is not None else top.path
        return (*top.path, len(top.items))

    def take(self, event: Any) -> None:
        place = self.place(event.start_mark)
        kind = type(event)
        if kind is yaml.DocumentStartEvent:
            self.documents += 1
            if self.documents > 1:
                self.mistakes.add(
                    place, (), "a second YAML document begins here; keep one, a file is one document"
                )
                raise _Stop
        elif kind in {yaml.MappingStartEvent, yaml.SequenceStartEvent}:
            self._begin(event, place, is_map=kind is yaml.MappingStartEvent)
        elif kind in {yaml.MappingEndEvent, yaml.SequenceEndEvent}:
            self._end()
        elif kind is yaml.ScalarEvent:
            self._scalar(event, place)
        elif kind is yaml.AliasEvent:
            self._alias(event, place)

    def _begin(self, event: Any, place: Place, *, is_map: bool) -> None:
        if len(self.open) >= MAX_DEPTH:
            self.mistakes.add(place, (), f"is nested more than {MAX_DEPTH} deep; make it flatter")
            raise _Stop
        self._refuse_tag(event, place)
        if event.anchor:
            self.anchors[event.anchor] = None
        self.open.append(_Open(place, is_map, event.anchor, self.path()))

    def _end(self) -> None:
        done = self.open.pop()
        value: Any = self._with_merged(done) if done.is_map else done.items
        inside = value.values() if done.is_map else value
        node = Node(value, done.place, done.keys, size=1 + sum(child.size for child in inside))
        self._add(node, done.anchor)

    def _with_merged(self, done: _Open) -> dict[str, Node]:
        for node in done.merged:
            for part in node.value if isinstance(node.value, list) else [node]:
                if not isinstance(part.value, dict):
                    self.mistakes.add(
                        node.place, done.path, "<< merges maps; write an alias of a map after it"
                    )
                    continue
                for name, value in part.value.items():
                    done.entries.setdefault(name, value)
                    done.keys.setdefault(name, part.keys[name])
        return done.entries

    def _scalar(self, event: Any, place: Place) -> None:
        self._refuse_tag(event, place)
        text: str = event.value
        is_plain = not event.style and event.implicit[0]
        at_key = bool(self.open) and self.open[-1].is_map and self.open[-1].key is None
        if at_key and is_plain and text == "<<":
            self.open[-1].key = text
            self.open[-1].key_place = None
            return
        if "\0" in text:
            self.mistakes.add(place, self.path(), "holds the character U+0000; take it out")
            text = text.replace("\0", "")
        value: Any = text
        if is_plain:
            try:
                value = plain_value(text)
            except ScalarTrap as trap:
                self.mistakes.add(place, self.path(), str(trap))
                value = text
        self._add(Node(value, place, written=text), event.anchor)

    def _alias(self, event: Any, place: Place) -> None:
        if event.anchor not in self.anchors:
            self.mistakes.add(
                place,
                self.path(),
                f"*{event.anchor} is an alias, and no &{event.anchor} stands before it; "
                "put quotes around text that begins with *",
            )
            raise _Stop
        node = self.anchors[event.anchor]
        if node is None:
            self.mistakes.add(
                place, self.path(), f"*{event.anchor} stands inside its own anchor; take it out"
            )
            raise _Stop
        self._add(node, None)

    def _add(self, node: Node, anchor: str | None) -> None:
        if anchor:
            self.anchors[anchor] = node
        if node.size > MAX_NODES:
            self.mistakes.add(
                node.place,
                self.path(),
                f"is more than {MAX_NODES} values with its aliases written out; use fewer aliases",
            )
            raise _Stop
        if not self.open:
            self.root = node
            return
        top = self.open[-1]
        if not top.is_map:
            top.items.append(node)
        elif top.key is None:
            self._key(top, node)
        else:
            self._value(top, node)

    def _key(self, top: _Open, node: Node) -> None:
        key = node.value
        top.skips_value = False
        if not isinstance(key, str):
            what = f"is {shown(key)}"
            if node.written and node.written != shown(key):
                what = f"is {node.written}, which YAML reads as {shown(key)}"
            self.mistakes.add(node.place, top.path, f"a key is text, and this one {what}; put it in quotes")
            key, top.skips_value = node.written or "?", True
        elif key in top.keys:
            first = top.keys[key]
            self.mistakes.add(
                node.place,
                (*top.path, key),
                f"is written twice, first in line {first.line}, column {first.column}; keep one",
            )
            top.skips_value = True
        top.key, top.key_place = key, node.place

    @staticmethod
    def _value(top: _Open, node: Node) -> None:
        if top.key_place is None:
            top.merged.append(node)
        elif not top.skips_value:
            top.entries[top.key or ""] = node
            top.keys[top.key or ""] = top.key_place
        top.key = None

    def _refuse_tag(self, event: Any, place: Place) -> None:
        if event.tag not in {None, "!"} and event.tag not in _TAGS:
            self.mistakes.add(
                place, self.path(), f"the YAML tag {shown(event.tag)} is not known here; take it out"
            )


def _odd_character(text: str, source: Source, mistakes: Mistakes) -> bool:
    odd = _UNPRINTABLE.search(text)
    if odd is None:
        return False
    line = text.count("\n", 0, odd.start()) + 1
    column = odd.start() - text.rfind("\n", 0, odd.start())
    mistakes.add(
        Place(source, line, column),
        (),
        f"the character U+{ord(odd[0]):04X} cannot stand in YAML; take it out",
    )
    return True


def _tell_syntax_error(error: Any, text: str, source: Source, mistakes: Mistakes) -> None:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        mistakes.add(Place(source), (), f"is no YAML: {' '.join(str(error).split())}")
        return
    lines = text.splitlines()
    for number in (mark.line, mark.line - 1):
        indent = re.match(r"\s*", lines[number])[0] if 0 <= number < len(lines) else ""  # type: ignore[index]
        if "\t" in indent:
            place = Place(source, number + 1, indent.index("\t") + 1)
            mistakes.add(place, (), "a tab in the indentation; YAML wants spaces, put spaces there")
            return
    what = f"is no YAML: {error.problem}"
    if error.context and error.context_mark and error.context_mark.line != mark.line:
        what += f" ({error.context} that begins in line {error.context_mark.line + 1})"
    mistakes.add(
        Place(source, mark.line + 1, mark.column + 1), (), f"{what}; {_cure(error.problem, lines, mark)}"
    )


def _cure(problem: str, lines: list[str], mark: Any) -> str:
    line = lines[mark.line] if mark.line < len(lines) else ""
    character = line[mark.column : mark.column + 1]
    if "mapping values" in problem:
        return "check the indentation, and put quotes around text that holds a colon and a space"
    if "cannot start" in problem:
        return f"put quotes around text that begins with {character}"
    if "expected ',' or" in problem or "node content" in problem:
        return "close the bracket, or put quotes around text that holds one"
    return "check the indentation and the quotes"


def parse_yaml(text: str, source: Source, mistakes: Mistakes, path: KeyPath = ()) -> Node | None:
    """The tree of one YAML document, or None when it is empty or cannot be read on.

    Args:
        text: the document.
        source: where it is from.
        mistakes: what is wrong is added here.
        path: where the value stands in the spec.
    """
    if _odd_character(text, source, mistakes):
        return None
    builder = _Builder(source, mistakes, path)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        _tell_syntax_error(error, text, source, mistakes)
        return None
    except _Stop:
        return None
    return builder.root
