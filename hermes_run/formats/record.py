"""The line of our own trajectory files, as types. Contract, section 5.

Every line has the same keys and types: what varies in shape (draws, a row's other columns) is one
JSON string, empty things are empty and never null, and `tool_stats` names every built-in tool with
zeros. So a table reader infers one schema, whatever the rows hold.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from hermes_run.core.messages import Usage
from hermes_run.core.trajectory import ToolCount


class CallRecord(Struct, frozen=True):
    """One tool call; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


class TurnRecord(Struct, frozen=True, rename={"speaker": "from"}):
    """One turn: `from` is system, human, gpt or tool."""

    speaker: str
    value: str
    reasoning: str = ""
    tool_calls: tuple[CallRecord, ...] = ()
    tool_call_id: str = ""
    name: str = ""


class MetadataRecord(Struct, frozen=True, kw_only=True):
    """What is known of a rollout beside its turns.

    `draw`, `limits_missing`, `unknown_tools`, `served_calls` and `row` are JSON texts: their shapes
    differ from row to row. `artifacts` are paths in the run directory. `row` stands last, so that a merge
    can exchange it without reading the rest.
    """

    batch_num: int
    timestamp: str
    model: str
    served_model: str
    stop_reason: str
    work: str
    usage: Usage
    draw: str
    backend: str
    limits_missing: str
    image_digest: str
    unknown_tools: str
    artifacts: tuple[str, ...] = ()
    artifacts_left_out: str = ""
    provider: str = ""
    served_calls: str = "[]"
    row: str


class TrajectoryRecord(Struct, frozen=True):
    """One line."""

    prompt_index: int
    key: str
    conversations: tuple[TurnRecord, ...]
    metadata: MetadataRecord
    completed: bool
    partial: bool
    api_calls: int
    toolsets_used: tuple[str, ...]
    tool_stats: dict[str, ToolCount]
    tool_error_counts: dict[str, int]


_decode = msgspec.json.Decoder(TrajectoryRecord).decode


def decode_record(line: bytes) -> TrajectoryRecord:
    """The record of a line. Raises ValueError (msgspec's included) when it is none."""
    try:
        return _decode(line)
    except RecursionError:
        raise ValueError("it is nested too deeply to be a trajectory") from None
