"""Manifest files alone become a run directory: in one pass, in order of keys."""

from __future__ import annotations

from array import array
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from hermes_run.core.trajectory import Status
from hermes_run.dataset.plan import Selection
from hermes_run.store.entry import decode_entry
from hermes_run.store.manifest import STATUSES
from hermes_run.store.planfile import PlanFile, runs_of
from hermes_run.store.rawlines import entry_of
from hermes_run.store.unionplan import width_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from hermes_run.store.algebra import Candidate
    from hermes_run.store.assemble import Assembly
    from hermes_run.store.entry import Entry
    from hermes_run.store.parts import Part

_FAILED = Status.FAILED.value
_TOGETHER = 64
"""So many entries are decoded, summed and written together: what they hold stays in the processor's cache."""
_KEY_BYTES, _CONTENT_BYTES = 20, 16


class _Contents:
    """The rows that the keys are of: content keys in order, each with its highest ordinal.

    Attributes:
        irregular: number of a content key -> the ordinals of it that are done, where not all are.
    """

    def __init__(self) -> None:
        self.keys = bytearray()
        self.widths = array("Q")
        self.irregular: dict[int, frozenset[int]] = {}
        self._last = b""
        self._done: list[int] = []

    def add(self, keys: Sequence[bytes], entries: Sequence[Entry]) -> None:
        """Take in some packed rollout keys, in order, and their entries."""
        first = keys[0][:16] != self._last
        packed_keys = b"".join(keys)
        ordinals = (packed_keys[at::_KEY_BYTES] for at in range(_CONTENT_BYTES, _KEY_BYTES))
        if first and not b"".join(ordinals).strip(b"\0"):
            self._add_single(keys, entries)
            return
        for packed, entry in zip(keys, entries, strict=True):
            content, ordinal = packed[:16], int.from_bytes(packed[16:], "big")
            if content != self._last:
                self.close()
                self._last = content
                self.keys += content
                self.widths.append(width_of(packed))
            else:
                self.widths[-1] = width_of(packed)
            if entry.status != _FAILED:
                self._done.append(ordinal)

    def _add_single(self, keys: Sequence[bytes], entries: Sequence[Entry]) -> None:
        """As most manifests are: no content key stands twice."""
        self.close()
        base = len(self.widths)
        self.keys += b"".join([key[:16] for key in keys])
        self.widths.extend([1] * len(keys))
        self._last = keys[-1][:16]
        failed = [place for place, entry in enumerate(entries) if entry.status == _FAILED]
        self.irregular.update((base + place, frozenset()) for place in failed)
        if failed[-1:] != [len(keys) - 1]:
            self._done.append(0)  # of the last one, which may go on
        self.irregular.pop(base + len(keys) - 1, None)

    def close(self) -> None:
        """The last content key has no further entry."""
        if self.widths and len(self._done) != self.widths[-1]:
            self.irregular[len(self.widths) - 1] = frozenset(self._done)
        self._done.clear()

    def plan(self) -> tuple[PlanFile, bytes, list[int]]:
        """The plan, its packed content keys, and the places of the rows that are done."""
        different = set(self.widths)
        samples = different.pop() if len(different) == 1 else 1
        if samples == 1 and different:
            keys = b"".join(self.keys[16 * n : 16 * n + 16] * w for n, w in enumerate(self.widths))
        else:
            keys = bytes(self.keys)
        rows = len(keys) // 16
        plan = PlanFile(
            dataset="",
            dataset_hash="",
            rows=rows,
            total=rows * samples,
            planned=rows * samples,
            removed=0,
            selection=Selection(samples=samples),
            invalid=[],
            places=runs_of(array("Q", range(rows))),
        )
        if samples == 1 == max(self.widths, default=0):
            return plan, keys, [place for place in range(rows) if place not in self.irregular]
        return plan, keys, [*self._completed(samples)]

    def _completed(self, samples: int) -> Iterator[int]:
        place = 0
        for number, width in enumerate(self.widths):
            copies = width // samples
            done = self.irregular.get(number)
            for copy in range(copies):
                if done is None or all(ordinal in done for ordinal in range(copy, width, copies)):
                    yield place
                place += 1


def write_bare(new: Assembly, parts: Sequence[Part], chosen: Iterable[list[Candidate]]) -> list[int]:
    """Write entries as they come, with a plan of the rows that they are of; how many of each part."""
    contents, taken = _Contents(), Counter[int]()
    for some in (block[at : at + _TOGETHER] for block in chosen for at in range(0, len(block), _TOGETHER)):
        keys, _, lines = zip(*some, strict=True)
        joined = b"".join(lines)
        entries = _decoded(some, parts, lines)
        new.add_bare(keys, lines, joined, entries)
        contents.add(keys, entries)
        taken.update(map(itemgetter(1), some))
    contents.close()
    new.count_bare()
    new.set_plan(*contents.plan())
    return [taken[number] for number in range(len(parts))]


def _decoded(some: Sequence[Candidate], parts: Sequence[Part], lines: Sequence[bytes]) -> list[Entry]:
    try:
        entries = [*map(decode_entry, lines)]
        is_sound = STATUSES.issuperset([entry.status for entry in entries])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        is_sound = False
    return entries if is_sound else [entry_of(line, parts[number].path) for _, number, line in some]
