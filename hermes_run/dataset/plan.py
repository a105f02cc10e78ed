"""The plan: which rollouts a dataset asks for, packed. Contract, sections 3 and 4.

A row costs 32 bytes here whatever its size: 16 of content key, 8 of offset, 8 of place; rows are read
again when their turn comes.
"""

from __future__ import annotations

from array import array
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import xxhash
from msgspec import Struct

from hermes_run.core.keys import shard_of, unpack_key
from hermes_run.core.task import PromptTask
from hermes_run.dataset.files import is_plain, open_text, read_line_at, read_lines
from hermes_run.dataset.rows import BadRow, Row, parse_row, parse_work
from hermes_run.errors import DatasetChanged, DatasetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_KEY_BYTES = 16
SHOWN_BAD_ROWS = 1000
"""How many bad rows get a line each in an error; of more, those that lack the same share one."""


class InvalidRow(Struct, frozen=True, omit_defaults=True):
    """A row that cannot be run: its line from 1, its place in the dataset from 0, and why.

    `dataset_hash` is that of its dataset, where a plan holds rows of several; else "".
    """

    line: int
    prompt_index: int
    reason: str
    dataset_hash: str = ""


class Selection(Struct, frozen=True):
    """What of a dataset is planned, and how often. `shard` is "K/N" (K from 1), or "" for all of it."""

    prompt_field: str = "prompt"
    max_samples: int | None = None
    dedupe: bool = False
    samples: int = 1
    shard: str = ""

    @property
    def part(self) -> tuple[int, int]:
        """Which part of how many, from 0."""
        number, _, count = (self.shard or "1/1").partition("/")
        return int(number) - 1, int(count)


class Rollout(Struct, frozen=True, gc=False):
    """One planned rollout: its packed key (`core.keys.pack_key`) and its row's position in the plan."""

    key: bytes
    position: int


class Plan:
    """Rows in dataset order, and the rollouts that they ask for.

    Attributes:
        path: the dataset.
        selection: what of it, and how often.
        rows: rows counted for the ledger: read, less those that `dedupe` removed.
        removed: rows that `dedupe` removed.
        invalid: the rows that cannot be run.
        dataset_hash: xxh3_128 of the decompressed bytes up to the last row planned.
        images: image -> how many rows name it.
        without_image: rows that name none.
        first_image_line: image -> the first line that names it.
    """

    def __init__(self, path: Path, selection: Selection) -> None:
        self.path = path
        self.selection = selection
        self.rows = 0
        self.removed = 0
        self.invalid: list[InvalidRow] = []
        self.dataset_hash = ""
        self.images: dict[str, int] = {}
        self.first_image_line: dict[str, int] = {}
        self.without_image = 0
        self._keys = bytearray()
        self._offsets = array("Q")
        self._indexes = array("Q")
        self._equal: dict[bytes, array[int]] = {}

    def __len__(self) -> int:
        """How many rows can be run."""
        return len(self._offsets)

    @property
    def planned(self) -> int:
        """How many rollouts can be run."""
        return len(self) * self.selection.samples

    @property
    def total(self) -> int:
        """The ledger's total: rows x samples, invalid ones included."""
        return self.rows * self.selection.samples

    @property
    def packed_keys(self) -> bytes:
        """16 bytes a row that can be run, in order."""
        return bytes(self._keys)

    @property
    def indexes(self) -> array[int]:
        """The place in the dataset of each row that can be run, ascending."""
        return self._indexes

    def prompt_index(self, position: int) -> int:
        """A row's place in the dataset, from 0."""
        return self._indexes[position]

    def add(self, content: bytes, offset: int, prompt_index: int) -> None:
        """A further row that can be run."""
        self._keys += content
        self._offsets.append(offset)
        self._indexes.append(prompt_index)

    def settle(self) -> None:
        """Find the equal rows, once all are there."""
        self._equal = equal_rows(self._keys)

    def rollouts(self) -> Iterator[Rollout]:
        """Every planned rollout, in dataset order, a row's samples together.

        The j-th of n equal rows has the ordinals j, j + n, j + 2n, …: so ordinal o belongs to the
        (o mod n)-th of them, and raising `samples` or adding copies only adds ordinals.
        """
        for position, packed in planned_keys(self._keys, self._equal, self.selection.samples):
            yield Rollout(packed, position)

    def read_tasks(self, rollouts: Iterable[Rollout]) -> Iterator[PromptTask]:
        """The tasks of rollouts that come in dataset order, each row read when it is asked for.

        Raises DatasetChanged when a row is no longer what was planned.
        """
        for rollout, row in self._as_planned(self._read(rollouts)):
            yield PromptTask(
                key=unpack_key(rollout.key),
                prompt_index=self._indexes[rollout.position],
                prompt=row.prompt,
                image=row.image,
                cwd=row.cwd,
                setup=row.setup,
                files=row.files,
                row_id=row.row_id,
                row=row.rest,
                images=row.images,
            )

    def read_rows(self) -> Iterator[tuple[int, Row]]:
        """(position, row) of every row that can be run, in order, in one pass. Raises DatasetChanged."""
        rollouts = (Rollout(self._content(position), position) for position in range(len(self)))
        for rollout, row in self._as_planned(self._read_stream(rollouts)):
            yield rollout.position, row

    @staticmethod
    def _as_planned(rows: Iterator[tuple[Rollout, Row]]) -> Iterator[tuple[Rollout, Row]]:
        try:
            yield from rows
        except DatasetError as error:
            raise DatasetChanged(
                f"{error}. It could when the run began: put it back, and run the same command again"
            ) from None

    def _content(self, position: int) -> bytes:
        return bytes(self._keys[position * _KEY_BYTES : (position + 1) * _KEY_BYTES])

    def _checked(self, line: bytes, position: int) -> Row:
        try:
            row = parse_row(line, self.selection.prompt_field)
        except BadRow:
            row = None
        if row is None or bytes.fromhex(row.key) != self._content(position):
            raise DatasetChanged(
                f"{self.path}: the dataset was changed while the run was reading it "
                f"(row {self._indexes[position]}); nothing is lost: run the same command again"
            )
        return row

    def _read(self, rollouts: Iterable[Rollout]) -> Iterator[tuple[Rollout, Row]]:
        yield from (self._read_plain if is_plain(self.path) else self._read_stream)(rollouts)

    def _read_plain(self, rollouts: Iterable[Rollout]) -> Iterator[tuple[Rollout, Row]]:
        position, row = -1, None
        with open_text(self.path) as stream:
            for rollout in rollouts:
                if row is None or rollout.position != position:
                    position = rollout.position
                    row = self._checked(read_line_at(stream, self._offsets[position]), position)
                yield rollout, row

    def _read_stream(self, rollouts: Iterable[Rollout]) -> Iterator[tuple[Rollout, Row]]:
        lines = read_lines(self.path)
        position, row = -1, None
        for rollout in rollouts:
            if row is None or rollout.position != position:
                position, wanted = rollout.position, self._offsets[rollout.position]
                line = next((text for _, offset, text in lines if offset == wanted), b"")
                row = self._checked(line, position)
            yield rollout, row


def equal_rows(keys: bytes | bytearray) -> dict[bytes, array[int]]:
    """Content keys that stand more than once -> the positions of their rows, in order."""
    heads = array("Q", bytes(keys))[::2]  # the first half of each key: few keys share one by chance
    ordered = sorted(heads)
    repeated = {head for head, following in pairwise(ordered) if head == following}
    if not repeated:
        return {}
    del ordered
    places: dict[bytes, array[int]] = {}
    for position, head in enumerate(heads):
        if head in repeated:
            content = bytes(keys[position * _KEY_BYTES : (position + 1) * _KEY_BYTES])
            places.setdefault(content, array("Q")).append(position)
    return {content: positions for content, positions in places.items() if len(positions) > 1}


def planned_keys(
    keys: bytes | bytearray, equal: dict[bytes, array[int]], samples: int
) -> Iterator[tuple[int, bytes]]:
    """(position, packed rollout key) of every rollout of packed content keys, in order."""
    seen: dict[bytes, int] = {}
    alone = [ordinal.to_bytes(4, "big") for ordinal in range(samples)]
    for position in range(len(keys) // _KEY_BYTES):
        content = bytes(keys[position * _KEY_BYTES : (position + 1) * _KEY_BYTES])
        if content in equal:
            rank, count = seen.get(content, 0), len(equal[content])
            seen[content] = rank + 1
            for sample in range(samples):
                yield position, content + (rank + sample * count).to_bytes(4, "big")
        else:
            for ordinal in alone:
                yield position, content + ordinal


def make_plan(path: Path, selection: Selection, *, skip_bad_rows: bool = False) -> Plan:
    """Read a dataset once and plan it.

    Raises DatasetError for a file that cannot be read and, unless `skip_bad_rows`, for its bad rows,
    all of them listed with line numbers.
    """
    plan = Plan(path, selection)
    hasher = xxhash.xxh3_128()
    known: set[bytes] = set()
    part, parts = selection.part
    lines = islice(read_lines(path, hasher), selection.max_samples)
    for prompt_index, (number, offset, line) in enumerate(lines):
        try:
            key, image = parse_work(line, selection.prompt_field)
        except BadRow as bad:
            plan.invalid.append(InvalidRow(number, prompt_index, str(bad)))
            continue
        if parts > 1 and shard_of(key, parts) != part:
            continue
        content = bytes.fromhex(key)
        if selection.dedupe:
            if content in known:
                plan.removed += 1
                continue
            known.add(content)
        if image:
            plan.images[image] = plan.images.get(image, 0) + 1
            plan.first_image_line.setdefault(image, number)
        plan.add(content, offset, prompt_index)
    plan.dataset_hash = hasher.hexdigest()
    if plan.invalid and not skip_bad_rows:
        plan.rows = len(plan) + len(plan.invalid)
        raise DatasetError(describe_bad_rows(plan))
    if part:
        plan.invalid.clear()  # they belong to the first part
    plan.rows = len(plan) + len(plan.invalid)
    plan.without_image = len(plan) - sum(plan.images.values())
    plan.settle()
    return plan


def describe_bad_rows(plan: Plan) -> str:
    """The line number of every bad row with what is wrong, and the cure."""
    lines = [f"{plan.path}:{bad.line}: {bad.reason}" for bad in plan.invalid[:SHOWN_BAD_ROWS]]
    further: dict[str, list[int]] = {}
    for bad in plan.invalid[SHOWN_BAD_ROWS:]:
        further.setdefault(bad.reason, []).append(bad.line)
    lines += [f"{plan.path}:{_ranges(numbers)}: {reason}" for reason, numbers in further.items()]
    lines.append(
        f"{len(plan.invalid)} of {plan.rows} rows cannot be run; mend them, or set dataset.on_bad_row: skip "
        "to keep them in the ledger as invalid"
    )
    return "\n".join(lines)


def _ranges(numbers: Iterable[int]) -> str:
    """`1, 3-5` of 1, 3, 4, 5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
