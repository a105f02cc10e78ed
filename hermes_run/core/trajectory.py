"""The record of a rollout, and what became of it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from hermes_run.core.artifacts import Artifact
from hermes_run.core.messages import Message, Usage


class Status(StrEnum):
    """What a rollout came to. Contract, section 5."""

    COMPLETED = "completed"
    PARTIAL = "partial"
    DISCARDED = "discarded"
    FAILED = "failed"


class StopReason(StrEnum):
    """Why the turn loop ended. `finished` is the only complete one."""

    FINISHED = "finished"
    MAX_TURNS = "max_turns"
    CONTEXT = "context"
    PROMPT_TIMEOUT = "prompt_timeout"
    PROMPT_BUDGET = "prompt_budget"
    TRUNCATED = "truncated"
    INVALID_TOOL_CALLS = "invalid_tool_calls"


FAILED_REASONS = (
    "provider_error",
    "malformed_call",
    "empty_reply",
    "filtered",
    "sandbox_start",
    "sandbox_lost",
    "image",
    "internal",
)
DISCARDED_REASONS = ("no_reasoning", "unknown_tool")


class ToolCount(Struct, frozen=True):
    """How often a tool was called, and how often it said that it failed."""

    count: int = 0
    success: int = 0
    failure: int = 0

    def __add__(self, other: ToolCount) -> ToolCount:
        return ToolCount(self.count + other.count, self.success + other.success, self.failure + other.failure)


class Trajectory(Struct, frozen=True):
    """What happened in one rollout, as far as it is kept.

    Attributes:
        key: rollout key.
        prompt_index: place of the row in the dataset.
        messages: the saved turns; ephemeral prompts and prefill are not among them.
        stop_reason: why it ended.
        api_calls: model replies received.
        toolsets: toolsets really offered, sorted.
        tool_counts: calls by tool name, only tools that were called; known names only.
        unknown_tools: invented names that were called, in order, each once.
        usage: tokens and cost, billed retries included.
        model: the model asked for.
        served_model: the model or models that answered, sorted, joined by a comma.
        provider: who served it, where the replies told; likewise.
        served_calls: (model, provider, calls in a row), in the order of the calls.
        draw: the toolset percentages that were drawn with.
        work: work fingerprint of the spec.
        backend: sandbox backend.
        limits_missing: what the backend could not isolate or limit, sorted.
        image_digest: resolved digest of the sandbox image, or "".
        artifacts: paths of the files kept beside it, in the run directory, sorted.
        artifacts_left_out: why some that were asked for are not there, or "".
        row: the other columns of the row as one JSON string.
        batch: number of the batch file.
        timestamp: when it ended, ISO 8601, UTC, seconds.
    """

    key: str
    prompt_index: int
    messages: tuple[Message, ...]
    stop_reason: StopReason
    api_calls: int
    toolsets: tuple[str, ...]
    tool_counts: dict[str, ToolCount]
    unknown_tools: tuple[str, ...]
    usage: Usage
    model: str
    served_model: str
    draw: dict[str, float]
    work: str
    backend: str
    limits_missing: tuple[str, ...] = ()
    image_digest: str = ""
    artifacts: tuple[str, ...] = ()
    artifacts_left_out: str = ""
    provider: str = ""
    served_calls: tuple[tuple[str, str, int], ...] = ()
    row: str = "{}"
    batch: int = 0
    timestamp: str = ""


class Outcome(Struct, frozen=True):
    """What one rollout came to. The driver writes it down; nothing else does.

    A `trajectory` is there for completed, partial and discarded, and never for failed, which has
    `error` instead: one line, without ids, ports, times or temporary paths. `artifacts` are the files
    that its trajectory names, under their paths in the run directory.
    """

    key: str
    prompt_index: int
    batch: int
    status: Status
    reason: str
    duration_s: float
    finished_at: str
    work: str
    trajectory: Trajectory | None = None
    error: str = ""
    usage: Usage = Usage()
    toolsets: tuple[str, ...] = ()
    api_calls: int = 0
    served_model: str = ""
    image_digest: str = ""
    artifacts: tuple[Artifact, ...] = ()
