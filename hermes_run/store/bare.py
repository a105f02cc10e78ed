"""Manifest files alone become a run directory: in one pass, in order of keys."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from hermes_run.core.trajectory import Status
from hermes_run.dataset.plan import Selection
from hermes_run.store.entry import encode
from hermes_run.store.planfile import PlanFile, runs_of
from hermes_run.store.rawlines import entry_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hermes_run.store.algebra import Candidate
    from hermes_run.store.assemble import Assembly
    from hermes_run.store.parts import Part

_FAILED = Status.FAILED.value


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

    def add(self, packed: bytes, *, is_done: bool) -> None:
        content, ordinal = packed[:16], int.from_bytes(packed[16:], "big")
        if content != self._last:
            self.close()
            self._last = content
            self.keys += content
            self.widths.append(0)
        self.widths[-1] = ordinal + 1
        if is_done:
            self._done.append(ordinal)

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


def write_bare(new: Assembly, parts: Sequence[Part], chosen: Iterator[Candidate]) -> list[int]:
    """Write entries as they come, with a plan of the rows that they are of; how many of each part."""
    contents, taken = _Contents(), [0] * len(parts)
    for packed, number, line in chosen:
        entry = entry_of(line, parts[number].path)
        taken[number] += 1
        new.add_bare(packed, encode(entry), entry)
        contents.add(packed, is_done=entry.status != _FAILED)
    contents.close()
    new.set_plan(*contents.plan())
    return taken
