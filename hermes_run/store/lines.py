"""From a trajectory or a failure to the bytes and entries that are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hermes_run.core.messages import Assistant
from hermes_run.formats.equality import content_hash
from hermes_run.formats.record import TrajectoryRecord, decode_record
from hermes_run.formats.sharegpt import from_record
from hermes_run.quality.filters import judge
from hermes_run.store.batches import line_hash
from hermes_run.store.entry import ADOPTED, JournalLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.core.contracts import Filter
    from hermes_run.core.trajectory import Outcome, Trajectory
    from hermes_run.formats.sharegpt import ShareGPT

encode_record = msgspec.json.Encoder().encode


def failed_line(outcome: Outcome) -> JournalLine:
    """The journal line of an outcome without a trajectory."""
    return JournalLine(
        key=outcome.key,
        status=outcome.status.value,
        reason=outcome.reason,
        hash="",
        work=outcome.work,
        toolsets=outcome.toolsets,
        turns=0,
        api_calls=outcome.api_calls,
        usage=outcome.usage,
        cost=outcome.usage.known_cost,
        model=outcome.served_model,
        image_digest=outcome.image_digest,
        error=outcome.error,
        batch=outcome.batch,
        offset=0,
        length=0,
        line_hash="",
        finished_at=outcome.finished_at,
        duration_s=outcome.duration_s,
    )


def kept_line(outcome: Outcome, trajectory: Trajectory, form: ShareGPT) -> tuple[bytes, JournalLine]:
    """The trajectory line of an outcome, and its journal line (its offset still 0)."""
    record = form.to_record(trajectory)
    line = encode_record(record)
    entry = _entry(trajectory, record, line)
    return line, msgspec.structs.replace(
        entry,
        status=outcome.status.value,
        reason=outcome.reason,
        finished_at=outcome.finished_at,
        duration_s=outcome.duration_s,
    )


def adopted_line(
    line: bytes, batch: int, offset: int, filters: Sequence[Filter]
) -> tuple[Trajectory, JournalLine]:
    """The trajectory and the journal line of a line found without an entry, judged.

    Raises ValueError (msgspec's included) when the line is no trajectory.
    """
    record = decode_record(line)
    trajectory = from_record(record)
    status, reason = judge(trajectory, filters)
    entry = _entry(trajectory, record, line)
    return trajectory, msgspec.structs.replace(
        entry,
        status=status.value,
        reason=reason,
        batch=batch,
        offset=offset,
        finished_at=trajectory.timestamp,
        duration_s=None,
        source=ADOPTED,
    )


def _entry(trajectory: Trajectory, record: TrajectoryRecord, line: bytes) -> JournalLine:
    return JournalLine(
        key=trajectory.key,
        status="",
        reason="",
        hash=content_hash(record),
        work=trajectory.work,
        toolsets=trajectory.toolsets,
        turns=sum(isinstance(message, Assistant) for message in trajectory.messages),
        api_calls=trajectory.api_calls,
        usage=trajectory.usage,
        cost=trajectory.usage.known_cost,
        model=trajectory.served_model,
        image_digest=trajectory.image_digest,
        error="",
        batch=trajectory.batch,
        offset=0,
        length=len(line),
        line_hash=line_hash(line),
        finished_at="",
        duration_s=None,
    )
