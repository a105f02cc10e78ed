"""When two trajectories are equal: the `hash` of a manifest entry. Contract, section 4.

The hash is xxh3_128 over the canonical JSON (`core.keys`) of the record without what scheduling and
the dataset decide: `key`, `prompt_index`, `metadata.batch_num`, `metadata.timestamp`, `metadata.row`,
`metadata.work`, `metadata.artifacts_left_out`, `metadata.served_calls`; without the zero entries of
`tool_stats` and `tool_error_counts`; and with every tool call id replaced by `call_<n>`, the call's place
among all calls (a result has its call's, also where a provider gave one id to several calls). Of the
artifacts their paths count and the digest of all of them, not the key in the name of their folder; where
there are none, the field is left out, as are a `usage.calls_estimated` of 0 and an empty `provider`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from hermes_run.core.keys import canonical_json, digest

if TYPE_CHECKING:
    from hermes_run.formats.record import TrajectoryRecord

_LEFT_OUT = ("key", "prompt_index")
_LEFT_OUT_METADATA = ("batch_num", "timestamp", "row", "work", "artifacts_left_out", "served_calls")


def content_hash(record: TrajectoryRecord | dict[str, Any]) -> str:
    """xxh3_128 (hex) of what a trajectory says, whoever ran it and whenever."""
    content: dict[str, Any] = msgspec.to_builtins(record)
    for name in _LEFT_OUT:
        content.pop(name, None)
    content["metadata"] = {
        name: value for name, value in content["metadata"].items() if name not in _LEFT_OUT_METADATA
    }
    artifacts = content["metadata"].pop("artifacts", None)
    if artifacts:
        content["metadata"]["artifacts"] = [path.partition(".")[2] for path in artifacts]
    if not content["metadata"].get("provider"):
        content["metadata"].pop("provider", None)
    if not content["metadata"]["usage"].get("calls_estimated"):
        content["metadata"]["usage"].pop("calls_estimated", None)
    content["tool_stats"] = {name: c for name, c in content["tool_stats"].items() if c["count"]}
    content["tool_error_counts"] = {name: n for name, n in content["tool_error_counts"].items() if n}
    number_calls(content["conversations"])
    return digest(canonical_json(content))


def number_calls(turns: list[dict[str, Any]]) -> None:
    """Replace ids by places, a result's by that of its call.

    Results are looked for among the calls of the turn before them: ids need not be unique beyond that.
    """
    count = 0
    waiting: list[tuple[str, str]] = []
    for turn in turns:
        if turn["tool_calls"]:
            waiting = []
        for call in turn["tool_calls"]:
            waiting.append((call["id"], f"call_{count}"))
            call["id"] = f"call_{count}"
            count += 1
        if turn["from"] == "tool":
            found = next((pair for pair in waiting if pair[0] == turn["tool_call_id"]), ("", ""))
            turn["tool_call_id"] = found[1]
            waiting = [pair for pair in waiting if pair is not found]
