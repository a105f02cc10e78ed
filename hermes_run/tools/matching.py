r"""Where a text that a model remembers stands in a file: nine strategies, from exact to alike.

They are tried in order and the first that finds anything decides. All are pure functions from (text,
wanted) to the places found, which never overlap and come in order. Texts have `\n` line ends here.

A model's memory of a file drifts: spaces, indentation, escapes, typographic quotes, a word of a comment.
Where the match is not exact the new text has drifted alike, so each strategy also mends that one.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

from hermes_run.tools.indentation import indent_of, mover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ANCHOR_ALIKE = 0.5
"""Least likeness of the lines between two matching anchor lines."""

CONTEXT_ALIKE = 0.75
"""Least mean likeness of the lines of a block that matches by its context."""

LINE_ALIKE = 0.8
"""A line this alike counts as remembered; of a block matched by context at least half must be."""

_MAX_COMPARED_LINES = 5_000  # pairs of lines compared in one search; the most promising blocks first
_MAX_COMPARED_CHARS = 2_000  # difflib is quadratic: longer lines are compared by their letters only


class Place(NamedTuple):
    """A stretch of the text, `text[start:end]`."""

    start: int
    end: int


class Found(NamedTuple):
    """What a strategy found, and the new text as it belongs into each place."""

    strategy: str
    places: list[Place]
    replacements: list[str]


def find(text: str, old: str, new: str) -> Found | None:
    """The places of `old` in `text` by the first strategy that finds any, or None."""
    for name, locate, adjust in _STRATEGIES:
        places = locate(text, old)
        if places:
            return Found(name, places, [adjust(text[p.start : p.end], old, new) for p in places])
    return None


# ------------------------------------------------------------------ 1, 3, 4: by pattern


def _exact(text: str, old: str) -> list[Place]:
    return list(_occurrences(text, old))


def _occurrences(text: str, wanted: str) -> Iterator[Place]:
    start = text.find(wanted) if wanted else -1
    while start >= 0:
        yield Place(start, start + len(wanted))
        start = text.find(wanted, start + len(wanted))


def _whitespace_normalised(text: str, old: str) -> list[Place]:
    """Runs of spaces and tabs inside a line are one space, and none at its end."""
    return _by_pattern(text, old, re.compile(r"[ \t]*\n|[ \t]+"), {"\n": r"[ \t]*\n", " ": r"[ \t]+"})


def _indentation_flexible(text: str, old: str) -> list[Place]:
    """What follows a line break may be indented in any way; the rest is as it is."""
    return _by_pattern(text, old, re.compile(r"\n[ \t]*"), {"\n": r"\n[ \t]*"})


def _by_pattern(text: str, old: str, gap: re.Pattern[str], meant: dict[str, str]) -> list[Place]:
    if not old.strip():
        return []
    pieces: list[str] = [r"(?<![ \t])"] if gap.match(old) else []  # a run of spaces is tried once
    at = 0
    for match in gap.finditer(old):
        pieces += [re.escape(old[at : match.start()]), meant["\n" if "\n" in match[0] else " "]]
        at = match.end()
    pieces.append(re.escape(old[at:]))
    return [Place(*match.span()) for match in re.finditer("".join(pieces), text)]


# ------------------------------------------------------------------ 2: whole lines, trimmed


def _line_trimmed(text: str, old: str) -> list[Place]:
    """Whole lines that are equal but for white space at their starts and ends."""
    if not old.strip():
        return []
    lines = Lines(text)
    wanted = _wanted_lines(old)
    trimmed = [line.strip() for line in lines.lines]
    first, count = wanted[0], len(wanted)
    starts = [
        i
        for i, line in enumerate(trimmed[: len(trimmed) - count + 1])
        if line == first and trimmed[i : i + count] == wanted
    ]
    return lines.places(_apart(starts, count), count, with_newline=old.endswith("\n"))


class Lines:
    """A text's lines and where they stand."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._length = len(text)

    def places(self, starts: Sequence[int], count: int, *, with_newline: bool) -> list[Place]:
        """Blocks of `count` lines as places, with or without the last newline."""
        end = 0 if with_newline else 1
        return [Place(self._starts[i], min(self._starts[i + count] - end, self._length)) for i in starts]


def _wanted_lines(old: str) -> list[str]:
    lines = [line.strip() for line in old.split("\n")]
    return lines[:-1] if old.endswith("\n") else lines


def _apart(starts: Sequence[int], count: int) -> list[int]:
    """Of blocks of `count` lines, those that do not overlap an earlier one."""
    kept: list[int] = []
    for start in starts:
        if not kept or start >= kept[-1] + count:
            kept.append(start)
    return kept


# ------------------------------------------------------------------ 5, 6: what the model wrote, mended

_ESCAPED = re.compile(r"\\([ntr\"'\\`$/])")
_MEANINGS = {"n": "\n", "t": "\t", "r": "\n"}


def _unescape(text: str) -> str:
    text = text.replace("\\r\\n", "\\n")
    return _ESCAPED.sub(lambda match: _MEANINGS.get(match[1], match[1]), text)


def _escape_normalised(text: str, old: str) -> list[Place]:
    r"""The model escaped once too often: `\n` and `\"` stand for a newline and a quote."""
    meant = _unescape(old)
    return [] if meant == old or not meant.strip() else _exact(text, meant)


def _trimmed_boundary(text: str, old: str) -> list[Place]:
    """White space and empty lines around the whole are not there; but no word is cut there either."""
    meant = old.strip()
    before = r"(?<!\w)" if old[:1].isspace() and re.match(r"\w", meant) else ""
    after = r"(?!\w)" if old[-1:].isspace() and re.search(r"\w\Z", meant) else ""
    bounds = re.compile(before + re.escape(meant) + after) if meant != old and meant else None
    return [place for place in _exact(text, meant) if bounds and bounds.match(text, place.start)]


# ------------------------------------------------------------------ 7: typography

_PLAIN = {
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033", '"'),
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    **dict.fromkeys(
        "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000", " "
    ),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", ""),
    "\u2026": "...",
}
_CLUSTER = re.compile("[^\u0300-\u036f][\u0300-\u036f]+|[^\x00-\x7f]")


def _unicode_normalised(text: str, old: str) -> list[Place]:
    """Typographic quotes, dashes, spaces and composed accents are their plain forms."""
    meant = _Folded(old).text
    folded = _Folded(text)
    if not meant.strip() or (folded.text == text and meant == old):
        return []
    found = (folded.origin(place) for place in _occurrences(folded.text, meant))
    return [place for place in found if place is not None]


class _Folded:
    """A text in plain forms, and where each stretch of it came from."""

    def __init__(self, text: str) -> None:
        pieces: list[str] = []
        self._changes: list[tuple[int, int, int, int]] = []  # folded start, end, original start, end
        at = length = 0
        for match in _CLUSTER.finditer(text):
            kept = text[at : match.start()]
            plain = "".join(_PLAIN.get(c, c) for c in unicodedata.normalize("NFC", match[0]))
            pieces += [kept, plain]
            length += len(kept)
            self._changes.append((length, length + len(plain), *match.span()))
            length += len(plain)
            at = match.end()
        self.text = "".join([*pieces, text[at:]])

    def origin(self, place: Place) -> Place | None:
        """The stretch of the original, or None when it ends inside of what was one character."""
        start, end = self._back(place.start), self._back(place.end)
        return None if start is None or end is None else Place(start, end)

    def _back(self, at: int) -> int | None:
        low, high = 0, len(self._changes)
        while low < high:  # the first change that ends at or after `at`
            middle = (low + high) // 2
            if self._changes[middle][1] < at:
                low = middle + 1
            else:
                high = middle
        before = self._changes[low - 1] if low else (0, 0, 0, 0)
        if low < len(self._changes):
            start, end, original_start, original_end = self._changes[low]
            if start < at < end:
                return None
            if at == end:
                return original_end
            if at == start:
                return original_start
        return before[3] + at - before[1]


# ------------------------------------------------------------------ 8, 9: blocks that are alike


def _block_anchor(text: str, old: str) -> list[Place]:
    """First and last line match, trimmed, and what is between is alike."""
    wanted = _wanted_lines(old)
    lines = Lines(text)
    trimmed = [line.strip() for line in lines.lines]
    count = len(wanted)
    if count < 3 or not wanted[0] or not wanted[-1]:
        return []
    starts = [
        i
        for i in range(len(trimmed) - count + 1)
        if trimmed[i] == wanted[0] and trimmed[i + count - 1] == wanted[-1]
    ]
    inner = wanted[1:-1]
    alike = [
        i
        for i in starts[: _candidates(count)]
        if _mean(_likenesses(inner, trimmed[i + 1 : i + count - 1])) >= ANCHOR_ALIKE
    ]
    return lines.places(_apart(alike, count), count, with_newline=old.endswith("\n"))


def _context_aware(text: str, old: str) -> list[Place]:
    """Some lines match, trimmed, in their right places, and the block as a whole is alike."""
    wanted = _wanted_lines(old)
    lines = Lines(text)
    trimmed = [line.strip() for line in lines.lines]
    count = len(wanted)
    if count < 2:
        return []
    scored = [(i, _context_score(wanted, trimmed[i : i + count])) for i in _promising(trimmed, wanted)]
    good = sorted(((score, -i) for i, score in scored if score >= CONTEXT_ALIKE), reverse=True)
    kept: list[int] = []
    for _, negative in good:  # the best first; what overlaps a better one is the same place
        if all(abs(-negative - other) >= count for other in kept):
            kept.append(-negative)
    return lines.places(sorted(kept), count, with_newline=old.endswith("\n"))


def _promising(trimmed: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where a block may begin: those with most equal lines in their right places."""
    where: dict[str, list[int]] = {}
    for j, line in enumerate(wanted):
        if line:
            where.setdefault(line, []).append(j)
    last = len(trimmed) - len(wanted)
    hits: Counter[int] = Counter(
        i - j for i, line in enumerate(trimmed) for j in where.get(line, ()) if 0 <= i - j <= last
    )
    return [start for start, _ in hits.most_common(_candidates(len(wanted)))]


def _candidates(count: int) -> int:
    """How many blocks of `count` lines are compared at most."""
    return max(1, _MAX_COMPARED_LINES // count)


def _context_score(wanted: Sequence[str], block: Sequence[str]) -> float:
    """Mean likeness of the lines; 0 when fewer than half are remembered."""
    scores = _likenesses(wanted, block)
    remembered = sum(score >= LINE_ALIKE for score in scores)
    return _mean(scores) if remembered * 2 >= len(scores) else 0.0


def _likenesses(wanted: Sequence[str], block: Sequence[str]) -> list[float]:
    """Likeness of each pair of lines, pairs of empty ones aside."""
    return [_likeness(a, b) for a, b in zip(wanted, block, strict=True) if a or b]


def _mean(scores: Sequence[float]) -> float:
    return sum(scores) / len(scores) if scores else 0.0


def _likeness(one: str, other: str) -> float:
    if one == other:
        return 1.0
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    is_long = len(one) + len(other) > _MAX_COMPARED_CHARS
    return matcher.quick_ratio() if is_long else matcher.ratio()


# ------------------------------------------------------------------ the new text, adjusted


def _as_it_is(matched: str, old: str, new: str) -> str:
    del matched, old
    return new


def _as_block(matched: str, old: str, new: str) -> str:
    """The new text for whole lines: as indented as what it replaces, no new line end at the file's end."""
    if old.endswith("\n") and not matched.endswith("\n"):
        new = new.removesuffix("\n")
    return _reindented(matched, old, new)


def _reindented(matched: str, old: str, new: str) -> str:
    """The new text moved to the indentation of what it replaces, if it begins indented like `old`."""
    was, stands, fresh = _indents(old), _indents(matched), _indents(new)
    if not fresh or len(was) != len(stands) or fresh[:1] != was[:1]:
        return new
    return "\n".join(map(mover(was, stands), new.split("\n")))


def _indents(text: str) -> list[str]:
    return [indent_of(line) for line in text.split("\n") if line.strip()]


def _unescape_alike(matched: str, old: str, new: str) -> str:
    """The new text was escaped once too often as well, unless it has real line breaks."""
    del matched, old
    return new if "\n" in new else _unescape(new)


def _trim_alike(matched: str, old: str, new: str) -> str:
    """White space around the old text that was not there is not wanted around the new one either."""
    del matched
    before, after = old[: len(old) - len(old.lstrip())], old[len(old.rstrip()) :]
    return new.removeprefix(before).removesuffix(after)


if TYPE_CHECKING:
    Locate = Callable[[str, str], list[Place]]
    Adjust = Callable[[str, str, str], str]

_STRATEGIES: tuple[tuple[str, Locate, Adjust], ...] = (
    ("exact", _exact, _as_it_is),
    ("line-trimmed", _line_trimmed, _as_block),
    ("whitespace-normalised", _whitespace_normalised, _as_it_is),
    ("indentation-flexible", _indentation_flexible, _as_it_is),
    ("escape-normalised", _escape_normalised, _unescape_alike),
    ("trimmed-boundary", _trimmed_boundary, _trim_alike),
    ("unicode-normalised", _unicode_normalised, _as_it_is),
    ("block-anchor", _block_anchor, _as_block),
    ("context-aware", _context_aware, _as_block),
)

STRATEGIES = tuple(name for name, _, _ in _STRATEGIES)
"""Names of the strategies, in the order in which they are tried."""
