"""Filters: which kept trajectories are left out of the merged file. Contract, section 5."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hermes_run.core.messages import Assistant
from hermes_run.core.trajectory import Status, StopReason, Trajectory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_run.core.contracts import Filter

SCRATCHPAD = "<REASONING_SCRATCHPAD>"


class NoReasoning:
    """Discards a trajectory in which no assistant turn has reasoning.

    Native reasoning and a `<REASONING_SCRATCHPAD>` in the text both count. A trajectory without
    assistant turns is not judged: it says nothing about reasoning.
    """

    reason: ClassVar[str] = "no_reasoning"

    def discards(self, trajectory: Trajectory) -> bool:
        """Whether it has assistant turns, and none with reasoning."""
        turns = [m for m in trajectory.messages if isinstance(m, Assistant)]
        return bool(turns) and not any(has_reasoning(turn) for turn in turns)


class UnknownTool:
    """Discards a trajectory that called a tool it was not given."""

    reason: ClassVar[str] = "unknown_tool"

    def discards(self, trajectory: Trajectory) -> bool:
        """Whether it called an invented name."""
        return bool(trajectory.unknown_tools)


def has_reasoning(turn: Assistant) -> bool:
    """Whether an assistant turn shows reasoning."""
    return bool(turn.reasoning.strip()) or SCRATCHPAD in turn.text


def judge(trajectory: Trajectory, filters: Sequence[Filter]) -> tuple[Status, str]:
    """Status and reason of a kept trajectory. The first filter that discards it wins over all else."""
    for each in filters:
        if each.discards(trajectory):
            return Status.DISCARDED, each.reason
    if trajectory.stop_reason is StopReason.FINISHED:
        return Status.COMPLETED, StopReason.FINISHED.value
    return Status.PARTIAL, trajectory.stop_reason.value
