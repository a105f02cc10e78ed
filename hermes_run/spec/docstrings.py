"""Docstrings: what a function does, and what its parameters are.

In the three styles that are in use: Google's (`Args:`), NumPy's (`Parameters` underlined), Sphinx's
(`:param name:`; `@param name:` too).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_NAMES = (
    r"(Args|Arguments|Parameters|Params|Other Parameters|Keyword Arguments|Returns?|Raises|Yields?|Examples?|"
    r"Notes?|Attributes|See Also|Warnings?|Warns|References|Todo)"
)
_SECTION = re.compile(rf"{_NAMES}:\s*")
_TITLE = re.compile(rf"{_NAMES}\s*")
_UNDERLINE = re.compile(r"\s*-{3,}\s*")
_FIELD = re.compile(r"[:@](?P<kind>\w+)(?:\s+(?P<of>[^:\n]*?))?:\s*(?P<text>.*)")
_OF_PARAMETERS = frozenset(
    {"args", "arguments", "parameters", "params", "other parameters", "keyword arguments"}
)
_FIELDS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_KNOWN_FIELDS = _FIELDS | {
    "type",
    "return",
    "returns",
    "rtype",
    "raise",
    "raises",
    "except",
    "exception",
    "yields",
}
_PARAMETER = re.compile(r"\*{0,2}(?P<name>\w+)\s*(\(.*?\))?\s*:\s*(?P<text>.*)")
_NUMPY_PARAMETER = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")


def read_docstring(text: str, names: Collection[str]) -> tuple[str, dict[str, str]]:
    """What comes before the first section, as one line for each paragraph; and parameter -> its words.

    Args:
        text: a docstring without its indentation (`inspect.cleandoc`).
        names: of the parameters.
    """
    lines = text.split("\n")
    first = next((i for i in range(len(lines)) if _begins_section(lines, i)), len(lines))
    paragraphs = "\n".join(lines[:first]).strip().split("\n\n")
    about = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return about, _parameters(lines[first:], names)


def _begins_section(lines: list[str], at: int) -> bool:
    return bool(_SECTION.fullmatch(lines[at]) or _is_title(lines, at) or _field(lines[at]))


def _is_title(lines: list[str], at: int) -> bool:
    """Whether a line is a NumPy section's title, underlined by the next one."""
    has_line = at + 1 < len(lines) and _UNDERLINE.fullmatch(lines[at + 1]) is not None
    return has_line and _TITLE.fullmatch(lines[at]) is not None


def _field(line: str) -> re.Match[str] | None:
    """The field of Sphinx that a line begins, if it does."""
    found = _FIELD.fullmatch(line)
    return found if found is not None and found["kind"] in _KNOWN_FIELDS else None


class _Reader:
    """Takes line after line; `found` is parameter -> its words."""

    def __init__(self, names: Collection[str]) -> None:
        self.found: dict[str, str] = {}
        self._names = names
        self._last: list[str] = []
        self._depth = 0

    def begin(self) -> None:
        """Another section."""
        self._last, self._depth = [], 0

    def name(self, names: list[str], text: str) -> None:
        """What follows is about these parameters."""
        self._last = [name for name in names if name in self._names]
        for name in self._last:
            self.found[name] = text.strip()

    def add(self, line: str) -> None:
        """One more line about them."""
        for name in self._last:
            self.found[name] = f"{self.found[name]} {line.strip()}".strip()

    def google(self, line: str) -> None:
        """A line of a section `Args:`."""
        indent = len(line) - len(line.lstrip())
        self._depth = self._depth or indent
        match = _PARAMETER.fullmatch(line.strip()) if indent <= self._depth else None
        if match is not None:
            self.name([match["name"]], match["text"])
        else:
            self.add(line)

    def numpy(self, line: str) -> None:
        """A line of an underlined section."""
        match = _NUMPY_PARAMETER.fullmatch(line) if not line[:1].isspace() else None
        if match is not None:
            self.name([name.strip(" *") for name in match["names"].split(",")], "")
        else:
            self.add(line)


def _parameters(lines: list[str], names: Collection[str]) -> dict[str, str]:
    reader = _Reader(names)
    style = ""
    for at, line in enumerate(lines):
        section, field = _SECTION.fullmatch(line), _field(line)
        if section is not None:
            reader.begin()
            style = "google" if section[1].lower() in _OF_PARAMETERS else ""
        elif _is_title(lines, at):
            reader.begin()
            style = "numpy" if line.strip().lower() in _OF_PARAMETERS else ""
        elif field is not None:
            reader.begin()
            style = "field" if field["kind"] in _FIELDS else ""
            if style:
                reader.name([(field["of"] or "").split(" ")[-1].strip("*")], field["text"])
        elif not line.strip() or _UNDERLINE.fullmatch(line):
            continue
        elif style == "google":
            reader.google(line)
        elif style == "numpy":
            reader.numpy(line)
        elif style == "field":
            reader.add(line)
    return {name: text for name, text in reader.found.items() if text}
