"""Manifests as sets of entries by rollout key: which entry of which part is taken.

`best` is a total order over what a manifest says (and over whether the trajectory is at hand), so a
merge under it is commutative and associative whatever is merged, and A + A = A.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from heapq import merge as merged
from itertools import groupby, islice, repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from hermes_run.core.trajectory import Status
from hermes_run.errors import UsageError
from hermes_run.store.entry import encode, split_line
from hermes_run.store.manifest import changes
from hermes_run.store.rawlines import entry_of
from hermes_run.store.unionplan import width_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hermes_run.store.entry import Entry
    from hermes_run.store.parts import Part

Candidate: TypeAlias = tuple[bytes, int, bytes]
"""(packed rollout key, number of the part, manifest line)."""

POLICIES = ("best", "first", "last", "error")
_RANKS = {status.value: rank for rank, status in enumerate(Status)}
"""completed over partial over discarded over failed: the order in which Status names them."""
_SHOWN_CONFLICTS = 10
_AHEAD = 64
"""So many entries of each part are read ahead."""

_KEY_BYTES = 20


def blocks(parts: Sequence[Part]) -> Iterator[list[Candidate]]:
    """All candidates in order of keys, those of one key in order of parts and never in two blocks.

    Sorting blocks is several times cheaper than a heap of all parts.
    """
    streams = [part.blocks() for part in parts]
    is_open = [True] * len(parts)
    ahead: list[list[Candidate]] = [[] for _ in parts]
    while True:
        for number, stream in enumerate(streams):
            while is_open[number] and len(ahead[number]) < _AHEAD:
                keys, lines = next(stream, ((), ()))
                is_open[number] = bool(keys)
                ahead[number] += zip(keys, repeat(number), lines, strict=False)
        ends = [found[-1][0] for number, found in enumerate(ahead) if is_open[number]]
        bound = min(ends, default=b"\xff" * _KEY_BYTES)
        block: list[Candidate] = []
        for number, found in enumerate(ahead):
            cut = bisect_right(found, bound, key=itemgetter(0))
            block += found[:cut]
            ahead[number] = found[cut:]
        if not block:
            return
        block.sort(key=itemgetter(0))  # stable: those of one key stay in order of parts
        yield block


def rivals(parts: Sequence[Part]) -> Iterator[list[Candidate]]:
    """The candidates for each rollout key, in order of keys; those of one key in order of parts."""
    for block in blocks(parts):
        for _, group in groupby(block, itemgetter(0)):
            yield list(group)


def _numbered(number: int, part: Part) -> Iterator[Candidate]:
    for packed, line in part.lines():
        yield packed, number, line


class Union:
    """The union of parts under a policy, one candidate a key.

    Attributes:
        overlaps: keys that several parts have.
        conflicts: those among them whose results differ.
    """

    def __init__(self, parts: Sequence[Part], policy: str = "best") -> None:
        self._parts = parts
        self._policy = policy
        self.overlaps = self.conflicts = 0
        self._shown: list[str] = []

    def chosen(self) -> Iterator[Candidate]:
        """The candidates taken, in order of keys. Raises as `chosen_blocks`."""
        for block in self.chosen_blocks():
            yield from block

    def chosen_blocks(self) -> Iterator[list[Candidate]]:
        """The same, some at once.

        Raises UsageError at the end when the policy is `error` and results differ.
        """
        for block in blocks(self._parts):
            keys = [candidate[0] for candidate in block]
            if not any(map(operator.eq, keys, islice(keys, 1, None))):
                yield block
            else:
                groups = (list(group) for _, group in groupby(block, itemgetter(0)))
                yield [group[0] if len(group) == 1 else self._pick(group) for group in groups]
        if self._shown and self._policy == "error":
            more = f"\n  and {self.conflicts - len(self._shown)} more" * (self.conflicts > len(self._shown))
            raise UsageError(
                f"{self.conflicts} of {self.overlaps} rollouts that several parts have came to different "
                "results; --policy best, first or last takes one of each, --renumber keeps all as samples:\n"
                + "\n".join(self._shown)
                + more
            )

    def _pick(self, group: list[Candidate]) -> Candidate:
        self.overlaps += 1
        if all(each[2] == group[0][2] for each in group):
            return next((each for each in group if self._parts[each[1]].has_line(each[0])), group[0])
        entries = {line: entry_of(line, self._parts[number].path) for _, number, line in group}
        self._note_conflict(group, entries)
        if self._policy == "first":
            return group[0]
        if self._policy == "last":
            return group[-1]
        return min(group, key=lambda each: self._rank(each, entries[each[2]]))

    def _rank(self, candidate: Candidate, entry: Entry) -> tuple[int, bool, bytes]:
        packed, number, _ = candidate
        is_elsewhere = entry.status != Status.FAILED.value and not self._parts[number].has_line(packed)
        return _RANKS.get(entry.status, len(_RANKS)), is_elsewhere, encode(entry)

    def _note_conflict(self, group: list[Candidate], entries: dict[bytes, Entry]) -> None:
        first = entries[group[0][2]]
        for _, number, line in group[1:]:
            fields = {} if line == group[0][2] else changes(first, entries[line])
            if fields:
                self.conflicts += 1
                if len(self._shown) < _SHOWN_CONFLICTS:
                    a, b = self._parts[group[0][1]].path, self._parts[number].path
                    self._shown.append(f"  {first.key}: {_differences(fields)} ({a}, {b})")
                return


def _differences(fields: dict[str, list[Any]]) -> str:
    name, (before, after) = next(iter(fields.items()))
    more = f", {len(fields) - 1} fields more" if len(fields) > 1 else ""
    return f"{name} {msgspec.json.encode(before).decode()} / {msgspec.json.encode(after).decode()}{more}"


class Renumbered:
    """All entries of all parts: the samples of each part come after those of the parts before.

    Attributes:
        widths: content key -> how many ordinals of it all parts together use or plan.
    """

    def __init__(self, parts: Sequence[Part], planned: Sequence[dict[bytes, int]]) -> None:
        self._parts = parts
        self._planned = planned
        self.widths: dict[bytes, int] = {}

    def chosen(self) -> Iterator[tuple[Candidate, bytes]]:
        """(candidate under its new key, its old packed key), in order of new keys."""
        group: list[Candidate] = []
        streams = (_numbered(number, part) for number, part in enumerate(self._parts))
        for candidate in merged(*streams, key=_content_and_part):
            if group and group[0][0][:16] != candidate[0][:16]:
                yield from self._side_by_side(group)
                group = []
            group.append(candidate)
        if group:
            yield from self._side_by_side(group)

    def _side_by_side(self, group: list[Candidate]) -> Iterator[tuple[Candidate, bytes]]:
        content, base = group[0][0][:16], 0
        for number in range(len(self._parts)):
            mine = [each for each in group if each[1] == number]
            width = width_of(mine[-1][0]) if mine else 0
            for packed, _, line in mine:
                ordinal = int.from_bytes(packed[16:], "big") + base
                new = content + ordinal.to_bytes(4, "big")
                yield (new, number, _rekeyed(line, ordinal)), packed
            base += max(width, self._planned[number].get(content, 0))
        self.widths[content] = base


def _content_and_part(candidate: Candidate) -> tuple[bytes, int]:
    return candidate[0][:16], candidate[1]


def _rekeyed(line: bytes, ordinal: int) -> bytes:
    found = split_line(line)
    if found is None:  # parts give lines in our spelling
        raise TypeError("no manifest line in our spelling")
    return line[: line.index(b"#") + 1] + b"%d" % ordinal + line[found[1] :]


def only_first(parts: Sequence[Part]) -> Iterator[Candidate]:
    """The entries of the first part whose keys no other part has."""
    return (group[0] for group in rivals(parts) if len(group) == 1 and group[0][1] == 0)


def in_all(parts: Sequence[Part]) -> Iterator[Candidate]:
    """The entries of the first part whose keys every other part has."""
    return (group[0] for group in rivals(parts) if len(group) == len(parts))


def matching(part: Part, wanted: Callable[[Entry], bool]) -> Iterator[Candidate]:
    """The entries of a part that are wanted."""
    for packed, line in part.lines():
        if wanted(entry_of(line, part.path)):
            yield packed, 0, line
