"""What the filters discard, and what a kept trajectory is judged to be."""

from __future__ import annotations

import pytest
from hypothesis import given

from hermes_run.core.messages import Assistant, Message, System, ToolCall, ToolResult, User
from hermes_run.core.trajectory import Status, StopReason, Trajectory
from hermes_run.quality.filters import NoReasoning, UnknownTool, has_reasoning, judge
from tests.trajectories import example, trajectories

BOTH = (NoReasoning(), UnknownTool())
CALL = ToolCall("c", "todo", "{}")


def with_turns(*turns: Message) -> Trajectory:
    return example(messages=(User("x"), *turns))


# ------------------------------------------------------------------ reasoning


@pytest.mark.parametrize(
    "turn",
    [
        Assistant("answer", "thought"),
        Assistant("", "thought", (CALL,)),
        Assistant("<REASONING_SCRATCHPAD>thought</REASONING_SCRATCHPAD> answer"),
        Assistant("before <REASONING_SCRATCHPAD>and never closed"),
    ],
)
def test_native_reasoning_and_a_scratchpad_both_count(turn: Assistant) -> None:
    assert has_reasoning(turn)
    assert not NoReasoning().discards(with_turns(Assistant("silent"), turn, Assistant("silent")))


@pytest.mark.parametrize(
    "turn",
    [
        Assistant("answer"),
        Assistant("answer", "  \n\t"),
        Assistant("I reason about reasoning", "", (CALL,)),
        Assistant("<reasoning_scratchpad>in small letters"),
        Assistant("</REASONING_SCRATCHPAD>"),
    ],
)
def test_a_turn_without_either_has_none(turn: Assistant) -> None:
    assert not has_reasoning(turn)
    assert NoReasoning().discards(with_turns(turn))


def test_a_scratchpad_of_anyone_else_is_not_the_agents_reasoning() -> None:
    text = "<REASONING_SCRATCHPAD>why</REASONING_SCRATCHPAD>"
    trajectory = example(
        messages=(System(text), User(text), Assistant("x", "", (CALL,)), ToolResult("c", "todo", text))
    )
    assert NoReasoning().discards(trajectory)


def test_a_trajectory_without_assistant_turns_says_nothing_about_reasoning() -> None:
    assert not NoReasoning().discards(with_turns())


# ------------------------------------------------------------------ unknown tools


def test_one_invented_name_discards_and_a_failed_call_of_a_known_tool_does_not() -> None:
    assert UnknownTool().discards(example(unknown_tools=("lookup",)))
    assert not UnknownTool().discards(example())


# ------------------------------------------------------------------ judging


@pytest.mark.parametrize("reason", StopReason)
def test_only_what_the_agent_finished_by_itself_is_complete(reason: StopReason) -> None:
    status = Status.COMPLETED if reason is StopReason.FINISHED else Status.PARTIAL
    assert judge(example(stop_reason=reason), BOTH) == (status, reason.value)


@pytest.mark.parametrize("reason", StopReason)
def test_a_filter_judges_completed_and_partial_alike_and_wins(reason: StopReason) -> None:
    silent = example(stop_reason=reason, messages=(User("x"), Assistant("y")), unknown_tools=("lookup",))
    assert judge(silent, BOTH) == (Status.DISCARDED, "no_reasoning")
    assert judge(silent, BOTH[::-1]) == (Status.DISCARDED, "unknown_tool")
    assert judge(silent, (UnknownTool(),)) == (Status.DISCARDED, "unknown_tool")


@given(trajectories())
def test_without_filters_nothing_is_discarded(trajectory: Trajectory) -> None:
    status, reason = judge(trajectory, ())
    assert status in (Status.COMPLETED, Status.PARTIAL)
    assert reason == trajectory.stop_reason.value


@given(trajectories())
def test_taking_a_filter_away_only_ever_readmits(trajectory: Trajectory) -> None:
    """So a change of filters can judge kept records again: nothing else of a judgement moves."""
    with_both, with_one, with_none = (judge(trajectory, filters) for filters in (BOTH, BOTH[1:], ()))
    if with_both[0] is not Status.DISCARDED:
        assert with_both == with_one == with_none
    if with_one[0] is Status.DISCARDED:
        assert with_both[0] is Status.DISCARDED
