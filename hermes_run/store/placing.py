"""A trajectory line in another place: row, key and batch exchanged, everything else left as it is."""

from __future__ import annotations

import msgspec

from hermes_run.core.trajectory import ToolCount
from hermes_run.formats.record import decode_record

_BATCH = b'],"metadata":{"batch_num":'
"""Where the batch number stands in a line. No text of a turn can hold this: a quote is escaped there."""


class _Place(msgspec.Struct, frozen=True):
    prompt_index: int


_decode_place = msgspec.json.Decoder(_Place).decode


def placed(text: bytes, place: tuple[int | None, str, int], extra_tools: tuple[str, ...]) -> bytes:
    """A trajectory line with another (prompt index or None for its own, key, batch number).

    `extra_tools` are columns of the tool counts that it has to have, with zeros where they are new.
    """
    prompt_index, key, batch = place
    if prompt_index is None:
        prompt_index = _decode_place(text).prompt_index
    head = b'{"prompt_index":%d,"key":"%s",' % (prompt_index, key.encode())
    begin, number = text.find(b'"conversations":'), text.find(_BATCH)
    if begin < 0 or number < begin or extra_tools:
        return _placed_anew(text, (prompt_index, key, batch), extra_tools)
    number += len(_BATCH)
    return head + text[begin:number] + b"%d" % batch + text[text.index(b",", number) :]


def _placed_anew(text: bytes, place: tuple[int, str, int], extra_tools: tuple[str, ...]) -> bytes:
    record = decode_record(text)
    stats = dict.fromkeys(extra_tools, ToolCount())
    errors = dict.fromkeys(extra_tools, 0)
    return msgspec.json.encode(
        msgspec.structs.replace(
            record,
            prompt_index=place[0],
            key=place[1],
            metadata=msgspec.structs.replace(record.metadata, batch_num=place[2]),
            tool_stats=record.tool_stats | {n: c for n, c in stats.items() if n not in record.tool_stats},
            tool_error_counts=record.tool_error_counts
            | {n: c for n, c in errors.items() if n not in record.tool_error_counts},
        )
    )
