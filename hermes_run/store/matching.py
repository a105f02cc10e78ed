"""Which row of a dataset a record of the predecessor belongs to: by the text of its prompt."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes_run.core.trajectory import Status
from hermes_run.store.predecessor import Sighting, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hermes_run.dataset.plan import Plan

_RANK = {Status.COMPLETED.value: 0, Status.PARTIAL.value: 1, Status.DISCARDED.value: 2}
_CONTENT_BYTES = 16

SURPLUS = "surplus"
"""More records than rows have that prompt."""
UNMATCHED = "not in the dataset"


class Outside(Struct, frozen=True):
    """A record that no planned rollout is left for: kept under a key outside of the plan."""

    sighting: Sighting
    key: bytes
    why: str


class Matching(Struct, frozen=True):
    """Position of a row in the plan -> its record; and the records beyond."""

    planned: dict[int, Sighting]
    outside: list[Outside]


def match_rows(plan: Plan, sightings: Sequence[Sighting], known_tools: Iterable[str]) -> Matching:
    """Records to rows with the same prompt: exactly, else without white space around it.

    Equal rows take equal prompts' records in order. Rows of one prompt that differ otherwise (in their
    image, say) take those whose index points at such a row first. Of more records than rows the best
    are planned: completed before partial before discarded.
    """
    exact: dict[bytes, list[int]] = {}
    loose: dict[bytes, list[int]] = {}
    for position, row in plan.read_rows():
        exact.setdefault(digest_of(row.prompt), []).append(position)
        loose.setdefault(digest_of(row.prompt.strip()), []).append(position)
    matcher = _Matcher(plan, known_tools)
    unmatched: dict[bytes, list[Sighting]] = {}
    for prompt, found in _grouped(sightings, lambda each: each.prompt).items():
        if prompt in exact:
            matcher.give(exact[prompt], found)
        else:
            unmatched[prompt] = found
    rest = [each for found in unmatched.values() for each in found]
    for stripped, found in _grouped(rest, lambda each: each.stripped).items():
        if stripped in loose:
            matcher.give(loose[stripped], found)
        else:
            matcher.leave(found)
    return Matching(matcher.planned, matcher.outside)


def match_alone(plan: Plan, sightings: Sequence[Sighting]) -> Matching:
    """Without a dataset: every record is a row of its own, in order; they are added to `plan`."""
    for position, sighting in enumerate(sightings):
        plan.rows += 1
        plan.add(bytes.fromhex(sighting.content), 0, position)
    plan.settle()
    return Matching(dict(enumerate(sightings)), [])


def _grouped(sightings: Iterable[Sighting], key: Callable[[Sighting], bytes]) -> dict[bytes, list[Sighting]]:
    groups: dict[bytes, list[Sighting]] = {}
    for sighting in sightings:
        groups.setdefault(key(sighting), []).append(sighting)
    return groups


class _Matcher:
    def __init__(self, plan: Plan, known_tools: Iterable[str]) -> None:
        self._keys = plan.packed_keys
        self._indexes = [plan.prompt_index(position) for position in range(len(plan))]
        self._rows = Counter(self._content(position) for position in range(len(plan)))
        self._known = frozenset(known_tools)
        self._beyond: Counter[bytes] = Counter()
        self.planned: dict[int, Sighting] = {}
        self.outside: list[Outside] = []

    def _content(self, position: int) -> bytes:
        return self._keys[position * _CONTENT_BYTES : (position + 1) * _CONTENT_BYTES]

    def give(self, positions: list[int], found: list[Sighting]) -> None:
        """Give rows of one prompt their records."""
        free = [position for position in positions if position not in self.planned]
        best = sorted(range(len(found)), key=lambda place: self._rank(found[place]))[: len(free)]
        chosen = [found[place] for place in sorted(best)]
        for content, records in self._by_content(free, chosen).items():
            places = [position for position in free if self._content(position) == content]
            self.planned.update(zip(places, records, strict=False))
        for place, sighting in enumerate(found):
            if place not in best:
                self._leave(self._content(positions[0]), sighting, SURPLUS)

    def leave(self, found: list[Sighting]) -> None:
        """Keep records whose prompt no row has."""
        for sighting in found:
            self._leave(bytes.fromhex(sighting.content), sighting, UNMATCHED)

    def _leave(self, content: bytes, sighting: Sighting, why: str) -> None:
        ordinal = self._rows[content] + self._beyond[content]
        self._beyond[content] += 1
        self.outside.append(Outside(sighting, content + ordinal.to_bytes(4, "big"), why))

    def _by_content(self, free: list[int], records: list[Sighting]) -> dict[bytes, list[Sighting]]:
        """Content key -> its records in order, where rows of one prompt have several keys."""
        room = Counter(self._content(position) for position in free)
        at = {self._indexes[position]: self._content(position) for position in free}
        given: dict[int, bytes] = {}
        for place, record in enumerate(records):
            content = at.get(record.prompt_index)
            if content is not None and room[content]:
                room[content] -= 1
                given[place] = content
        for place in range(len(records)):
            if place not in given:
                given[place] = next(content for content, left in room.items() if left)
                room[given[place]] -= 1
        found: dict[bytes, list[Sighting]] = {}
        for place, record in enumerate(records):
            found.setdefault(given[place], []).append(record)
        return found

    def _rank(self, sighting: Sighting) -> int:
        has_invented = any(name not in self._known for name in sighting.unknown)
        return _RANK[Status.DISCARDED.value if has_invented else sighting.status]
