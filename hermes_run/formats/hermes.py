"""The form of hermes-agent's batch runner: conversations of `{from, value}` with tags in the values.

Not lossless. Written, it has no place for: rollout key, work fingerprint, stop reason (only completed
or not), usage and cost, served model, draw, backend, image digest, the row's other columns, ids of
calls without a result. Texts that themselves hold its tags are read as such. Read, a trajectory has the
key of its prompt alone, unknown usage, and for `work` the word `imported`.
"""

from __future__ import annotations

import json
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard

import msgspec

from hermes_run.core.keys import content_key, rollout_key
from hermes_run.core.messages import Assistant, Message, System, ToolCall, ToolResult, Usage, User
from hermes_run.core.registry import TOOLS
from hermes_run.core.text import clean
from hermes_run.core.trajectory import StopReason, ToolCount, Trajectory
from hermes_run.formats import signatures
from hermes_run.formats.tagged import read_results, read_turn, write_results, write_turn

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from hermes_run.core.contracts import ToolSpec

IMPORTED = "imported"
"""`work` of what was not run here: it has no fingerprint, and is no spec change."""

_SPEAKERS = {"system", "human", "user", "gpt", "assistant", "tool"}

_encode = msgspec.json.Encoder().encode


class Hermes:
    """Trajectory <-> the predecessor's line.

    Args:
        extra_tools: the run's own and MCP tools: further columns of `tool_stats`.
        tools: schemas of the tools that a rollout may have been offered, for the system turn; without
            them it holds names alone.
        other_tools: names that are no invention although no tool of ours has them: they are never
            `unknown_tools`.
    """

    lossless: ClassVar[bool] = False

    def __init__(
        self,
        extra_tools: Sequence[str] = (),
        *,
        tools: Sequence[ToolSpec] = (),
        other_tools: Collection[str] = (),
    ) -> None:
        self._columns = (*TOOLS, *(name for name in extra_tools if name not in TOOLS))
        self._tools = tuple(tools)
        self._known = {*self._columns, *other_tools}

    def encode(self, trajectory: Trajectory) -> bytes:
        """One line without its newline. Raises ValueError for a tool count without a column."""
        counts = trajectory.tool_counts
        homeless = [name for name in counts if name not in self._columns]
        if homeless:
            raise ValueError(f"tool counts without a column: {', '.join(homeless)}")
        is_finished = trajectory.stop_reason is StopReason.FINISHED
        return _encode(
            {
                "prompt_index": trajectory.prompt_index,
                "conversations": self._turns(trajectory),
                "metadata": {
                    "batch_num": trajectory.batch,
                    "timestamp": trajectory.timestamp,
                    "model": trajectory.model,
                },
                "completed": is_finished,
                "partial": not is_finished,
                "api_calls": trajectory.api_calls,
                "toolsets_used": trajectory.toolsets,
                "tool_stats": {name: counts.get(name, ToolCount()) for name in self._columns},
                "tool_error_counts": {name: counts.get(name, ToolCount()).failure for name in self._columns},
            }
        )

    def _turns(self, trajectory: Trajectory) -> list[dict[str, str]]:
        messages: list[Message] = list(trajectory.messages)
        prompt = messages.pop(0).text if messages and isinstance(messages[0], System) else ""
        offered = signatures.offered(trajectory.toolsets, self._tools)
        turns = [{"from": "system", "value": signatures.write(prompt, offered)}]
        while messages:
            message = messages.pop(0)
            match message:
                case Assistant():
                    turns.append({"from": "gpt", "value": write_turn(message)})
                case ToolResult():
                    results = [message, *(m for m in takewhile(_is_result, messages) if _is_result(m))]
                    del messages[: len(results) - 1]
                    turns.append({"from": "tool", "value": write_results(results)})
                case System(text):
                    turns.append({"from": "system", "value": text})
                case User(text):
                    turns.append({"from": "human", "value": text})
        return turns

    def decode(self, line: bytes) -> Trajectory:
        """The trajectory of a line. Raises ValueError when it is none."""
        try:
            record = json.loads(line)
        except RecursionError:
            raise ValueError("it is nested too deeply to be a trajectory") from None
        return self.from_record(record)

    def from_record(self, record: Any) -> Trajectory:
        """The trajectory of a line's value. Raises ValueError when it is none."""
        turns = turns_of(record)
        messages = _messages(turns)
        prompt = next((message.text for message in messages if isinstance(message, User)), None)
        if prompt is None:
            raise ValueError("it has no human turn")
        about = record.get("metadata")
        about = about if isinstance(about, dict) else {}
        api_calls = _count(record.get("api_calls"))
        calls = max(api_calls, sum(isinstance(message, Assistant) for message in messages), 1)
        stats = stats_of(record)
        toolsets = record.get("toolsets_used")
        return Trajectory(
            key=rollout_key(content_key(prompt), 0),
            prompt_index=_count(record.get("prompt_index")),
            messages=messages,
            stop_reason=_stop_reason(record, messages),
            api_calls=api_calls,
            toolsets=tuple(sorted({_text(name) for name in toolsets})) if isinstance(toolsets, list) else (),
            tool_counts={name: count for name, count in stats.items() if name in self._columns},
            unknown_tools=self._unknown(messages, stats, turns),
            usage=Usage(calls=calls, calls_without_usage=calls, calls_without_cost=calls),
            model=_text(about.get("model")),
            served_model="",
            draw={},
            work=IMPORTED,
            backend="",
            batch=_count(about.get("batch_num")),
            timestamp=_text(about.get("timestamp")),
        )

    def _unknown(
        self, messages: Iterable[Message], stats: dict[str, ToolCount], turns: list[tuple[str, str]]
    ) -> tuple[str, ...]:
        """Names that were called and that nobody knows, as they came."""
        given = {name for speaker, value in turns if speaker == "system" for name in signatures.read(value)}
        called = [call.name for each in messages if isinstance(each, Assistant) for call in each.tool_calls]
        names = dict.fromkeys([*called, *stats])
        return tuple(name for name in names if name not in self._known and name not in given)


def _is_result(message: Message) -> TypeGuard[ToolResult]:
    return isinstance(message, ToolResult)


def turns_of(record: Any) -> list[tuple[str, str]]:
    """(speaker, value) of every turn of a line's value. Raises ValueError when it has none."""
    turns = record.get("conversations") if isinstance(record, dict) else None
    found = []
    for turn in turns if isinstance(turns, list) else [None]:
        speaker, value = (turn.get("from"), turn.get("value")) if isinstance(turn, dict) else (None, None)
        if speaker not in _SPEAKERS or not isinstance(value, str):
            raise ValueError(f"a turn is no {{from, value}} of somebody known: {str(turn)[:60]}")
        found.append((str(speaker), clean(value)))
    return found


def _messages(turns: list[tuple[str, str]]) -> tuple[Message, ...]:
    messages: list[Message] = []
    place = 0
    while place < len(turns):
        speaker, value = turns[place]
        place += 1
        if speaker == "system":
            text = signatures.rest(value)
            messages += [System(text)] if text else []
        elif speaker in ("human", "user"):
            messages.append(User(value))
        else:
            results: list[ToolResult] = list(read_results(value)) if speaker == "tool" else []
            while place < len(turns) and turns[place][0] == "tool":
                results += read_results(turns[place][1])
                place += 1
            if speaker == "tool":
                messages += results
                continue
            reasoning, text, calls = read_turn(value, len(results))
            so_far = sum(len(m.tool_calls) for m in messages if isinstance(m, Assistant))
            answered, paired = _pair(list(calls), results, so_far)
            messages += [Assistant(text, reasoning, answered), *paired]
    return tuple(messages)


def _pair(
    calls: list[ToolCall], results: list[ToolResult], first: int
) -> tuple[tuple[ToolCall, ...], list[ToolResult]]:
    """Calls and results with common ids: by id, else by name, else in order.

    Calls are written without ids: each takes its result's, or `call_<n>`. Results beyond the calls are
    kept with their own.
    """
    owner: dict[int, int] = {}

    def give(is_answer: Any) -> None:
        for place, result in enumerate(results):
            free = (n for n in range(len(calls)) if n not in owner.values())
            if place not in owner and (n := next((n for n in free if is_answer(calls[n], result)), -1)) >= 0:
                owner[place] = n

    give(lambda call, result: call.id and call.id == result.call_id)
    give(lambda call, result: call.name == result.name)
    give(lambda _call, _result: True)
    place_of = {n: place for place, n in owner.items()}
    used: set[str] = set()
    for n, call in enumerate(calls):
        own = results[place_of[n]].call_id if n in place_of else ""
        found = next((name for name in (own, call.id) if name and name not in used), f"call_{first + n}")
        used.add(found)
        calls[n] = ToolCall(found, call.name, call.arguments)
    for place, n in owner.items():
        result = results[place]
        results[place] = ToolResult(calls[n].id, result.name or calls[n].name, result.text)
    return tuple(calls), results


def _stop_reason(record: dict[str, Any], messages: Sequence[Message]) -> StopReason:
    """There, `partial` is set for invalid calls only, and nothing when the turns were used up."""
    completed, partial = record.get("completed"), record.get("partial")
    if partial is True:
        return StopReason.INVALID_TOOL_CALLS
    if completed is None and partial is None:
        last = messages[-1]
        completed = isinstance(last, Assistant) and not last.tool_calls
    return StopReason.FINISHED if completed is True else StopReason.MAX_TURNS


def stats_of(record: dict[str, Any]) -> dict[str, ToolCount]:
    """The counts of the tools that were called, whoever's they are."""
    found, value = {}, record.get("tool_stats")
    for name, counts in value.items() if isinstance(value, dict) else ():
        if isinstance(counts, dict) and _count(counts.get("count")):
            numbers = (_count(counts.get(part)) for part in ("count", "success", "failure"))
            found[clean(name)] = ToolCount(*numbers)
    return found


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else 0


def _text(value: Any) -> str:
    return clean(value) if isinstance(value, str) else "" if value is None else clean(str(value))
