# ruff: noqa: E501 - values as the predecessor writes them
"""The predecessor's form: what it says is read, what it only seems to say stays text, nothing is lost."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_run.core.contracts import ToolSpec
from hermes_run.core.keys import content_key
from hermes_run.core.messages import Assistant, System, ToolCall, ToolResult, Usage, User
from hermes_run.core.registry import TOOLS
from hermes_run.core.trajectory import StopReason, ToolCount
from hermes_run.formats.hermes import IMPORTED, Hermes
from hermes_run.formats.tagged import read_results, read_turn
from hermes_run.quality.filters import NoReasoning
from tests.trajectories import example, trajectories

if TYPE_CHECKING:
    from hermes_run.core.messages import Message
    from hermes_run.core.trajectory import Trajectory

TAG = re.compile("</?(?:think|tools|tool_call|tool_response)>|REASONING_SCRATCHPAD")
LS = ToolSpec("terminal", "Runs a command.", {"type": "object", "properties": {"command": {}}})


def record(*turns: tuple[str, str], **fields: Any) -> dict[str, Any]:
    """A line of the predecessor's, as a value."""
    conversations = [{"from": speaker, "value": value} for speaker, value in turns]
    return {
        "prompt_index": 3,
        "conversations": conversations,
        "metadata": {"batch_num": 1, "timestamp": "2026-01-15T10:30:00.123456", "model": "some/model"},
        "completed": True,
        "partial": False,
        "api_calls": 2,
        "toolsets_used": ["terminal", "file"],
        "tool_stats": {},
        "tool_error_counts": {},
        **fields,
    }


def read(*turns: tuple[str, str], **fields: Any) -> Trajectory:
    return Hermes().from_record(record(*turns, **fields))


def messages(*turns: tuple[str, str]) -> list[Message]:
    """What is read after a first human turn."""
    return list(read(("human", "p"), *turns).messages[1:])


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def answer(call_id: str, name: str, content: Any) -> str:
    payload = json.dumps({"tool_call_id": call_id, "name": name, "content": content})
    return f"<tool_response>\n{payload}\n</tool_response>"


# --------------------------------------------------------------------------- writing


def test_a_turn_is_written_as_think_text_calls_and_its_results_as_one_turn() -> None:
    line = json.loads(Hermes(tools=[LS]).encode(example()))
    assert [turn["from"] for turn in line["conversations"]] == ["system", "human", "gpt", "tool", "gpt"]
    system, human, gpt, tool, last = (turn["value"] for turn in line["conversations"])
    signature = {"name": "terminal", "description": "Runs a command.", "parameters": LS.parameters}
    assert json.loads(system.split("<tools>\n")[1].split("\n</tools>")[0])[1] == signature | {
        "required": None
    }
    assert human == "count the files"
    assert gpt == (
        "<think>\nI will look.\n</think>\n"
        '<tool_call>\n{"name": "terminal", "arguments": {"command": "ls"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "todo", "arguments": {}}\n</tool_call>'
    )
    assert tool == (
        '<tool_response>\n{"tool_call_id": "a1", "name": "terminal", '
        '"content": {"output": "a b", "exit_code": 0, "error": null}}\n</tool_response>\n'
        '<tool_response>\n{"tool_call_id": "a2", "name": "todo", '
        '"content": {"error": "todos is missing"}}\n</tool_response>'
    )
    assert last == "<think>\n</think>\nTwo: a, b."


def test_a_line_has_the_predecessors_keys_and_a_column_for_every_tool() -> None:
    line = json.loads(Hermes(("lookup",)).encode(example()))
    assert list(line) == [
        "prompt_index", "conversations", "metadata", "completed", "partial", "api_calls", "toolsets_used",
        "tool_stats", "tool_error_counts",
    ]  # fmt: skip
    assert {tuple(turn) for turn in line["conversations"]} == {("from", "value")}
    assert list(line["tool_stats"]) == list(line["tool_error_counts"]) == [*TOOLS, "lookup"]
    with pytest.raises(ValueError, match="without a column: lookup"):
        Hermes().encode(example(tool_counts={"lookup": ToolCount(1, 1, 0)}))


def test_the_signatures_are_those_of_the_toolsets_offered_and_own_tools_stand_beside_them() -> None:
    line = json.loads(Hermes(tools=[ToolSpec("lookup", "", {})]).encode(example(toolsets=("todo",))))
    value = line["conversations"][0]["value"]
    assert [tool["name"] for tool in json.loads(value.split("<tools>\n")[1].split("\n</tools>")[0])] == [
        "lookup",
        "todo",
    ]


@given(trajectory=trajectories(toolsets=st.just(())))
def test_texts_without_tags_come_back_as_they_were(trajectory: Trajectory) -> None:
    written = Hermes().encode(trajectory)
    if TAG.search(repr(trajectory.messages)):
        return
    read_back = Hermes().decode(written)
    assert read_back.messages == tuple(m for m in trajectory.messages if m != System(""))
    assert Hermes().encode(read_back) == written


@given(text=st.text(st.sampled_from('</think>tool_callresponse\n{}\\"u003c '), max_size=60))
def test_no_tag_inside_a_call_or_a_result_ends_its_block(text: str) -> None:
    turn = (
        User("p"),
        Assistant("t", "r", (ToolCall("a", "terminal", json.dumps({"command": text})),)),
        ToolResult("a", "terminal", text),
    )
    kept = Hermes().decode(Hermes().encode(example(messages=turn))).messages
    assert isinstance(kept[1], Assistant)
    assert json.loads(kept[1].tool_calls[0].arguments) == {"command": text}
    assert kept[2] == turn[2] or (
        isinstance(kept[2], ToolResult) and json.loads(kept[2].text) == json.loads(text)
    )


# --------------------------------------------------------------------------- reading


def test_a_line_is_read_with_its_flags_counts_and_unknown_usage() -> None:
    system = f"Call within <tool_call>.\n<tools>\n{json.dumps([{'name': 'skills_list'}, {'name': 'terminal'}])}\n</tools>"
    stats = {
        "terminal": {"count": 2, "success": 1, "failure": 1},
        "skills_list": {"count": 1, "success": 1, "failure": 0},
        "make_coffee": {"count": 1, "success": 1, "failure": 0},
        "todo": {"count": 0, "success": 0, "failure": 0},
    }
    found = read(("system", system), ("human", "p"), ("gpt", "<think>\nr\n</think>\nyes"), tool_stats=stats)
    assert (found.key, found.prompt_index) == (f"{content_key('p')}#0", 3)
    assert found.messages == (User("p"), Assistant("yes", "r"))
    assert found.tool_counts == {"terminal": ToolCount(2, 1, 1)}
    assert found.unknown_tools == ("make_coffee",)
    assert found.toolsets == ("file", "terminal")
    assert found.usage == Usage(calls=2, calls_without_usage=2, calls_without_cost=2)
    assert (found.model, found.timestamp, found.work) == (
        "some/model",
        "2026-01-15T10:30:00.123456",
        IMPORTED,
    )
    known = Hermes(other_tools=["make_coffee", "skills_list"])
    assert known.from_record(record(("human", "p"), tool_stats=stats)).unknown_tools == ()


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"completed": True, "partial": False}, StopReason.FINISHED),
        ({"completed": False, "partial": False}, StopReason.MAX_TURNS),
        ({"completed": False, "partial": True}, StopReason.INVALID_TOOL_CALLS),
        ({"completed": True, "partial": True}, StopReason.INVALID_TOOL_CALLS),
        ({"completed": None, "partial": None}, StopReason.FINISHED),
    ],
)
def test_the_flags_say_how_it_ended(flags: dict[str, Any], reason: StopReason) -> None:
    assert read(("human", "p"), ("gpt", "a"), **flags).stop_reason is reason


@pytest.mark.parametrize(
    ("value", "reasoning", "text"),
    [
        ("<think>\nr\n</think>\nt", "r", "t"),
        ("<think>\n</think>\nt", "", "t"),
        ("<think></think>t", "", "t"),
        ("no think at all", "", "no think at all"),
        ("<think>\nnever closed", "", "<think>\nnever closed"),
        ("stray</think> end", "", "stray</think> end"),
        ("<think>\n</think>\n<think>late</think>t", "late", "t"),
        (
            "<think>\nr\n</think>\n<think>s</think>\nt",
            "r",
            "<REASONING_SCRATCHPAD>s</REASONING_SCRATCHPAD>\nt",
        ),
        ("a <think>s</think> b", "", "a <REASONING_SCRATCHPAD>s</REASONING_SCRATCHPAD> b"),
        ("", "", ""),
    ],
)
def test_reasoning_is_what_the_think_block_holds(value: str, reasoning: str, text: str) -> None:
    assert messages(("gpt", value)) == [Assistant(text, reasoning)]


def test_a_scratchpad_in_the_middle_counts_as_reasoning() -> None:
    assert not NoReasoning().discards(read(("human", "p"), ("gpt", "a <think>s</think> b")))
    assert NoReasoning().discards(read(("human", "p"), ("gpt", "<think>\n</think>\nb")))


def test_calls_take_the_ids_of_their_results() -> None:
    found = messages(
        ("gpt", f"<think>\n</think>\nlook\n{call('terminal', command='ls')}\n{call('todo')}"),
        (
            "tool",
            f"{answer('a', 'terminal', {'output': 'x', 'error': None})}\n{answer('b', 'todo', 'plain')}",
        ),
        ("gpt", "done"),
    )
    assert found == [
        Assistant("look", "", (ToolCall("a", "terminal", '{"command": "ls"}'), ToolCall("b", "todo", "{}"))),
        ToolResult("a", "terminal", '{"output": "x", "error": null}'),
        ToolResult("b", "todo", "plain"),
        Assistant("done"),
    ]


def test_results_find_their_calls_by_name_before_order() -> None:
    found = messages(
        ("gpt", f"{call('todo')}\n{call('terminal')}"),
        ("tool", f"{answer('a', 'terminal', 'x')}\n{answer('b', 'todo', 'y')}"),
    )
    assert isinstance(found[0], Assistant)
    assert [(c.id, c.name) for c in found[0].tool_calls] == [("b", "todo"), ("a", "terminal")]
    assert found[1:] == [ToolResult("a", "terminal", "x"), ToolResult("b", "todo", "y")]


def test_results_beyond_the_calls_and_calls_beyond_the_results_are_kept() -> None:
    more = messages(
        ("gpt", call("todo")), ("tool", f"{answer('a', 'todo', 'x')}\n{answer('z', 'unknown', 'y')}")
    )
    assert more[1:] == [ToolResult("a", "todo", "x"), ToolResult("z", "unknown", "y")]
    fewer = messages(("gpt", f"{call('todo')}\n{call('terminal')}"), ("tool", answer("a", "todo", "x")))
    assert isinstance(fewer[0], Assistant)
    assert [c.id for c in fewer[0].tool_calls] == ["a", "call_1"]
    assert fewer[1:] == [ToolResult("a", "todo", "x")]
    assert messages(("tool", answer("a", "todo", "x"))) == [ToolResult("a", "todo", "x")]


def test_one_id_given_twice_in_a_turn_does_not_join_two_calls() -> None:
    found = messages(
        ("gpt", f"{call('todo')}\n{call('todo')}"),
        ("tool", f"{answer('a', 'todo', 'x')}\n{answer('a', 'todo', 'y')}"),
    )
    assert isinstance(found[0], Assistant)
    assert [c.id for c in found[0].tool_calls] == ["a", "call_1"]
    assert found[1:] == [ToolResult("a", "todo", "x"), ToolResult("call_1", "todo", "y")]


BROKEN = "<tool_call>\n{'name': 'terminal'}\n</tool_call>"


@pytest.mark.parametrize(
    ("value", "text", "names"),
    [
        (f"t\n{BROKEN}", f"t\n{BROKEN}", []),
        (f"t\n{call('todo')}\n{BROKEN}\n{call('terminal')}", f"t\n{BROKEN}", ["todo", "terminal"]),
        (f"so: {call('todo')} is how one calls", f"so: {call('todo')} is how one calls", []),
        ('t\n<tool_call>\n{"name": "todo", "arguments": {}}', "t", ["todo"]),
        ('t\n<tool_call>\n{"name": "todo"', 't\n<tool_call>\n{"name": "todo"', []),
        ("t <tool_call> u", "t <tool_call> u", []),
        (f"<tool_call> {call('todo')}", "<tool_call> ", ["todo"]),
        ("<tool_call>[1]</tool_call>", "<tool_call>[1]</tool_call>", []),
        ('<tool_call>\n{"name": ""}\n</tool_call>', '<tool_call>\n{"name": ""}\n</tool_call>', []),
        ("</tool_call>", "</tool_call>", []),
    ],
)  # fmt: skip
def test_what_is_no_well_formed_call_at_the_end_stays_text(value: str, text: str, names: list[str]) -> None:
    reasoning, found, calls = read_turn(value, 0)
    assert (reasoning, found, [c.name for c in calls]) == ("", text, names)


def test_a_call_in_the_middle_is_one_when_it_was_answered() -> None:
    found = messages(("gpt", f"first {call('todo')} then more"), ("tool", answer("a", "todo", "x")))
    assert found == [
        Assistant("first \nthen more", "", (ToolCall("a", "todo", "{}"),)),
        ToolResult("a", "todo", "x"),
    ]


def test_arguments_are_kept_as_they_are_spelled() -> None:
    value = (
        '<tool_call>\n{"name": "x", "arguments": {"n": 1.0,  "big": 12345678901234567890123}}\n</tool_call>'
    )
    assert read_turn(value, 0)[2][0].arguments == '{"n": 1.0,  "big": 12345678901234567890123}'
    text = '<tool_call>\n{"name": "x", "arguments": "{broken"}\n</tool_call>'
    assert read_turn(text, 0)[2][0].arguments == "{broken"
    odd = '<tool_call>\n{"name": "x", "arguments": {"n": NaN}}\n</tool_call>'
    assert read_turn(odd, 0)[2][0].arguments == '{"n": NaN}'


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("plain", ["plain"]),
        ("", []),
        ("<tool_response>\nno json\n</tool_response>", ["no json"]),
        ("<tool_response>\nnever closed", ["never closed"]),
        (f"before {answer('a', 'n', 'x')} after", ["before", "x", "after"]),
        (f"<tool_response>\ntorn\n{answer('a', 'n', 'x')}", ["torn", "x"]),
        (answer("a", "n", "a </tool_response> b"), ["a </tool_response> b"]),
        ('<tool_response>\n{"content": [1, 2]}\n</tool_response>', ["[1, 2]"]),
        ('<tool_response>\n{"other": 1}\n</tool_response>', ['{"other": 1}']),
    ],
)
def test_results_are_read_and_what_is_none_is_a_result_of_its_own(value: str, texts: list[str]) -> None:
    assert [result.text for result in read_results(value)] == texts


def test_system_turns_that_are_the_conversations_own_are_kept() -> None:
    form = Hermes(tools=[LS])
    spoken = (System("Be brief.\n\n"), User("p"), System("Later."), Assistant("a"))
    assert form.decode(form.encode(example(messages=spoken))).messages == spoken
    found = read(
        ("system", "You are kind."), ("human", "p"), ("system", 'With\n<tools>[{"name": "x"}]</tools>')
    )
    assert found.messages == (System("You are kind."), User("p"), System("With"))


PIECES = st.sampled_from(
    ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "\n", " ",
     call("todo"), call("x", a="</tool_call>"), answer("a", "todo", "said"), '{"name": "y"}', "word", "<tools>"]
)  # fmt: skip


@given(pieces=st.lists(PIECES, max_size=12), answers=st.integers(0, 3))
def test_no_word_of_a_turn_is_ever_lost(pieces: list[str], answers: int) -> None:
    value = "".join(pieces)
    reasoning, text, calls = read_turn(value, answers)
    said = " ".join([reasoning, text, *(f"{c.name} {c.arguments}" for c in calls)])
    for word in ("word", "todo", "said", '"name": "y"'):
        assert said.count(word) >= value.count(word) - (word == '"name": "y"') * sum(
            c.name == "y" for c in calls
        )
    results = read_results(value)
    heard = " ".join(f"{r.name} {r.text}" for r in results)
    for word in ("word", "todo", "said"):
        assert heard.count(word) >= value.count(word)


@given(
    line=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["conversations", "from", "value", "metadata", "tool_stats", "x"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_a_trajectory_or_a_value_error(line: Any) -> None:
    try:
        found = Hermes().from_record(line)
    except ValueError:
        return
    assert any(isinstance(message, User) for message in found.messages)


def test_odd_values_in_a_line_are_taken_for_unknown() -> None:
    found = read(
        ("human", "p\ud800"),
        ("gpt", "a"),
        prompt_index=None, api_calls="2", metadata=None, toolsets_used=None, tool_stats={"terminal": {"count": True}},
    )  # fmt: skip
    assert (found.prompt_index, found.api_calls, found.toolsets, found.tool_counts) == (0, 0, (), {})
    assert (found.model, found.timestamp, found.usage.calls_without_usage) == ("", "", 1)
    assert found.messages[0] == User("p\U0010d800")
