"""The plan of a run that is put together: the union of its parts' rows. Contract, section 4.

A content key is planned as often as the part that plans it most often (with `renumber`: as often as
all parts together). `samples` is the largest number that some part has and that divides all of these;
where none does, the greatest common divisor of the parts' `samples`, so that rows stand more often
instead. Rows x samples is then exactly the union, and the ledger holds.

Rows stand in dataset order when all parts read the same dataset (shards, repeated runs, and manifests
of such), else part by part; a row's place (`prompt_index`) is its place in that dataset, else in the union.
"""

from __future__ import annotations

from array import array
from collections import Counter
from math import gcd
from typing import TYPE_CHECKING

import msgspec

from hermes_run.core.keys import unpack_key
from hermes_run.dataset.plan import InvalidRow, Selection
from hermes_run.errors import UsageError
from hermes_run.store.planfile import MOST_ROLLOUTS, PlanFile, places_of, runs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hermes_run.store.parts import Part

_KEY_BYTES = 16


class Rows(msgspec.Struct):
    """What one part plans: packed content keys, where their rows stand, how often each is run."""

    keys: bytes
    places: array[int]
    samples: int = 1

    def contents(self) -> Iterator[bytes]:
        """The content keys, in order."""
        for at in range(0, len(self.keys), _KEY_BYTES):
            yield self.keys[at : at + _KEY_BYTES]

    def counts(self) -> Counter[bytes]:
        """Content key -> how many rollouts it is planned for."""
        counts = Counter(self.contents())
        if self.samples > 1:
            for content in counts:
                counts[content] *= self.samples
        return counts


class UnionPlan(msgspec.Struct):
    """A plan, its packed content keys, and the place of each of their rows."""

    plan: PlanFile
    keys: bytes
    places: array[int]


def rows_of_plan(part: Part) -> Rows | None:
    """The rows that a part's plan names, or None when it has none."""
    if part.plan is None:
        return None
    rows = len(part.keys) // _KEY_BYTES
    return Rows(part.keys, places_of(part.plan, rows), part.plan.selection.samples)


def rows_of_keys(packed: Iterator[bytes]) -> Rows:
    """The rows that sorted rollout keys are of: as often as their highest ordinal says."""
    widths: dict[bytes, int] = {}
    for key in packed:
        widths[key[:_KEY_BYTES]] = width_of(key)
    return rows_of_widths(widths)


def width_of(key: bytes) -> int:
    """How many rollouts of its prompt there are at least, if there is this one. Raises UsageError."""
    width = int.from_bytes(key[_KEY_BYTES:], "big") + 1
    if width > MOST_ROLLOUTS:
        raise UsageError(
            f"{unpack_key(key)}: no run has {width:,} rollouts of one prompt; the manifest that lists it is "
            "damaged, or no manifest of a run"
        )
    return width


def rows_of_widths(widths: dict[bytes, int]) -> Rows:
    """The rows of content keys that are planned so often: as samples where all are equally often."""
    different = set(widths.values())
    samples = different.pop() if len(different) == 1 else 1
    keys = b"".join(content * (width // samples) for content, width in widths.items())
    return Rows(keys, array("Q", range(len(keys) // _KEY_BYTES)), samples)


def union_plan(
    parts: Sequence[Part],
    rows: Sequence[Rows],
    counts: dict[bytes, int],
    keep: Callable[[bytes], bool] | None = None,
    *,
    renumber: bool = False,
) -> UnionPlan:
    """The plan of what is put together.

    Args:
        parts: what is put together.
        rows: what each of them plans.
        counts: content key -> how many rollouts the union plans.
        keep: which content keys it plans at all; None for all, and the invalid rows too.
        renumber: the samples of the parts stand side by side.
    """
    if keep is not None:
        counts = {content: count for content, count in counts.items() if keep(content)}
    known = [each.samples for each in rows]
    samples = _samples([*known, sum(known)] if renumber else known, counts)
    pairs = sorted(zip(parts, rows, strict=True), key=lambda pair: not _has_dataset(pair[0]))
    plans = [part.plan for part, _ in pairs if part.plan is not None]
    datasets = {_dataset(part.plan) for part, _ in pairs if part.plan is not None and _has_dataset(part)}
    placed = _in_order([each for _, each in pairs], counts, samples)
    with_dataset = sum(map(_has_dataset, parts))
    is_one_dataset = len(datasets) == 1 and not any(placed.added[with_dataset:])
    if is_one_dataset:
        placed.sort()
    else:
        placed.places = array("Q", range(len(placed.places)))
    invalid = _invalid(plans, is_one_dataset=is_one_dataset) if keep is None else []
    first = plans[0].selection if plans else Selection()
    rows_in_all = len(placed.places) + len(invalid)
    plan = PlanFile(
        dataset=" + ".join(dict.fromkeys(plan.dataset for plan in plans if plan.dataset)),
        dataset_hash=plans[0].dataset_hash if is_one_dataset else "",
        rows=rows_in_all,
        total=rows_in_all * samples,
        planned=len(placed.places) * samples,
        removed=_removed(plans) if is_one_dataset and keep is None else 0,
        selection=Selection(first.prompt_field, first.max_samples, first.dedupe, samples)
        if is_one_dataset
        else Selection(first.prompt_field, samples=samples),
        invalid=invalid,
        places=runs_of(placed.places),
    )
    return UnionPlan(plan, bytes(placed.keys), placed.places)


def _has_dataset(part: Part) -> bool:
    """Whether it is known in which dataset the part's rows stand, and where."""
    return part.plan is not None and bool(part.plan.dataset_hash)


def _removed(plans: Sequence[PlanFile]) -> int:
    """Rows that `dedupe` removed from one dataset: each shard of a run counts its own."""
    by_shard: dict[str, int] = {}
    for plan in plans:
        shard = plan.selection.shard
        by_shard[shard] = max(plan.removed, by_shard.get(shard, 0))
    return max(by_shard.pop("", 0), sum(by_shard.values()))


def _dataset(plan: PlanFile) -> tuple[str, str]:
    return plan.dataset_hash, plan.selection.prompt_field


def _samples(known: Sequence[int], counts: dict[bytes, int]) -> int:
    different = set(counts.values())
    fitting = (n for n in sorted(known, reverse=True) if all(count % n == 0 for count in different))
    return next(fitting, gcd(*known)) or 1


class _Placed(msgspec.Struct):
    """Rows as they are put together: packed keys, places, and how many rows each part added."""

    keys: bytearray
    places: array[int]
    added: list[int]

    def add(self, content: bytes, place: int, copies: int) -> None:
        self.keys += content * copies
        self.places.extend([place] * copies)

    def sort(self) -> None:
        """Bring the rows into the order of their places."""
        order = sorted(range(len(self.places)), key=self.places.__getitem__)
        self.keys = bytearray().join(self.keys[n * _KEY_BYTES : (n + 1) * _KEY_BYTES] for n in order)
        self.places = array("Q", (self.places[n] for n in order))


def _in_order(rows: Sequence[Rows], counts: dict[bytes, int], samples: int) -> _Placed:
    """Every content key as often as count / samples says, at the places of the rows it comes from."""
    wanted = {content: count // samples for content, count in counts.items()}
    placed = _Placed(bytearray(), array("Q"), [])
    for each in rows:
        before = len(placed.places)
        for content, place in zip(each.contents(), each.places, strict=True):
            left = wanted.get(content, 0)
            copies = min(left, max(1, each.samples // samples))
            if copies:
                wanted[content] = left - copies
                placed.add(content, place, copies)
        placed.added.append(len(placed.places) - before)
    for each in rows:  # renumbered samples that divide into no whole rows stand as further copies
        for content, place in zip(each.contents(), each.places, strict=True):
            if left := wanted.pop(content, 0):
                placed.add(content, place, left)
    return placed


def _invalid(plans: Sequence[PlanFile], *, is_one_dataset: bool) -> list[InvalidRow]:
    """The rows of all that cannot be run, each once: a line of a dataset is one row."""
    found: dict[tuple[str, int], InvalidRow] = {}
    for plan in plans:
        for bad in plan.invalid:
            origin = bad.dataset_hash or plan.dataset_hash
            kept = "" if is_one_dataset else origin
            found.setdefault((origin, bad.line), msgspec.structs.replace(bad, dataset_hash=kept))
    return sorted(found.values(), key=lambda bad: bad.prompt_index) if is_one_dataset else [*found.values()]
