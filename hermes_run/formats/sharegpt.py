"""Our own format: ShareGPT-style turns with tool calls as fields. Lossless."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from hermes_run.core.messages import Assistant, Message, System, ToolCall, ToolResult, User
from hermes_run.core.registry import TOOLS
from hermes_run.core.trajectory import StopReason, ToolCount, Trajectory
from hermes_run.formats.record import CallRecord, MetadataRecord, TrajectoryRecord, TurnRecord, decode_record

if TYPE_CHECKING:
    from collections.abc import Sequence

_encode = msgspec.json.Encoder().encode


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _turn(message: Message) -> TurnRecord:
    match message:
        case System(text):
            return TurnRecord("system", text)
        case User(text):
            return TurnRecord("human", text)
        case Assistant(text, reasoning, calls):
            return TurnRecord(
                "gpt", text, reasoning, tuple(CallRecord(c.id, c.name, c.arguments) for c in calls)
            )
        case ToolResult(call_id, name, text):
            return TurnRecord("tool", text, "", (), call_id, name)


def _message(turn: TurnRecord) -> Message:
    match turn.speaker:
        case "system":
            return System(turn.value)
        case "human":
            return User(turn.value)
        case "gpt":
            calls = tuple(ToolCall(c.id, c.name, c.arguments) for c in turn.tool_calls)
            return Assistant(turn.value, turn.reasoning, calls)
        case "tool":
            return ToolResult(turn.tool_call_id, turn.name, turn.value)
        case other:
            raise ValueError(f"a turn cannot be from {other!r}")


class ShareGPT:
    """Trajectory <-> the lines of batch files and trajectories.jsonl.

    `extra_tools` are the run's own and MCP tools: further columns of `tool_stats`, in the same order
    in every line.
    """

    lossless: ClassVar[bool] = True

    def __init__(self, extra_tools: Sequence[str] = ()) -> None:
        names = (*TOOLS, *(name for name in extra_tools if name not in TOOLS))
        self._zero_stats = dict.fromkeys(names, ToolCount())
        self._zero_errors = dict.fromkeys(names, 0)

    def to_record(self, trajectory: Trajectory) -> TrajectoryRecord:
        """The line as a value. Raises ValueError for a tool count without a column."""
        counts = trajectory.tool_counts
        homeless = [name for name in counts if name not in self._zero_stats]
        if homeless:
            raise ValueError(f"tool counts without a column: {', '.join(homeless)}")
        finished = trajectory.stop_reason is StopReason.FINISHED
        return TrajectoryRecord(
            prompt_index=trajectory.prompt_index,
            key=trajectory.key,
            conversations=tuple(map(_turn, trajectory.messages)),
            metadata=MetadataRecord(
                batch_num=trajectory.batch,
                timestamp=trajectory.timestamp,
                model=trajectory.model,
                served_model=trajectory.served_model,
                stop_reason=trajectory.stop_reason.value,
                work=trajectory.work,
                usage=trajectory.usage,
                draw=_json({name: float(percent) for name, percent in trajectory.draw.items()}),
                backend=trajectory.backend,
                limits_missing=_json(trajectory.limits_missing),
                image_digest=trajectory.image_digest,
                unknown_tools=_json(trajectory.unknown_tools),
                artifacts=trajectory.artifacts,
                artifacts_left_out=trajectory.artifacts_left_out,
                provider=trajectory.provider,
                served_calls=_json(trajectory.served_calls),
                row=trajectory.row,
            ),
            completed=finished,
            partial=not finished,
            api_calls=trajectory.api_calls,
            toolsets_used=trajectory.toolsets,
            tool_stats=self._zero_stats | counts,
            tool_error_counts=self._zero_errors | {name: count.failure for name, count in counts.items()},
        )

    def encode(self, trajectory: Trajectory) -> bytes:
        """One line without its newline."""
        return _encode(self.to_record(trajectory))

    def decode(self, line: bytes) -> Trajectory:
        """The trajectory of a line. Raises ValueError (msgspec's included) when it is none."""
        return from_record(decode_record(line))


def from_record(record: TrajectoryRecord) -> Trajectory:
    """The trajectory that a record was made of. Raises ValueError for values that make none."""
    about = record.metadata
    return Trajectory(
        key=record.key,
        prompt_index=record.prompt_index,
        messages=tuple(map(_message, record.conversations)),
        stop_reason=StopReason(about.stop_reason),
        api_calls=record.api_calls,
        toolsets=record.toolsets_used,
        tool_counts={name: count for name, count in record.tool_stats.items() if count.count},
        unknown_tools=msgspec.json.decode(about.unknown_tools, type=tuple[str, ...]),
        usage=about.usage,
        model=about.model,
        served_model=about.served_model,
        draw=msgspec.json.decode(about.draw, type=dict[str, float]),
        work=about.work,
        backend=about.backend,
        limits_missing=msgspec.json.decode(about.limits_missing, type=tuple[str, ...]),
        image_digest=about.image_digest,
        artifacts=about.artifacts,
        artifacts_left_out=about.artifacts_left_out,
        provider=about.provider,
        served_calls=msgspec.json.decode(about.served_calls, type=tuple[tuple[str, str, int], ...]),
        row=about.row,
        batch=about.batch_num,
        timestamp=about.timestamp,
    )
