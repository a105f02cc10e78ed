"""The tape: what it says, and what it says about mistakes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hermes_run.core.messages import Message, Reply, ToolCall, ToolResult, Usage, User
from hermes_run.core.task import PromptTask
from hermes_run.errors import (
    ContextExceeded,
    CredentialsRefused,
    EndpointUnreachable,
    OutOfCredit,
    ProviderError,
    SpecError,
)
from hermes_run.models.scripted import ScriptedModel
from hermes_run.models.tape import ERRORS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TAPE = """
conversations:
  - match: "[fix]"
    turns:
      - reasoning: The test will tell.
        calls:
          - {tool: terminal, arguments: {command: "run {{prompt}}", deep: [{x: "{{prompt}}"}, 1]}}
          - {tool: terminal, arguments: '{"broken'}
        usage: {prompt_tokens: 12, completion_tokens: 3, cost: 0.5}
      - text: "It said {{result}} {{other}}"
  - match: '/^\\[r\\d+\\]/'
    turns: [{text: by pattern}]
  - turns: [{text: first}]
  - turns: [{text: second}]
"""


def model(folder: Path, tape: str) -> ScriptedModel:
    path = folder / "tape.yaml"
    path.write_text(tape)
    return ScriptedModel(path)


def play(model: ScriptedModel, prompt: str, *turns: Sequence[Message], index: int = 0) -> list[Reply]:
    async def run() -> list[Reply]:
        chat = model.start(PromptTask("k#0", index, prompt), [], [])
        return [await chat.ask(turn) for turn in ([User(prompt)], *turns)]

    return asyncio.run(run())


def test_a_conversation_is_replayed_turn_by_turn(tmp_path: Path) -> None:
    first, second = play(
        model(tmp_path, TAPE), "[fix] {{result}}", [ToolResult("a", "t", "one"), ToolResult("b", "t", "two")]
    )
    assert first.finish_reason == "tool_calls"
    assert first.message.reasoning == "The test will tell."
    assert first.message.tool_calls == (
        ToolCall(
            "call00000",
            "terminal",
            '{"command":"run [fix] {{result}}","deep":[{"x":"[fix] {{result}}"},1]}',
        ),
        ToolCall("call00001", "terminal", '{"broken'),
    )
    assert first.usage == Usage(12, 3, 15, cost=0.5, calls=1)
    assert (second.message.text, second.finish_reason) == ("It said two {{other}}", "stop")
    assert second.usage == Usage(calls=1)


def test_replies_hang_on_the_row_alone(tmp_path: Path) -> None:
    tape = model(tmp_path, TAPE)
    texts = [
        play(tape, prompt, index=i)[0].message.text for i, prompt in enumerate(["x", "x", "[r1]", "y", "x"])
    ]
    assert texts == ["first", "second", "by pattern", "second", "first"]
    assert play(tape, "x", index=1)[0].message.text == "second"


def test_what_the_tape_does_not_have_fails_the_rollout_and_says_where(tmp_path: Path) -> None:
    tape = model(tmp_path, 'conversations: [{match: "[a]", turns: [{text: hi}]}]')
    with pytest.raises(ProviderError, match=r"^tape\.yaml:1: the conversation has 1 turns"):
        play(tape, "[a]", [User("more")])
    with pytest.raises(ProviderError, match=r"^tape\.yaml has no conversation for this prompt"):
        play(tape, "[b]")
    assert tape.find("[b]", 0) is None


def test_a_cut_reply_has_no_calls(tmp_path: Path) -> None:
    tape = "conversations: [{turns: [{text: ha, calls: [{tool: t}], finish_reason: length}]}]"
    [reply] = play(model(tmp_path, tape), "x")
    assert (reply.finish_reason, reply.message.tool_calls) == ("length", ())


def test_every_named_error_can_be_played(tmp_path: Path) -> None:
    expected = {
        "context": ContextExceeded,
        "credentials": CredentialsRefused,
        "no_credit": OutOfCredit,
        "unreachable": EndpointUnreachable,
    }
    for name in ERRORS:
        tape = model(tmp_path, f"conversations: [{{turns: [{{error: {name}}}]}}]")
        with pytest.raises(expected.get(name, ProviderError)) as caught:
            play(tape, "x")
        assert getattr(caught.value, "reason", name) == name


def test_a_delay_is_waited(tmp_path: Path) -> None:
    async def both() -> float:
        chats = [tape.start(PromptTask("k#0", 0, "x"), [], []) for _ in range(20)]
        started = asyncio.get_running_loop().time()
        await asyncio.gather(*[chat.ask([]) for chat in chats])
        return asyncio.get_running_loop().time() - started

    tape = model(tmp_path, "conversations: [{turns: [{text: x, delay_s: 0.1}]}]")
    assert 0.09 < asyncio.run(both()) < 1


@pytest.mark.parametrize(
    ("tape", "lines"),
    [
        (
            "conversation: []",
            ["conversations: is empty or missing", "1:15: conversation: unknown key; did you mean"],
        ),
        ("conversations: {}", ["1:16: conversations: must be a list", "is empty or missing"]),
        ("conversations: [3]", ["1:17: conversations[0]: must be a map with match, turns"]),
        ("conversations: [{match: a}]", ["conversations[0].turns: has no turns"]),
        ("conversations: [{match: '', turns: [{text: x}]}]", ["conversations[0].match: is empty"]),
        ("conversations: [{match: '/(/', turns: [{text: x}]}]", ["match: is no regular expression"]),
        ("conversations:\n- turns:\n  - reasoning: r", ["3:5: conversations[0].turns[0]: says nothing"]),
        ("conversations: [{turns: [{text: 5}]}]", ["turns[0].text: must be text"]),
        ("conversations: [{turns: [{txt: x}]}]", ["says nothing", 'unknown key; did you mean "text"?']),
        ("conversations: [{turns: [{text: x, delay_s: -1}]}]", ["delay_s: must be a number, 0 or more"]),
        ("conversations: [{turns: [{text: x, usage: {tokens: 1}}]}]", ["usage.tokens: unknown key"]),
        ("conversations: [{turns: [{error: filterd}]}]", ['there is no "filterd"; did you mean "filtered"?']),
        ("conversations: [{turns: [{text: x, finish_reason: end}]}]", ["finish_reason: there is no"]),
        ("conversations: [{turns: [{calls: [{arguments: {}}]}]}]", ["calls[0].tool: is missing"]),
        ("conversations: [{turns: [{calls: [{tool: t, arguments: 3}]}]}]", ["arguments: must be a map"]),
        ("conversations: [{turns: [{calls: {}}]}]", ["calls: must be a list"]),
        ("conversations: [", ["is no YAML"]),
        ("", ["is empty"]),
    ],
)
def test_every_mistake_of_a_tape_is_told_with_its_place(tmp_path: Path, tape: str, lines: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        model(tmp_path, tape)
    told = str(caught.value).splitlines()
    assert len(told) == len(lines)
    for line, part in zip(told, lines, strict=True):
        assert "tape.yaml" in line
        assert part in line


def test_a_tape_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no such file"):
        ScriptedModel(tmp_path / "none.yaml")
