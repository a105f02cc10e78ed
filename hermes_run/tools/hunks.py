r"""Hunks of a V4A patch applied to a text. Pure: (text, hunks) -> text.

A hunk's old lines are looked for as whole lines: equal ones first, then those that differ in white
space at their ends, then at both ends, then by the strategies of `matching`. Hunks come in the order of
the file, so each is looked for after the one before it. Context lines stay as the file has them, line
ends included.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

from hermes_run.errors import ToolError
from hermes_run.tools import matching
from hermes_run.tools.indentation import indent_of, mover

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_run.tools.v4a import Hunk


class _Found(NamedTuple):
    """Where a hunk's old lines stand, and the lines that replace them."""

    start: int
    end: int
    lines: list[str]


def apply_hunks(text: str, hunks: Sequence[Hunk], path: str) -> str:
    """The text after all hunks. Raises ToolError naming the hunk that does not fit."""
    bom = "\ufeff" if text.startswith("\ufeff") else ""
    raw = text.removeprefix(bom).split("\n")
    ends_whole = not raw[-1]
    if ends_whole:
        raw.pop()
    lines = _Lines(raw, ends_whole=ends_whole)
    is_empty = not raw
    at = 0
    for hunk in hunks:
        found = _place(lines.texts, hunk, at, path)
        lines.put(found)
        at = found.start + len(found.lines)
    body = lines.joined()
    return bom + body + ("\n" if lines.texts and (ends_whole or is_empty) else "")


class _Lines:
    """A text's lines without their ends, and which of them end in a carriage return.

    A last line without an end counts as one that ends as most do: it may be the last no more.
    """

    def __init__(self, raw: list[str], *, ends_whole: bool) -> None:
        ended = raw if ends_whole else raw[:-1]
        self._returns = [line.endswith("\r") for line in ended]
        self._is_crlf = sum(self._returns) * 2 > len(ended)
        self._ends_whole = ends_whole or not raw
        self.texts = [line.removesuffix("\r") for line in ended]
        if not self._ends_whole:
            self.texts.append(raw[-1])
            self._returns.append(self._is_crlf)

    def put(self, found: _Found) -> None:
        """Replace a block. Lines that stay keep their ends; new ones get those of the block."""
        texts = self.texts[found.start : found.end]
        old = self._returns[found.start : found.end]
        is_crlf = sum(old) * 2 > len(old) if old else self._is_crlf
        fresh = [is_crlf] * len(found.lines)
        for was, now, size in SequenceMatcher(None, texts, found.lines, autojunk=False).get_matching_blocks():
            fresh[now : now + size] = old[was : was + size]
        self._returns[found.start : found.end] = fresh
        self.texts[found.start : found.end] = found.lines

    def joined(self) -> str:
        """The lines with their ends, the last one without its newline."""
        pairs = list(zip(self.texts, self._returns, strict=True))
        if pairs and not self._ends_whole:
            pairs[-1] = (pairs[-1][0], False)
        return "\n".join(f"{line}\r" if ends else line for line, ends in pairs)


def _place(lines: list[str], hunk: Hunk, at: int, path: str) -> _Found:
    """Where a hunk belongs, looking from line `at` on first."""
    where = f"the hunk at line {hunk.at} of the patch"
    start, is_hinted = _after_hints(lines, hunk, at)
    if not hunk.old:
        if hunk.hints and not is_hinted:
            raise ToolError(f'{where}: there is no line "{hunk.hints[-1]}" in {path}; read the file again')
        there = start if is_hinted and not hunk.at_end else len(lines)
        return _Found(there, there, hunk.new)
    for first in dict.fromkeys((start, at, 0)):
        found = _search(lines, hunk, first)
        if found and (len(found) == 1 or (is_hinted and first == start)):
            return found[0]
        if found:
            shown = ", ".join(str(block.start + 1) for block in found[:10])
            raise ToolError(
                f"{where} fits in {len(found)} places in {path} (lines {shown}); give more context, or a "
                "line that stands before it: @@ LINE @@"
            )
    raise ToolError(f"{where} does not fit {path}: {_what_is_missing(lines, hunk)}; read the file again")


def _after_hints(lines: list[str], hunk: Hunk, at: int) -> tuple[int, bool]:
    """The line after the hunk's hints, and whether they were all found: from `at` on, else from the top."""
    for first in dict.fromkeys((at, 0)):
        place = first
        for hint in hunk.hints:
            place = _line_of(lines, hint, place) + 1
            if not place:
                break
        else:
            return place, bool(hunk.hints)
    return at, False


def _line_of(lines: list[str], hint: str, first: int) -> int:
    """The first line from `first` on that is the hint, else that holds it, else -1."""
    tests: tuple[Callable[[str], bool], ...] = (
        lambda line: line.strip() == hint,
        lambda line: hint in line,
    )
    for fits in tests:
        for number in range(first, len(lines)):
            if fits(lines[number]):
                return number
    return -1


def _search(lines: list[str], hunk: Hunk, first: int) -> list[_Found]:
    """The places of a hunk from line `first` on, by the first way that finds any."""
    ways: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip)
    old = hunk.old
    for way in ways:
        wanted = [way(line) for line in old]
        if not any(line.strip() for line in old) and way is not str:
            break
        folded = [way(line) for line in lines]
        last = len(lines) - len(wanted)
        starts = range(max(last, first), last + 1) if hunk.at_end else range(first, last + 1)
        found = [i for i in starts if folded[i] == wanted[0] and folded[i : i + len(wanted)] == wanted]
        if found:
            return [_Found(i, i + len(old), _merged(lines[i : i + len(old)], hunk)) for i in found]
    return _alike(lines, hunk, first)


def _merged(block: list[str], hunk: Hunk) -> list[str]:
    """A block's lines after the hunk: context as the file has it, added lines indented as it is."""
    pairs = [(indent_of(b), indent_of(a)) for a, b in zip(block, hunk.old, strict=True) if a.strip()]
    move = mover([was for was, _ in pairs], [stands for _, stands in pairs])
    stands = iter(block)
    merged: list[str] = []
    for line in hunk.lines:
        if line.sign == "+":
            merged.append(move(line.text))
        else:
            there = next(stands)
            merged += [there] if line.sign == " " else []
    return merged


def _alike(lines: list[str], hunk: Hunk, first: int) -> list[_Found]:
    """The places that `matching` finds, as far as they are whole lines."""
    old, new = "".join(f"{line}\n" for line in hunk.old), "".join(f"{line}\n" for line in hunk.new)
    text = "".join(f"{line}\n" for line in lines[first:])
    match = matching.find(text, old, new) if old.strip() else None
    if match is None:
        return []
    found = []
    for place, replacement in zip(match.places, match.replacements, strict=True):
        start = text.rfind("\n", 0, place.start) + 1
        end = place.end if text[place.end - 1 : place.end] == "\n" else text.find("\n", place.end) + 1
        before, after = text[start : place.start], text[place.end : end]
        if before.strip() or after.strip():
            continue  # in the middle of a line: a hunk is about whole lines
        whole = before + replacement if replacement else ""
        fresh = whole.removesuffix("\n").split("\n") if whole else []
        one = first + text.count("\n", 0, start)
        block = _Found(one, first + text.count("\n", 0, end), fresh)
        if not hunk.at_end or block.end == len(lines):
            found.append(block)
    return found


def _what_is_missing(lines: list[str], hunk: Hunk) -> str:
    """A hint at the first old line that is nowhere in the file."""
    known = {line.strip() for line in lines}
    for line in hunk.old:
        if line.strip() and line.strip() not in known:
            shown = line if len(line) <= 120 else line[:120] + "…"
            return f"no line is {shown!r}"
    return "its lines do not stand together in this order"
