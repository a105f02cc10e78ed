"""Globs: which files are meant, by name and by path, decided here so that it never depends on the sandbox."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes_run.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_ALTERNATIVES = 100
_GLOB_SET = re.compile(r"\[(?:[!^](?:\]|[^\]/])|\]|[^\]/!^])[^\]/]*\]")
"""A set holds something: `[]` and `[!]` are characters, `[]]` is a set of one."""


class Glob(Struct, frozen=True):
    """Which files are meant: by their names, and by their paths where the glob speaks of folders.

    Attributes:
        names: patterns of names for find and ripgrep, made of `*`, `?` and (escaped) characters; what
            none of them matches is not meant.
        path: matches the whole path, relative to where is searched, when it is meant.
    """

    names: tuple[str, ...]
    path: re.Pattern[str]


def read_glob(glob: str) -> Glob:
    """A glob such as `*.py`, `src/**/*.{ts,tsx}`, `[A-Z]*.md`: without a slash it means names anywhere.

    Raises ToolError for one that is empty or too wide, or has a range such as [z-a].
    """
    if not glob or "\0" in glob:
        raise ToolError("the glob is empty or holds a NUL character")
    alternatives = _alternatives(glob)
    if len(alternatives) > _MOST_ALTERNATIVES:
        raise ToolError(f"the glob {glob} stands for more than {_MOST_ALTERNATIVES} patterns; simplify it")
    names = sorted({_loose_name(one) for one in alternatives})
    try:
        with warnings.catch_warnings():  # of what a later Python may read in a set otherwise
            warnings.simplefilter("ignore", FutureWarning)
            path = re.compile("|".join(f"(?:{_glob_regex(one)})" for one in alternatives), re.DOTALL)
    except re.error as error:
        raise ToolError(f"the glob {glob} has a set that is none ({error.msg})") from None
    return Glob(tuple(names), path)


def _alternatives(glob: str) -> list[str]:
    """The glob without braces: one for each choice."""
    start, depth, cuts = -1, 0, [0]
    for at, char in enumerate(glob):
        if char == "{":
            if not depth:
                start, cuts = at, [at]
            depth += 1
        elif char == "," and depth == 1:
            cuts.append(at)
        elif char == "}" and depth:
            depth -= 1
            if not depth and len(cuts) > 1:
                choices = [glob[a + 1 : b] for a, b in zip(cuts, [*cuts[1:], at], strict=True)]
                return [
                    glob[:start] + choice + rest
                    for choice in choices[:_MOST_ALTERNATIVES]
                    for rest in _alternatives(glob[at + 1 :])
                    for choice in _alternatives(choice)
                ][: _MOST_ALTERNATIVES + 1]
    return [glob]


def _parts(glob: str) -> Iterator[tuple[str, str]]:
    """The glob in parts: (kind, text) with kind folders, any, one, set or character."""
    at = 0
    while at < len(glob):
        set_ = _GLOB_SET.match(glob, at)
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            yield "folders", "**/"
            at += 3
        elif glob[at] == "*":
            end = at
            while glob[end : end + 1] == "*":
                end += 1
            yield ("all" if end - at > 1 and "/" in glob else "any"), "*"
            at = end
        elif glob[at] == "?":
            yield "one", "?"
            at += 1
        elif set_:
            yield "set", set_[0]
            at = set_.end()
        else:
            at += glob[at] == "\\" and at + 1 < len(glob)
            yield "character", glob[at]
            at += 1


def _glob_regex(glob: str) -> str:
    pieces = [] if "/" in glob.rstrip("/") else ["(?:.*/)?"]
    for kind, text in _parts(glob.removeprefix("./").removeprefix("/")):
        if kind == "set":
            negated = text[1] in "!^"
            inside = re.sub(r"([\\\[\]&~|])", r"\\\1", text[1 + negated : -1])
            pieces.append(f"[{'^/' if negated else ''}{inside}]")
        else:
            fixed = {"folders": "(?:.*/)?", "all": ".*", "any": "[^/]*", "one": "[^/]"}
            pieces.append(fixed.get(kind) or re.escape(text))
    return "".join(pieces)


def _loose_name(glob: str) -> str:
    """A name pattern that matches at least what the glob's last part does."""
    name = glob.rsplit("/", 1)[-1]
    loose = {"any": "*", "all": "*", "folders": "*", "one": "*", "set": "*"}
    return "".join(
        loose.get(kind) or ("\\" + text if text in "*?[]{}!\\" else text) for kind, text in _parts(name)
    )
