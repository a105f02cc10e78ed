"""Statistics are a fold: parts add up to the whole, whatever the order or the interruptions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from hermes_run.core.messages import Assistant, Usage, User
from hermes_run.core.trajectory import DISCARDED_REASONS, FAILED_REASONS, Status, StopReason, ToolCount
from hermes_run.formats.sharegpt import ShareGPT
from hermes_run.quality.filters import has_reasoning
from hermes_run.quality.statistics import Statistics, describe, glance, spent, tool_table
from hermes_run.spec.schema import load_schema
from hermes_run.store.entry import Entry
from hermes_run.store.merge import statistics_json
from tests.trajectories import USAGES, example, trajectories

if TYPE_CHECKING:
    from hermes_run.core.trajectory import Trajectory

ENTRIES = st.builds(
    Entry,
    key=st.just(""),
    status=st.sampled_from([status.value for status in Status]),
    reason=st.sampled_from([*(reason.value for reason in StopReason), *DISCARDED_REASONS, *FAILED_REASONS]),
    hash=st.just(""),
    work=st.sampled_from(["a" * 32, "b" * 32]),
    toolsets=st.just(()),
    turns=st.integers(0, 99),
    api_calls=st.integers(0, 99),
    usage=USAGES,
    cost=st.none() | st.floats(0, 1000) | st.integers(0, 5),
    model=st.sampled_from(["", "m", "n"]),
    image_digest=st.just(""),
    error=st.just(""),
)
LINES = st.none() | trajectories().map(ShareGPT().encode) | trajectories().map(ShareGPT(["own"]).encode)
PARTS = st.lists(st.tuples(ENTRIES, LINES), max_size=4)


def fold(parts: list[tuple[Entry, bytes | None]]) -> Statistics:
    statistics = Statistics()
    for entry, line in parts:
        statistics.count_entry(entry)
        if line is not None:
            statistics.count_record(glance(line))
    return statistics


def entry(**changes: Any) -> Entry:
    fields: dict[str, Any] = {
        "key": "0" * 32 + "#0",
        "status": "completed",
        "reason": "finished",
        "hash": "",
        "work": "a" * 32,
        "toolsets": (),
        "turns": 2,
        "api_calls": 3,
        "usage": Usage(100, 10, 110, 5, 2, 0.5, 3),
        "cost": 0.5,
        "model": "m",
        "image_digest": "",
        "error": "",
    }
    return Entry(**(fields | changes))


def described(
    parts: list[tuple[Entry, bytes | None]], *, total: int | None = None, invalid: int = 0
) -> dict[str, Any]:
    return describe(fold(parts), total=len(parts) + invalid if total is None else total, invalid=invalid)


# ------------------------------------------------------------------ the laws


@given(PARTS, PARTS)
def test_statistics_of_a_whole_are_the_sum_of_those_of_its_parts(a: list[Any], b: list[Any]) -> None:
    assert fold(a + b) == fold(a) + fold(b)
    assert describe(fold(a + b), total=99, invalid=0) == describe(fold(a) + fold(b), total=99, invalid=0)


@given(PARTS, PARTS, PARTS)
def test_sums_hang_neither_on_order_nor_on_grouping(a: list[Any], b: list[Any], c: list[Any]) -> None:
    one, other, third = fold(a), fold(b), fold(c)
    assert one + other == other + one
    assert (one + other) + third == one + (other + third)
    assert one + Statistics() == Statistics() + one == one
    assert fold(a) == one, "adding changes neither side"
    assert statistics_json(describe(fold(a + b), total=99, invalid=0)) == statistics_json(
        describe(fold(b + a), total=99, invalid=0)
    )


@given(st.lists(USAGES, max_size=5))
def test_usages_are_summed(usages: list[Usage]) -> None:
    total = sum(usages, Usage())
    assert total.prompt_tokens == sum(usage.prompt_tokens for usage in usages)
    assert total == sum(reversed(usages), Usage())


# ------------------------------------------------------------------ what is counted


@given(trajectories())
def test_a_glance_at_a_line_sees_the_same_as_a_look_at_the_trajectory(trajectory: Trajectory) -> None:
    statistics = fold([(entry(), ShareGPT().encode(trajectory))])
    turns = [message for message in trajectory.messages if isinstance(message, Assistant)]
    assert statistics.assistant_turns == len(turns)
    assert statistics.reasoned_turns == sum(map(has_reasoning, turns))
    counted = {name: count for name, count in statistics.tools.items() if count.count}
    assert counted == trajectory.tool_counts


def test_a_scratchpad_is_seen_however_json_spells_it() -> None:
    """A line that another program has written again is still the same record."""
    turn = Assistant("<REASONING_SCRATCHPAD>why</REASONING_SCRATCHPAD>")
    line = ShareGPT().encode(example(messages=(User("x"), turn)))
    for spelled in (line.replace(b"<REAS", b"\\u003cREAS"), line.replace(b"_SCR", b"\\u005fSCR")):
        assert fold([(entry(), spelled)]).reasoned_turns == 1
    spoken = ShareGPT().encode(example(messages=(User("x"), Assistant("\\u003cREASONING_SCRATCHPAD>"))))
    assert fold([(entry(), spoken)]).reasoned_turns == 0


def test_outcomes_are_counted_by_status_and_reason() -> None:
    found = described(
        [
            (entry(), None),
            (entry(status="partial", reason="truncated"), None),
            (entry(status="discarded", reason="no_reasoning"), None),
            (entry(status="discarded", reason="no_reasoning"), None),
            (entry(status="failed", reason="image"), None),
        ],
        total=12,
        invalid=3,
    )
    assert found["outcomes"] == {
        "completed": 1,
        "partial": 1,
        "discarded": 2,
        "failed": 1,
        "invalid": 3,
        "pending": 4,
    }
    assert found["discarded"] == {"no_reasoning": 2}
    assert found["failed"] == {"image": 1}
    assert found["partial"] == {"truncated": 1}


@given(PARTS, st.integers(0, 9), st.integers(0, 9))
def test_outcomes_add_up_to_what_was_planned(parts: list[Any], invalid: int, pending: int) -> None:
    total = len(parts) + invalid + pending
    outcomes = described(parts, total=total, invalid=invalid)["outcomes"]
    assert sum(outcomes.values()) == total
    assert outcomes["pending"] == pending


def test_tool_and_reasoning_figures_cover_every_kept_line() -> None:
    reasoned = ShareGPT().encode(example())
    silent = ShareGPT().encode(
        example(messages=(User("x"), Assistant("y")), tool_counts={"terminal": ToolCount(3, 1, 2)})
    )
    found = described([(entry(), reasoned), (entry(status="discarded", reason="no_reasoning"), silent)])
    assert found["tool_statistics"] == {
        "terminal": {"count": 4, "success": 2, "failure": 2, "success_rate": 50.0, "failure_rate": 50.0},
        "todo": {"count": 1, "success": 0, "failure": 1, "success_rate": 0.0, "failure_rate": 100.0},
    }
    assert found["reasoning_statistics"] == {
        "total_assistant_turns": 3,
        "turns_with_reasoning": 1,
        "turns_without_reasoning": 2,
        "coverage": 33.33,
    }


def test_tools_that_were_never_called_are_left_out() -> None:
    assert tool_table({"b": ToolCount(), "c": ToolCount(3, 2, 1), "a": ToolCount(1, 1, 0)}) == {
        "a": {"count": 1, "success": 1, "failure": 0, "success_rate": 100.0, "failure_rate": 0.0},
        "c": {"count": 3, "success": 2, "failure": 1, "success_rate": 66.67, "failure_rate": 33.33},
    }


def test_tokens_turns_calls_models_and_fingerprints_are_summed() -> None:
    found = described(
        [
            (entry(), None),
            (entry(work="b" * 32, model="n", turns=4), None),
            (entry(status="failed", turns=0), None),
        ]
    )
    assert found["tokens"] == {
        "prompt_tokens": 300,
        "completion_tokens": 30,
        "total_tokens": 330,
        "cached_tokens": 15,
        "reasoning_tokens": 6,
        "calls_without_usage": 0,
    }
    assert found["turns"] == {"total": 6, "per_trajectory": 3.0}
    assert found["api_calls"] == 9
    assert found["served_models"] == {"m": 2, "n": 1}
    assert found["works"] == {"a" * 32: 2, "b" * 32: 1}


# ------------------------------------------------------------------ money


@pytest.mark.parametrize(
    ("costs", "cost", "unknown"),
    [
        ([], 0.0, 0),
        ([0.0], 0.0, 0),
        ([0.1, 0.2], 0.3, 0),
        ([None], None, 1),
        ([None, None], None, 2),
        ([None, 0.25], 0.25, 1),
        ([None, 0.0], None, 1),
        ([1e-9] * 10, 1e-8, 0),
    ],
)
def test_an_unknown_cost_is_counted_and_never_taken_for_zero(
    costs: list[float | None], cost: float | None, unknown: int
) -> None:
    found = described([(entry(cost=each), None) for each in costs])
    assert (found["cost"], found["cost_unknown"]) == (cost, unknown)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(), 0.0),
        (Usage(calls=2, calls_without_cost=2), None),
        (Usage(calls=2, calls_without_cost=1, cost=0.5), 0.5),
        (Usage(calls=2, cost=0.5), 0.5),
    ],
)
def test_what_was_spent_is_unknown_where_no_call_told_its_cost(usage: Usage, cost: float | None) -> None:
    assert spent(usage) == {**msgspec.to_builtins(usage), "cost": cost}


def test_ten_thousand_thirds_of_a_cent_are_summed_the_same_in_any_grouping() -> None:
    third = Statistics()
    third.count_entry(entry(cost=0.01 / 3))
    doubled = third
    for _ in range(13):
        doubled = doubled + doubled
    straight = Statistics()
    for _ in range(2**13):
        straight.count_entry(entry(cost=0.01 / 3))
    assert doubled == straight


# ------------------------------------------------------------------ the file


@given(PARTS)
def test_the_file_fits_its_schema_and_names_exactly_its_keys(parts: list[Any]) -> None:
    content = {
        "run_name": "r",
        "distribution": "default",
        "total_prompts": len(parts),
        "total_batches": 1,
        "batch_size": 20,
        "model": "m",
        "completed_at": "2026-11-30T08:15:00",
        "duration_seconds": 1.5,
        **described(parts),
        "removed_duplicates": 0,
        "spent": msgspec.to_builtins(sum((part.usage for part, _ in parts), Usage())),
    }
    schema = load_schema("statistics")
    Draft202012Validator(schema).validate(json.loads(statistics_json(content)))
    assert sorted(content) == sorted(schema["properties"])
