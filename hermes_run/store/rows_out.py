"""`--rows FILE`: the dataset rows of chosen rollouts, as a dataset of their own.

A row is taken from the dataset, found there by its content key: whatever was reordered or added since
changes nothing. Where there is no dataset any more it is made again from the rollout's record, which
holds the prompt and the other columns, but neither image, cwd, setup nor files; the content key tells
whether that is all that the row was.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_run.core.keys import content_key
from hermes_run.dataset.files import read_lines
from hermes_run.dataset.plan import Selection
from hermes_run.dataset.rows import BadRow, parse_row
from hermes_run.errors import UsageError
from hermes_run.store.assemble import refuse_inside
from hermes_run.store.disk import replacing
from hermes_run.store.gather import find, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hermes_run.store.parts import Part

_PACKED_SUFFIXES = (".gz", ".zst")


@dataclass(frozen=True, slots=True)
class RowsWish:
    """Where the rows go, and the dataset that they are in (None: the one that the run was made of)."""

    file: Path
    dataset: Path | None = None


class _Turn(msgspec.Struct, frozen=True, rename={"speaker": "from"}):
    speaker: str
    value: str


class _About(msgspec.Struct, frozen=True):
    row: str


class _Record(msgspec.Struct, frozen=True):
    """What of a trajectory line a row can be made of."""

    conversations: list[_Turn]
    metadata: _About


_decode = msgspec.json.Decoder(_Record).decode


def refuse_rows_file(path: Path, sources: Sequence[Path] = ()) -> None:
    """Raises UsageError unless rows can be written there, outside of what they are chosen from."""
    refuse_inside(path, sources, "another file for --rows")
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path}: exists already; name another file for --rows, or move that away")
    if path.suffix in _PACKED_SUFFIXES:
        raise UsageError(f"{path}: rows are written as plain JSON lines; leave out {path.suffix}")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}")


@contextmanager
def rows_file(wish: RowsWish | None) -> Iterator[Callable[[bytes], None]]:
    """What writes into the file that is wished for: it is there, whole, once the block ends well."""
    if wish is None:
        yield lambda _: None
        return
    with replacing(wish.file) as write:
        yield write
        refuse_rows_file(wish.file)


def write_rows(
    part: Part, chosen: Iterable[bytes], wish: RowsWish, write: Callable[[bytes], None]
) -> dict[str, Any]:
    """Write the rows of chosen packed rollout keys, each row once, in dataset order.

    Raises UsageError when some are neither in the dataset nor can be made again, DatasetError when
    `wish.dataset` cannot be read.
    """
    selection = part.plan.selection if part.plan is not None else Selection()
    wanted: dict[bytes, list[int]] = {}
    for packed in chosen:
        wanted.setdefault(packed[:16], []).append(int.from_bytes(packed[16:], "big"))
    dataset = wish.dataset or _dataset_of(part)
    places = _find(dataset, selection, wanted) if dataset is not None else {}
    lines = {place for content, found in places.items() for place in _rows_of(found, wanted[content])}
    written = made = 0
    if dataset is not None:
        for number, (_, _, line) in enumerate(read_lines(dataset)):
            if number in lines:
                write(line + b"\n")
                written += 1
    missing = {content: ordinals for content, ordinals in wanted.items() if content not in places}
    for row in _made_again(part, missing, selection.prompt_field, dataset):
        write(row + b"\n")
        made += 1
    where = None if dataset is None else str(dataset)
    return {"rows_file": str(wish.file), "rows": written + made, "made_again": made, "dataset": where}


def _dataset_of(part: Part) -> Path | None:
    """The dataset that a run was made of, when it is still there."""
    dataset = part.spec.get("dataset")
    path = dataset.get("path") if isinstance(dataset, dict) else None
    return Path(path) if isinstance(path, str) and Path(path).is_file() else None


def _find(dataset: Path, selection: Selection, wanted: dict[bytes, list[int]]) -> dict[bytes, list[int]]:
    """Content key -> which lines that are not blank hold it, from 0."""
    places: dict[bytes, list[int]] = {}
    for number, (_, _, line) in enumerate(islice(read_lines(dataset), selection.max_samples)):
        try:
            content = bytes.fromhex(parse_row(line, selection.prompt_field).key)
        except BadRow:
            continue
        if content in wanted and not (selection.dedupe and content in places):
            places.setdefault(content, []).append(number)
    return places


def _rows_of(equal: list[int], ordinals: list[int]) -> set[int]:
    """Which of n equal rows the ordinals belong to: ordinal o to the (o mod n)-th. Contract, section 4."""
    return {equal[ordinal % len(equal)] for ordinal in ordinals}


def _made_again(
    part: Part, missing: dict[bytes, list[int]], prompt_field: str, dataset: Path | None
) -> Iterator[bytes]:
    lost = 0
    for content, ordinals in missing.items():
        row = next((row for o in ordinals if (row := _from_record(part, content, o, prompt_field))), None)
        if row is None:
            lost += 1
        else:
            yield row
    if lost:
        rows, stand = ("1 row", "stands") if lost == 1 else (f"{lost} rows", "stand")
        gone = "the run's dataset is gone" if part.spec.get("dataset") else "no spec here names the dataset"
        where = f"{stand} in {dataset}" if dataset is not None else f"can be found ({gone})"
        raise UsageError(
            f"{rows} of what was chosen neither {where} nor can be made again from the records (a failed "
            "rollout has no record, and a record holds no image, cwd, setup or files of its row); name the "
            "dataset that holds them: --dataset FILE"
        )


def _from_record(part: Part, content: bytes, ordinal: int, prompt_field: str) -> bytes | None:
    """The row that a rollout's record was made of, or None when it does not hold all of it."""
    packed = content + ordinal.to_bytes(4, "big")
    text = read_text(part, find(part, packed)) if part.has_line(packed) else b""
    if not text:
        return None
    record = _decode(text)
    prompt = next((turn.value for turn in record.conversations if turn.speaker == "human"), "")
    if content_key(prompt) != content.hex():
        return None
    head = msgspec.json.encode({prompt_field: prompt})[:-1]
    rest = record.metadata.row.encode()[1:]
    return head + (b"" if rest.lstrip().startswith(b"}") else b",") + rest
