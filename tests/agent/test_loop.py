"""The turn loop against a small model and small tools in memory."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_run.agent.loop import INVALID_TURNS_IN_A_ROW, Rollout
from hermes_run.core.answers import Aside, InnerCall
from hermes_run.core.messages import Assistant, Message, Reply, System, ToolCall, ToolResult, Usage, User
from hermes_run.core.trajectory import StopReason, ToolCount
from hermes_run.errors import ContextExceeded, CredentialsRefused, ProviderError, SandboxError

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNTABLE = ("terminal", "todo", "web_search")
OFFERED = ("terminal", "todo")
ONE_CALL = Usage(100, 10, 110, 0, 0, 0.01, 1)


@dataclass(slots=True)
class FakeChat:
    """A model that says what it is told to, a TimeoutError being no word; remembers what it was asked."""

    replies: list[Reply | Exception]
    asked: list[list[Message]] = field(default_factory=list)
    unsettled: Usage = field(default_factory=Usage)

    async def ask(self, messages: Sequence[Message]) -> Reply:
        self.asked.append(list(messages))
        reply = self.replies.pop(0)
        if isinstance(reply, TimeoutError):
            await asyncio.Event().wait()
        if isinstance(reply, Exception):
            raise reply
        return reply


@dataclass(frozen=True, slots=True)
class FakeAnswer:
    text: str
    failed: bool
    valid: bool


@dataclass(slots=True)
class FakeTools:
    """Tools that echo; arguments that are no JSON are invalid, "fail" fails, "hang" hangs, "die" dies."""

    ran: list[str] = field(default_factory=list)

    aside: Aside = field(default_factory=Aside)

    def offers(self, name: str) -> bool:
        return name in OFFERED

    def take_aside(self) -> Aside:
        taken, self.aside = self.aside, Aside()
        return taken

    async def call(self, call: ToolCall) -> FakeAnswer:
        if call.name not in OFFERED:
            return FakeAnswer("no such tool", failed=True, valid=False)
        try:
            what = json.loads(call.arguments)
        except ValueError:
            return FakeAnswer("no JSON", failed=True, valid=False)
        self.ran.append(call.id)
        if what == "hang":
            await asyncio.Event().wait()
        if what == "die":
            raise SandboxError("gone", reason="sandbox_lost")
        return FakeAnswer(f"{call.name}: {what}", failed=what == "fail", valid=True)


def says(text: str = "", *calls: tuple[str, str, str], model: str = "m", reasoning: str = "") -> Reply:
    made = tuple(ToolCall(*call) for call in calls)
    return Reply(
        Assistant(text, reasoning, made, {"reasoning_details": ["sealed"]}),
        "tool_calls" if made else "stop",
        ONE_CALL,
        model,
    )


def cut(text: str, *calls: tuple[str, str, str]) -> Reply:
    return Reply(Assistant(text, "", tuple(ToolCall(*call) for call in calls)), "length", ONE_CALL, "m")


def rollout(*replies: Reply | Exception, max_turns: int = 10) -> tuple[Rollout, FakeChat, FakeTools]:
    chat, tools = FakeChat([*replies]), FakeTools()
    return Rollout(chat, tools, COUNTABLE, max_turns), chat, tools


def run(made: Rollout, system_prompt: str | None = None) -> StopReason:
    return asyncio.run(made.run("do it", system_prompt))


def is_well_formed(messages: Sequence[Message]) -> bool:
    """A prompt, then turns, each call of which has exactly one result, in order, right after it."""
    rest = [message for message in messages if not isinstance(message, System)]
    if not isinstance(rest.pop(0), User):
        return False
    while rest:
        turn = rest.pop(0)
        if not isinstance(turn, Assistant):
            return False
        for call in turn.tool_calls:
            result = rest.pop(0) if rest else None
            if not isinstance(result, ToolResult) or (result.call_id, result.name) != (call.id, call.name):
                return False
    return True


# ------------------------------------------------------------------ the ordinary way


def test_an_answer_without_calls_ends_it() -> None:
    made, chat, _ = rollout(says("done", reasoning="thought"))
    assert run(made) is StopReason.FINISHED
    assert made.messages == [User("do it"), Assistant("done", "thought")]
    assert chat.asked == [[User("do it")]]
    assert (made.api_calls, made.usage, made.served) == (1, ONE_CALL, {"m"})


def test_calls_are_answered_and_the_results_are_all_that_is_said_next() -> None:
    made, chat, _ = rollout(
        says("", ("a", "terminal", '"ls"')), says("", ("b", "todo", '"fail"')), says("done")
    )
    assert run(made) is StopReason.FINISHED
    assert chat.asked == [
        [User("do it")],
        [ToolResult("a", "terminal", "terminal: ls")],
        [ToolResult("b", "todo", "todo: fail")],
    ]
    assert made.counts == {"terminal": ToolCount(1, 1, 0), "todo": ToolCount(1, 0, 1)}
    assert made.api_calls == 3
    assert made.usage == ONE_CALL + ONE_CALL + ONE_CALL
    assert is_well_formed(made.messages)


def test_what_goes_back_to_the_provider_is_not_kept() -> None:
    made, _, _ = rollout(says("done"))
    run(made)
    assert made.messages[-1] == Assistant("done", wire=None)


@pytest.mark.parametrize(("prompt", "first"), [("be kind", [System("be kind")]), ("", []), (None, [])])
def test_a_saved_system_prompt_is_the_first_turn_and_is_said_by_the_opening_alone(
    prompt: str | None, first: list[Message]
) -> None:
    made, chat, _ = rollout(says("done"))
    asyncio.run(made.run("do it", prompt))
    assert made.messages == [*first, User("do it"), Assistant("done")]
    assert chat.asked == [[User("do it")]]


def test_parallel_calls_have_one_result_each_in_their_order() -> None:
    calls = [("c", "todo", '"1"'), ("a", "terminal", '"2"'), ("b", "todo", '"fail"')]
    made, chat, tools = rollout(says("", *calls), says("done"))
    assert run(made) is StopReason.FINISHED
    results = chat.asked[1]
    assert [result.call_id for result in results if isinstance(result, ToolResult)] == ["c", "a", "b"]
    assert tools.ran == ["c", "a", "b"]
    assert made.counts == {"todo": ToolCount(2, 1, 1), "terminal": ToolCount(1, 1, 0)}


def test_every_model_that_answered_is_named() -> None:
    made, _, _ = rollout(
        says("", ("a", "todo", "1"), model="x"), says("", ("b", "todo", "1"), model=""), says("y", model="z")
    )
    run(made)
    assert made.served == {"x", "z"}


def test_who_served_each_call_is_kept_in_order() -> None:
    one, two = ToolCall("1", "terminal", "{}"), ToolCall("2", "terminal", "{}")
    replies = [
        Reply(Assistant("", tool_calls=(one,)), "tool_calls", model="x", provider="A"),
        Reply(Assistant("", tool_calls=(two,)), "tool_calls", model="x", provider="A"),
        Reply(Assistant("bye"), "stop", model="x", provider="B"),
    ]
    made, _, _ = rollout(*replies)
    run(made)
    assert made.providers == {"A", "B"}
    assert made.served_calls == [("x", "A", 2), ("x", "B", 1)]


# ------------------------------------------------------------------ invented names, broken arguments


def test_known_calls_run_beside_invented_ones_and_each_id_has_a_result() -> None:
    calls = [
        ("a", "lookup", "{}"),
        ("b", "terminal", '"ls"'),
        ("c", "web_search", "{}"),
        ("d", "lookup", "{}"),
    ]
    made, chat, tools = rollout(says("", *calls), says("done"))
    assert run(made) is StopReason.FINISHED
    assert tools.ran == ["b"]
    assert [m.call_id for m in chat.asked[1] if isinstance(m, ToolResult)] == ["a", "b", "c", "d"]
    assert list(made.unknown) == ["lookup", "web_search"], "in order, each once; web_search was not offered"
    assert made.counts == {"terminal": ToolCount(1, 1, 0), "web_search": ToolCount(1, 0, 1)}


def test_broken_arguments_count_as_a_failure_of_a_known_tool() -> None:
    made, _, _ = rollout(says("", ("a", "terminal", "{broken")), says("done"))
    assert run(made) is StopReason.FINISHED
    assert (made.counts, made.unknown) == ({"terminal": ToolCount(1, 0, 1)}, {})


INVENTED = ("x", "lookup", "{}")
BROKEN = ("y", "terminal", "{broken")
VALID = ("z", "terminal", '"fail"')


def test_three_turns_in_a_row_with_nothing_valid_end_it_after_their_results() -> None:
    made, _, _ = rollout(
        says("", INVENTED), says("", BROKEN, INVENTED), says("", BROKEN), says("never asked")
    )
    assert run(made) is StopReason.INVALID_TOOL_CALLS
    assert made.api_calls == INVALID_TURNS_IN_A_ROW == 3
    assert is_well_formed(made.messages)
    assert isinstance(made.messages[-1], ToolResult)


def test_one_valid_call_beside_others_starts_the_count_anew_even_when_its_tool_fails() -> None:
    made, _, _ = rollout(
        says("", INVENTED),
        says("", BROKEN),
        says("", INVENTED, VALID),
        says("", BROKEN),
        says("", BROKEN),
        says("ok"),
    )
    assert run(made) is StopReason.FINISHED


def test_three_invalid_turns_are_named_before_the_turn_limit() -> None:
    made, _, _ = rollout(says("", BROKEN), says("", BROKEN), says("", BROKEN), max_turns=3)
    assert run(made) is StopReason.INVALID_TOOL_CALLS


# ------------------------------------------------------------------ limits


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_the_turn_limit_ends_it_after_the_tool_results(turns: int) -> None:
    made, chat, tools = rollout(*[says("", (str(n), "todo", "1")) for n in range(9)], max_turns=turns)
    assert run(made) is StopReason.MAX_TURNS
    assert len(chat.asked) == made.api_calls == len(tools.ran) == turns
    assert isinstance(made.messages[-1], ToolResult)
    assert is_well_formed(made.messages)


def test_an_answer_in_the_last_turn_is_an_answer() -> None:
    made, _, _ = rollout(says("", ("a", "todo", "1")), says("done"), max_turns=2)
    assert run(made) is StopReason.FINISHED


def test_a_cut_reply_ends_it_truncated_and_its_text_is_kept() -> None:
    made, _, tools = rollout(says("", ("a", "todo", "1")), cut("half an ans"))
    assert run(made) is StopReason.TRUNCATED
    assert made.messages[-1] == Assistant("half an ans")
    assert tools.ran == ["a"]


def test_calls_of_a_cut_reply_are_neither_run_nor_kept() -> None:
    """Any of them may be cut; kept without a result, they would make a conversation that no API takes."""
    made, _, tools = rollout(cut("half", ("a", "terminal", '{"comm')))
    assert run(made) is StopReason.TRUNCATED
    assert (tools.ran, made.counts) == ([], {})
    assert is_well_formed(made.messages)


def test_an_outgrown_context_ends_it_with_what_was_billed() -> None:
    billed = Usage(prompt_tokens=7, calls=1)
    made, _, _ = rollout(says("", ("a", "todo", "1")), ContextExceeded("too long", usage=billed))
    assert run(made) is StopReason.CONTEXT
    assert made.usage == ONE_CALL + billed
    assert made.api_calls == 1
    assert is_well_formed(made.messages)


def test_a_context_outgrown_by_the_prompt_leaves_the_prompt() -> None:
    made, _, _ = rollout(ContextExceeded("too long"))
    assert run(made) is StopReason.CONTEXT
    assert made.messages == [User("do it")]


# ------------------------------------------------------------------ what is no ending of the loop


@pytest.mark.parametrize("error", [ProviderError("500"), CredentialsRefused("401")])
def test_errors_of_the_model_pass_and_what_was_said_is_kept(error: Exception) -> None:
    made, _, _ = rollout(says("", ("a", "todo", "1")), error)
    with pytest.raises(type(error)):
        run(made)
    assert made.usage == ONE_CALL
    assert is_well_formed(made.messages)


def test_what_may_have_been_billed_when_the_run_stops_is_told() -> None:
    made, chat, _ = rollout(CredentialsRefused("401"))
    chat.unsettled = ONE_CALL
    told: list[Usage] = []
    made.spend = told.append
    with pytest.raises(CredentialsRefused):
        run(made)
    assert told == [ONE_CALL]


def test_a_lost_sandbox_passes_and_no_further_call_is_made() -> None:
    made, chat, tools = rollout(says("", ("a", "terminal", '"die"'), ("b", "todo", "1")))
    with pytest.raises(SandboxError):
        run(made)
    assert tools.ran == ["a"]
    assert len(chat.asked) == 1


# ------------------------------------------------------------------ interruptions


def interrupted(*replies: Reply | Exception) -> Rollout:
    """A rollout whose time is up while a tool or the model hangs."""
    made, _, _ = rollout(*replies)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await made.run("do it")

    asyncio.run(main())
    made.close("time is up")
    return made


HANGS = ("h", "terminal", '"hang"')


def test_calls_left_unanswered_are_answered_with_the_reason_and_count_as_failed() -> None:
    made = interrupted(says("", ("a", "todo", "1"), HANGS, ("b", "todo", "2")))
    assert is_well_formed(made.messages)
    assert [m.text for m in made.messages if isinstance(m, ToolResult)] == [
        "todo: 1",
        "time is up",
        "time is up",
    ]
    assert made.counts == {"todo": ToolCount(2, 1, 1), "terminal": ToolCount(1, 0, 1)}


def test_closing_twice_or_with_nothing_open_changes_nothing() -> None:
    made = interrupted(says("", HANGS))
    before = (list(made.messages), dict(made.counts))
    made.close("again")
    assert (made.messages, made.counts) == before
    finished, _, _ = rollout(says("", ("a", "todo", "1")), says("done"))
    run(finished)
    messages = list(finished.messages)
    finished.close("late")
    assert finished.messages == messages
    fresh, _, _ = rollout()
    fresh.close("early")
    assert fresh.messages == []


def test_calls_with_one_id_are_each_answered_when_time_is_up() -> None:
    made = interrupted(says("", ("same", "todo", "1"), ("same", "terminal", '"hang"'), ("same", "todo", "3")))
    assert is_well_formed(made.messages)
    assert len(made.messages) == 5


def test_an_invented_name_is_known_as_such_also_when_time_was_up_before_its_turn() -> None:
    """Otherwise it would be merged although the filter rejects unknown tools."""
    made = interrupted(says("", HANGS, ("b", "lookup", "{}"), ("c", "web_search", "{}")))
    assert list(made.unknown) == ["lookup", "web_search"]
    assert is_well_formed(made.messages)


def test_time_up_while_the_model_is_asked_leaves_the_turns_so_far() -> None:
    made = interrupted(says("", ("a", "todo", "1")), TimeoutError())
    assert [type(message) for message in made.messages] == [User, Assistant, ToolResult]


def test_what_was_in_flight_when_time_was_up_may_have_been_billed() -> None:
    made, chat, _ = rollout(TimeoutError())
    chat.unsettled = Usage(calls=1, calls_without_cost=1)

    async def main() -> None:
        async with asyncio.timeout(0.05):
            await made.run("do it")

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert made.usage == chat.unsettled


# ------------------------------------------------------------------ any model


CALLS = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from(["terminal", "todo", "web_search", "lookup"]),
    st.sampled_from(["1", "{", '"fail"']),
)
REPLIES = st.one_of(
    st.lists(CALLS, max_size=3).map(lambda calls: says("", *calls)),
    st.builds(cut, st.just("cut")),
    st.just(ContextExceeded("full")),
)


@given(st.lists(REPLIES, min_size=12, max_size=12), st.integers(1, 12))
def test_whatever_a_model_does_the_record_is_well_formed_and_its_counts_agree(
    replies: list[Any], max_turns: int
) -> None:
    made, chat, tools = rollout(*replies, max_turns=max_turns)
    reason = run(made)
    assert is_well_formed(made.messages)
    turns = [message for message in made.messages if isinstance(message, Assistant)]
    calls = [call for turn in turns for call in turn.tool_calls]
    assert made.api_calls == len(turns) <= max_turns
    assert len(chat.asked) == len(turns) + (reason is StopReason.CONTEXT)
    assert sum(count.count for count in made.counts.values()) == sum(call.name in COUNTABLE for call in calls)
    assert all(count.count == count.success + count.failure for count in made.counts.values())
    assert list(made.unknown) == list(dict.fromkeys(call.name for call in calls if call.name not in OFFERED))
    assert [message for said in chat.asked for message in said] == [
        message for message in made.messages if not isinstance(message, Assistant)
    ][: sum(map(len, chat.asked))]
    assert len(tools.ran) <= len(calls)


def test_what_tools_did_beside_the_conversation_counts_and_is_no_turn() -> None:
    made, _, tools = rollout(says("", ("a", "terminal", '"ls"')), says("done"))
    used = Usage(7, 1, 8, calls=1)
    tools.aside = Aside(
        [InnerCall("todo", failed=True), InnerCall("nothing", failed=True, known=False)], used
    )
    assert run(made) is StopReason.FINISHED
    assert made.counts == {"terminal": ToolCount(1, 1, 0), "todo": ToolCount(1, 0, 1)}
    assert list(made.unknown) == ["nothing"]
    assert made.usage == ONE_CALL + ONE_CALL + used
    assert made.api_calls == 2
    assert len(made.messages) == 4
