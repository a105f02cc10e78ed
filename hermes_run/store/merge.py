"""From the store to the merged file and the statistics: one pass over the plan. Contract, section 5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from hermes_run.core.trajectory import Status
from hermes_run.quality.statistics import RecordGlance, Statistics, glance
from hermes_run.store import layout
from hermes_run.store.batches import BatchReader, batch_path
from hermes_run.store.disk import replacing
from hermes_run.store.entry import JournalLine
from hermes_run.store.placing import placed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hermes_run.store.journal import JournalView

MERGED = (Status.COMPLETED.value, Status.PARTIAL.value)

_encode = msgspec.json.Encoder().encode


class Planned(Struct, frozen=True):
    """A planned rollout as the merge needs it: packed key, and what the current dataset says."""

    key: bytes
    prompt_index: int
    row: str


class Merged(Struct):
    """What a merge found: the statistics, and entries whose line is damaged."""

    statistics: Statistics
    lost: list[JournalLine] = []
    warnings: list[str] = []


class _Line(Struct, frozen=True):
    """A trajectory line with all but what a merge exchanges left undecoded."""

    prompt_index: int
    key: str
    conversations: msgspec.Raw
    metadata: dict[str, msgspec.Raw]
    completed: bool
    partial: bool
    api_calls: int
    toolsets_used: msgspec.Raw
    tool_stats: msgspec.Raw
    tool_error_counts: msgspec.Raw


class _Batch(Struct, frozen=True):
    batch_num: int


class _InBatch(Struct, frozen=True):
    metadata: _Batch


_decode_batch = msgspec.json.Decoder(_InBatch).decode
_decode_line = msgspec.json.Decoder(_Line).decode


def with_row(line: bytes, prompt_index: int, row: str) -> bytes:
    """The line with the place and the other columns that its row has in the current dataset."""
    head = b'{"prompt_index":%d,' % prompt_index
    tail = b',"row":' + _encode(row) + b'},"completed":'
    if line.startswith(head) and tail in line:
        return line
    parts = _decode_line(line)
    metadata = parts.metadata | {"row": msgspec.Raw(_encode(row))}
    return _encode(msgspec.structs.replace(parts, prompt_index=prompt_index, metadata=metadata))


def _widened(line: bytes, extra_tools: tuple[str, ...]) -> bytes:
    """The line with zeros for tools that were not yet there when it was written."""
    if all(b'"%b":{"count":' % name.encode() in line for name in extra_tools):
        return line
    parts = _decode_line(line)
    return placed(line, (None, parts.key, _decode_batch(line).metadata.batch_num), extra_tools)


def merge(
    folder: Path, journal: JournalView, planned: Iterable[Planned], extra_tools: tuple[str, ...] = ()
) -> Merged:
    """Write trajectories.jsonl (completed and partial, dataset order), verifying every line.

    `extra_tools` are columns of the tool counts beyond the built-in ones, which every line gets.
    An entry whose line fails its hash is left out, and returned in `lost`.
    """
    merged = Merged(Statistics())
    with BatchReader(folder) as reader, replacing(folder / layout.TRAJECTORIES) as write:
        for each in planned:
            entry = journal.find(each.key)
            if entry is None:
                continue
            record: RecordGlance | None = None
            if entry.length:
                line = reader.read(entry)
                if line is None:
                    merged.lost.append(entry)
                    continue
                record = glance(line)
                if entry.status in MERGED:
                    write(with_row(_widened(line, extra_tools), each.prompt_index, each.row) + b"\n")
            count(merged.statistics, entry, record)
    for name in sorted({batch_path(folder, entry.batch).name for entry in merged.lost}):
        merged.warnings.append(f"{folder / name}: damaged lines; their prompts are pending again")
    return merged


def count(statistics: Statistics, entry: JournalLine, record: RecordGlance | None) -> None:
    """Add one rollout of the plan to the statistics."""
    statistics.count_entry(entry)
    if record is not None:
        statistics.count_record(record)


def statistics_json(content: dict[str, Any]) -> bytes:
    """statistics.json: one object, indented, keys in the order given."""
    return msgspec.json.format(_encode(content), indent=2) + b"\n"
