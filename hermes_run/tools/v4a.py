"""The V4A form of a patch: text -> what is to be done with which file. Pure.

::

    *** Begin Patch
    *** Update File: shop/cart.py
    @@ def total @@
     items = load()
    -return sum(items)
    +return round(sum(items), 2)
    *** Add File: notes.txt
    +one line
    *** Delete File: old.py
    *** Move File: a.py -> b.py
    *** End Patch

Forgiven is what models often get wrong without leaving a doubt: missing Begin and End lines, a code
fence around the whole, context lines without their leading space, hunk headers of unified diffs.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from hermes_run.errors import ToolError

Act = Literal["update", "add", "delete", "move"]

_HEADER = re.compile(r"\*\*\*\s*(Update|Add|Delete|Move)\s+File\s*:\s*(.*?)\s*", re.IGNORECASE)
_MOVE_TO = re.compile(r"\*\*\*\s*Move\s+to\s*:\s*(.*?)\s*", re.IGNORECASE)
_BEGIN = re.compile(r"\*\*\*\s*Begin\s+Patch\s*", re.IGNORECASE)
_END = re.compile(r"\*\*\*\s*End\s+Patch\s*", re.IGNORECASE)
_END_OF_FILE = re.compile(r"\*\*\*\s*End\s+of\s+File\s*", re.IGNORECASE)
_RANGES = re.compile(r"-\d+(?:,\d+)? \+\d+(?:,\d+)?")
_NO_NEWLINE = "\\ No newline at end of file"


class Line(Struct, frozen=True):
    """A line of a hunk. `sign` is " " (context), "-" or "+"; while it is read, "" of an empty line."""

    sign: str
    text: str


class Hunk(Struct):
    """One change. `hints` are lines that stand before it, outermost first; `at` is its line in the patch."""

    at: int
    hints: list[str]
    lines: list[Line]
    at_end: bool = False

    @property
    def old(self) -> list[str]:
        """The lines that stand there now."""
        return [line.text for line in self.lines if line.sign != "+"]

    @property
    def new(self) -> list[str]:
        """The lines that are to stand there."""
        return [line.text for line in self.lines if line.sign != "-"]


class FileChange(Struct):
    """What is done with one file.

    Attributes:
        act: what.
        path: of the file.
        target: where it goes, for a move, or an update that moves.
        hunks: of an update.
        content: of a file that is added, with its final newline.
        at: its line in the patch, from 1.
    """

    act: Act
    path: str
    at: int
    target: str = ""
    hunks: list[Hunk] = []
    content: str = ""


def parse(patch: str) -> list[FileChange]:
    """The changes of a patch, in order. Raises ToolError with the line that is wrong."""
    changes: list[FileChange] = []
    for number, line in _body(patch):
        header = _HEADER.fullmatch(line)
        if header is not None:
            changes.append(_begun(header, number))
        elif not changes:
            if line.strip():
                raise _wrong(number, line, "a patch begins with *** Update File:, Add, Delete or Move")
        else:
            _take(changes[-1], number, line)
    if not changes:
        raise ToolError("the patch is empty; write *** Update File: PATH and a hunk that begins with @@")
    for change in changes:
        _check(change)
    return changes


def _body(patch: str) -> list[tuple[int, str]]:
    """The lines between Begin and End, numbered, without a code fence around them."""
    lines = list(enumerate((line.removesuffix("\r") for line in patch.split("\n")), 1))
    while lines and not lines[-1][1].strip():
        lines.pop()
    first = next((place for place, (_, line) in enumerate(lines) if line.strip()), 0)
    lines = lines[first:]
    if lines and lines[0][1].startswith("```") and lines[-1][1].strip() == "```":
        lines = lines[1:-1]
    begin = next((place for place, (_, line) in enumerate(lines) if _BEGIN.fullmatch(line)), None)
    if begin is not None:
        lines = lines[begin + 1 :]
    end = next((place for place, (_, line) in enumerate(lines) if _END.fullmatch(line)), None)
    return lines if end is None else lines[:end]


def _begun(header: re.Match[str], number: int) -> FileChange:
    act, path = header[1].lower(), header[2]
    target = ""
    if act == "move":
        path, arrow, target = (part.strip() for part in path.partition("->"))
        if not arrow or not target:
            raise _wrong(number, header[0], "a move is written *** Move File: OLD -> NEW")
    if not path:
        raise _wrong(number, header[0], "the path is missing")
    kinds: dict[str, Act] = {"update": "update", "add": "add", "delete": "delete", "move": "move"}
    return FileChange(act=kinds[act], path=path, target=target, at=number, hunks=[])


def _take(change: FileChange, number: int, line: str) -> None:
    """Give a line to the change that it belongs to."""
    is_known = _END_OF_FILE.fullmatch(line) or (_MOVE_TO.fullmatch(line) and change.act == "update")
    if line.startswith("***") and not is_known:
        raise _wrong(number, line, "unknown; known are *** Update, Add, Delete and Move File, End of File")
    if change.act in {"delete", "move"}:
        if line.strip():
            raise _wrong(number, line, f"nothing follows *** {change.act.capitalize()} File")
    elif change.act == "add":
        if line.startswith("+"):
            change.content += line[1:] + "\n"
        elif line.strip() and line != _NO_NEWLINE and not _END_OF_FILE.fullmatch(line):
            raise _wrong(number, line, "every line of an added file begins with +")
    else:
        _take_hunk_line(change, number, line)


def _take_hunk_line(change: FileChange, number: int, line: str) -> None:
    hunks = change.hunks
    move_to = _MOVE_TO.fullmatch(line)
    if move_to is not None and not hunks:
        change.target = move_to[1]
    elif line.startswith("@@"):
        hint = _hint(line)
        if hunks and not hunks[-1].lines and hunks[-1].hints:
            hunks[-1].hints += [hint] if hint else []  # nested hints: a class, then its method
        else:
            hunks.append(Hunk(number, [hint] if hint else [], []))
    elif _END_OF_FILE.fullmatch(line):
        if hunks:
            hunks[-1].at_end = True
    elif line != _NO_NEWLINE:
        if not hunks:
            if not line.strip():
                return
            hunks.append(Hunk(number, [], []))
        is_signed = line[:1] in {" ", "-", "+"}
        hunks[-1].lines.append(Line(line[0], line[1:]) if is_signed else Line(" " if line else "", line))


def _hint(line: str) -> str:
    """The text of a hunk's header; the line numbers of unified diffs say nothing that is relied on."""
    inner = line[2:].strip()
    ranges = _RANGES.match(inner)
    if ranges is not None:
        inner = inner[ranges.end() :].strip().removeprefix("@@").strip()
    return inner.removesuffix("@@").strip()


def _check(change: FileChange) -> None:
    for hunk in change.hunks:
        while hunk.lines and not hunk.lines[-1].sign:  # empty lines before the next header
            hunk.lines.pop()
        hunk.lines = [line if line.sign else Line(" ", "") for line in hunk.lines]
        if all(line.sign == " " for line in hunk.lines):
            raise ToolError(
                f"line {hunk.at} of the patch: the hunk changes nothing; lines to remove begin with -, "
                "lines to add with +"
            )
    if change.act == "update" and not change.hunks and not change.target:
        raise ToolError(f"line {change.at} of the patch: no hunk follows *** Update File: {change.path}")


def _wrong(number: int, line: str, why: str) -> ToolError:
    shown = line if len(line) <= 80 else line[:80] + "…"
    return ToolError(f"line {number} of the patch is wrong: {shown!r}: {why}")
