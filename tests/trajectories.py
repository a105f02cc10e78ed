"""Trajectories of every kind, for property tests and contract suites."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from hermes_run.core.messages import Assistant, Message, System, ToolCall, ToolResult, Usage, User
from hermes_run.core.registry import TOOLS
from hermes_run.core.text import clean
from hermes_run.core.trajectory import StopReason, ToolCount, Trajectory
from hermes_run.quality.filters import SCRATCHPAD

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXTS = (
    st.text(st.characters(codec=None), max_size=12) | st.just(f"{SCRATCHPAD}why</REASONING_SCRATCHPAD>")
).map(clean)
NAMES = st.sampled_from([*TOOLS]) | TEXTS.filter(bool)
COUNTS = st.integers(0, 2**53)
COSTS = st.integers(0, 10**12).map(lambda units: round(units / 10**10, 10))
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COSTS, COUNTS, COUNTS, COUNTS)
PERCENTS = st.dictionaries(TEXTS, st.floats(0, 100), max_size=4)
HEX = st.binary(min_size=16, max_size=16).map(bytes.hex)
KEYS = st.tuples(HEX, st.integers(0, 2**32 - 1)).map(lambda pair: f"{pair[0]}#{pair[1]}")
JSON_OBJECTS = st.dictionaries(
    TEXTS, st.none() | st.booleans() | st.integers() | TEXTS | st.lists(TEXTS), max_size=4
)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """A system turn or none, a prompt, and assistant turns whose calls are answered once, in order."""
    messages: list[Message] = [System(draw(TEXTS))] if draw(st.booleans()) else []
    messages.append(User(draw(TEXTS)))
    for turn in range(draw(st.integers(0, 3))):
        named = draw(st.lists(st.tuples(NAMES, TEXTS), max_size=3))
        calls = tuple(
            ToolCall(f"c{turn}.{place}", name, arguments) for place, (name, arguments) in enumerate(named)
        )
        messages.append(Assistant(draw(TEXTS), draw(st.just("") | TEXTS), calls))
        messages += [ToolResult(call.id, call.name, draw(TEXTS)) for call in calls]
    return tuple(messages)


def tool_counts(names: Sequence[str] = tuple(TOOLS)) -> st.SearchStrategy[dict[str, ToolCount]]:
    """Counts of tools that were called."""
    some = st.tuples(st.integers(1, 99), st.integers(0, 99)).map(
        lambda pair: ToolCount(sum(pair), pair[0], pair[1])
    )
    return st.dictionaries(st.sampled_from([*names]), some, max_size=4)


def trajectories(**fixed: Any) -> st.SearchStrategy[Trajectory]:
    """Any trajectory that the turn loop could leave, with some fields given."""
    fields: dict[str, st.SearchStrategy[Any]] = {
        "key": KEYS,
        "prompt_index": st.integers(0, 2**40),
        "messages": conversations(),
        "stop_reason": st.sampled_from(StopReason),
        "api_calls": COUNTS,
        "toolsets": st.lists(TEXTS, max_size=3).map(tuple),
        "tool_counts": tool_counts(),
        "unknown_tools": st.lists(TEXTS, max_size=2).map(tuple),
        "usage": USAGES,
        "model": TEXTS,
        "served_model": TEXTS,
        "draw": PERCENTS,
        "work": HEX,
        "backend": st.sampled_from(["local", "bubblewrap"]),
        "limits_missing": st.lists(st.sampled_from(["cpus", "memory"]), max_size=2).map(tuple),
        "image_digest": st.just("") | HEX.map("sha256:{}".format),
        "artifacts": st.just(()) | HEX.map(lambda h: (f"artifacts/{h}-0.{h[:16]}/workspace/a.txt",)),
        "provider": TEXTS,
        "served_calls": st.lists(st.tuples(TEXTS, TEXTS, st.integers(1, 9)), max_size=2).map(tuple),
        "artifacts_left_out": st.just("") | st.just("the sandbox was gone"),
        "row": JSON_OBJECTS.map(json.dumps),
        "batch": st.integers(0, 10**6),
        "timestamp": st.datetimes().map(lambda moment: moment.isoformat(timespec="seconds")),
    }
    return st.builds(Trajectory, **(fields | fixed))


def example(**changes: Any) -> Trajectory:
    """One ordinary trajectory: a call that worked, one that failed, an answer."""
    fields: dict[str, Any] = {
        "key": "790c0db829322dcaaa43cbac0fe1eac1#0",
        "prompt_index": 7,
        "messages": (
            User("count the files"),
            Assistant(
                "",
                "I will look.",
                (ToolCall("a1", "terminal", '{"command": "ls"}'), ToolCall("a2", "todo", "{}")),
            ),
            ToolResult("a1", "terminal", '{"output": "a b", "exit_code": 0, "error": null}'),
            ToolResult("a2", "todo", '{"error": "todos is missing"}'),
            Assistant("Two: a, b."),
        ),
        "stop_reason": StopReason.FINISHED,
        "api_calls": 2,
        "toolsets": ("terminal", "todo"),
        "tool_counts": {"terminal": ToolCount(1, 1, 0), "todo": ToolCount(1, 0, 1)},
        "unknown_tools": (),
        "usage": Usage(110, 20, 130, 64, 12, 0.0042, 2, 0, 0),
        "model": "some/model",
        "served_model": "some/model-2026",
        "draw": {"terminal": 100.0, "todo": 33.5},
        "work": "0123456789abcdef0123456789abcdef",
        "backend": "bubblewrap",
        "limits_missing": ("memory",),
        "image_digest": "",
        "row": '{"difficulty":"hard"}',
        "batch": 3,
        "timestamp": "2026-11-30T08:15:00",
    }
    return Trajectory(**(fields | changes))
