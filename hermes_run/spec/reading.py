"""YAML text -> Node tree. Catches what YAML does behind people's backs.

YAML 1.1 with the traps taken out: dates and `1:30` are text, `1e5` is a number, leading zeros are
refused, `yes/no/on/off` are booleans that remember how they were written. The tree is built from
parse events, so neither nesting nor aliases can exhaust stack or memory.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from hermes_run.spec.locate import KeyPath, Mistakes, Node, Place, Source, shown

if TYPE_CHECKING:
    from pathlib import Path

MAX_FILE_BYTES = 1_048_576
"""A spec is read by people; a bigger file is a dataset in the wrong place."""
MAX_NODES = 20_000
"""Values after all aliases are written out."""
MAX_DEPTH = 40

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TRUE = {word for w in ("true", "yes", "on") for word in (w, w.title(), w.upper())}
_FALSE = {word for w in ("false", "no", "off") for word in (w, w.title(), w.upper())}
_NULL = {"", "~", "null", "Null", "NULL"}
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_HEXADECIMAL = re.compile(r"[-+]?0x[0-9a-fA-F_]+")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+")
_FLOAT = re.compile(r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq")}


class _Trap(Exception):
    """A scalar that YAML readers do not agree on, or that is no JSON value."""


def _number(text: str) -> int | float | None:
    digits = text.replace("_", "")
    if _LEADING_ZERO.fullmatch(text):
        raise _Trap(
            f"{text} has a leading zero, which YAML reads as octal; write {digits.lstrip('+-0') or '0'}, "
            f'or "{text}" in quotes for text'
        )
    if len(text) > 300:
        raise _Trap("is too large for a number")
    if _INTEGER.fullmatch(text):
        return int(digits)
    if _HEXADECIMAL.fullmatch(text):
        return int(digits, 16)
    if _FLOAT.fullmatch(text):
        number = float(digits)
        if math.isinf(number):
            raise _Trap(f"{text} is too large for a number")
        return number
    return None


def plain_value(text: str) -> Any:
    """What an unquoted scalar means. Raises _Trap for what no JSON can hold or nobody can agree on."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _NOT_FINITE.fullmatch(text):
        raise _Trap(f"{text} is no finite number; write a number, or quotes around text")
    number = _number(text) if text[0] in "+-.0123456789" else None
    return text if number is None else number


def is_number_text(text: str) -> bool:
    """Whether `text` would be a number without its quotes."""
    try:
        return isinstance(plain_value(text), int | float) and text not in _TRUE | _FALSE
    except _Trap:
        return False


def reads_as_text(text: str) -> bool:
    """Whether `text` without quotes is the text itself."""
    try:
        return isinstance(plain_value(text), str)
    except _Trap:
        return False


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
        is_plain = not event.style and (
            event.implicit[0] or event.tag not in {None, "!", "tag:yaml.org,2002:str"}
        )
        at_key = bool(self.open) and self.open[-1].is_map and self.open[-1].key is None
        if at_key and is_plain and text == "<<":
            self.open[-1].key = text
            self.open[-1].key_place = None
            return
        value: Any = text
        if is_plain:
            try:
                value = plain_value(text)
            except _Trap as trap:
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
        text: the document, at most MAX_FILE_BYTES.
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


def read_text(path: Path, source: Source, mistakes: Mistakes) -> str | None:
    """The text of a small UTF-8 file, or None after noting why there is none."""
    whole = Place(source)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        mistakes.add(whole, (), f"there is no such file{nearest_file(path)}; check the path")
        return None
    except IsADirectoryError:
        mistakes.add(whole, (), "is a folder; name a file in it")
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        mistakes.add(whole, (), f"cannot be read: {reason}; check the path and its permissions")
        return None
    if len(data) > MAX_FILE_BYTES:
        mistakes.add(whole, (), f"is larger than {MAX_FILE_BYTES} bytes; is this the right file?")
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        mistakes.add(
            Place(source, line, column),
            (),
            f"is not UTF-8 (byte 0x{data[error.start]:02x}); save it as UTF-8",
        )
        return None


def nearest_file(path: Path) -> str:
    """`; did you mean "x.yaml"?`, from the names in the same folder."""
    from hermes_run.core.registry import did_you_mean

    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except (OSError, ValueError):
        return ""
    # Equal suffixes make any two names alike: there the rest decides.
    stems = {name.removesuffix(path.suffix): name for name in names if name.endswith(path.suffix)}
    hint = did_you_mean(path.stem, stems)
    if hint:
        return f"; did you mean {shown(stems[hint.split(chr(34))[1]])}"
    return did_you_mean(path.name, [name for name in names if not name.endswith(path.suffix)]).removesuffix(
        "?"
    )


def read_file(path: Path, source: Source, mistakes: Mistakes, *, may_be_empty: bool = False) -> Node | None:
    """The tree of a YAML file whose root is a map, or None after noting what is wrong.

    With `may_be_empty`, None without a mistake is a file that says nothing.
    """
    text = read_text(path, source, mistakes)
    if text is None:
        return None
    before = len(mistakes)
    node = parse_yaml(text, source, mistakes)
    if node is None or (node.value is None and not node.written):
        if len(mistakes) == before and not may_be_empty:
            mistakes.add(Place(source), (), "is empty; write at least the required keys")
        return None
    if not isinstance(node.value, dict):
        mistakes.add(
            node.place, (), f"must be a map of keys and values, not {shown(node.value)}; write key: value"
        )
        return None
    return node
