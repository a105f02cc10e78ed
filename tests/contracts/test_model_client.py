"""What every registered ModelClient does: the same conversation, played by each of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from hermes_run.core import registry
from hermes_run.core.contracts import ToolSpec
from hermes_run.core.messages import Assistant, Reply, System, ToolResult, User
from hermes_run.core.task import PromptTask
from hermes_run.errors import ContextExceeded, CredentialsRefused, ProviderError
from hermes_run.models.config import ModelConfig
from hermes_run.models.openai import OpenAIClient
from hermes_run.models.retry import RetryPolicy
from hermes_run.models.scripted import ScriptedModel
from tests.servers import ModelServer, fails, says

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from hermes_run.core.contracts import ModelClient
    from hermes_run.core.messages import Message

TAPE = """
conversations:
  - match: "[work]"
    turns:
      - {reasoning: hm, calls: [{tool: t, arguments: {a: 1}}, {tool: t, arguments: {a: 2}}]}
      - {calls: [{tool: t}, {tool: t}]}
      - {text: done}
  - match: "[cut]"
    turns: [{text: half, finish_reason: length}]
  - match: "[filtered]"
    turns: [{error: filtered}]
  - match: "[empty]"
    turns: [{error: empty_reply}]
  - match: "[malformed]"
    turns: [{error: malformed_call}]
  - match: "[down]"
    turns: [{error: provider_error}]
  - match: "[long]"
    turns: [{error: context}]
  - match: "[key]"
    turns: [{error: credentials}]
"""


def script(server: ModelServer) -> None:
    def work(turn: int) -> list[tuple[str, dict[str, int]]]:
        return [[("t", {"a": 1}), ("t", {"a": 2})], [("t", {}), ("t", {})], []][turn]  # type: ignore[return-value]

    server.respond = lambda request: (
        says(
            "" if request.turn < 2 else "done",
            calls=work(request.turn),
            reasoning="hm" if request.turn == 0 else "",
        )
        if "[work]" in request.prompt
        else None
    )
    server.script("[cut]", says("half", finish_reason="length", calls=[("t", '{"a": ')]))
    server.script("[filtered]", says(None, finish_reason="content_filter"))
    server.script("[empty]", says(None))
    server.script("[malformed]", says("", finish_reason="MALFORMED_FUNCTION_CALL"))
    server.script("[down]", fails(500))
    server.script("[long]", fails(400, "too long", code="context_length_exceeded"))
    server.script("[key]", fails(401))


@pytest.fixture(params=list(registry.MODELS))
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], ModelClient]]:
    """Makes the client of each registered kind."""
    kind = registry.load("model", registry.MODELS, request.param)
    if kind is ScriptedModel:
        tape = tmp_path / "tape.yaml"
        tape.write_text(TAPE)
        yield lambda: ScriptedModel(tape)
        return
    assert kind is OpenAIClient, "a new kind of model needs its own row here"
    with ModelServer() as server:
        script(server)
        config = ModelConfig(name="m", base_url=server.url)
        yield lambda: OpenAIClient(config, RetryPolicy(base_s=0.001))


def play(make: Callable[[], ModelClient], prompt: str, *turns: Sequence[Message]) -> list[Reply]:
    async def run() -> list[Reply]:
        client = make()
        try:
            task = PromptTask("k#0", 0, prompt)
            chat = client.start(
                task, [System("s"), User("q"), Assistant("a")], [ToolSpec("t", "d", {"type": "object"})]
            )
            return [await chat.ask(turn) for turn in ([User(prompt)], *turns)]
        finally:
            await client.aclose()

    return asyncio.run(run())


def test_a_conversation_with_calls_ends_with_a_text(make: Callable[[], ModelClient]) -> None:
    async def run() -> list[Reply]:
        client = make()
        try:
            chat = client.start(PromptTask("k#0", 0, "[work]"), [], [])
            said: list[Message] = [User("[work]")]
            replies = []
            for _ in range(3):
                replies.append(await chat.ask(said))
                said = [ToolResult(c.id, c.name, "r") for c in replies[-1].message.tool_calls]
            return replies
        finally:
            await client.aclose()

    replies = asyncio.run(run())
    assert [reply.finish_reason for reply in replies] == ["tool_calls", "tool_calls", "stop"]
    assert [reply.message.text for reply in replies] == ["", "", "done"]
    assert [reply.message.reasoning for reply in replies] == ["hm", "", ""]
    calls = [call for reply in replies for call in reply.message.tool_calls]
    assert len({call.id for call in calls}) == 4, "ids are unique in the conversation"
    assert [msgspec.json.decode(call.arguments) for call in calls] == [{"a": 1}, {"a": 2}, {}, {}]
    assert all(reply.usage.calls == 1 for reply in replies)
    assert all(reply.model for reply in replies)


def test_a_cut_reply_keeps_its_text_and_has_no_calls(make: Callable[[], ModelClient]) -> None:
    [reply] = play(make, "[cut]")
    assert (reply.finish_reason, reply.message.text, reply.message.tool_calls) == ("length", "half", ())


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        ("[filtered]", "filtered"),
        ("[empty]", "empty_reply"),
        ("[malformed]", "malformed_call"),
        ("[down]", "provider_error"),
    ],
)
def test_no_reply_is_an_error_with_its_reason(
    make: Callable[[], ModelClient], prompt: str, reason: str
) -> None:
    with pytest.raises(ProviderError) as caught:
        play(make, prompt)
    assert caught.value.reason == reason
    assert str(caught.value)


def test_a_full_context_and_a_refused_key_are_told_apart(make: Callable[[], ModelClient]) -> None:
    with pytest.raises(ContextExceeded):
        play(make, "[long]")
    with pytest.raises(CredentialsRefused):
        play(make, "[key]")


def test_conversations_of_one_client_do_not_mix(make: Callable[[], ModelClient]) -> None:
    async def run() -> list[str]:
        client = make()

        async def one() -> str:
            chat = client.start(PromptTask("k#0", 0, "[work]"), [], [])
            said: list[Message] = [User("[work]")]
            for _ in range(3):
                reply = await chat.ask(said)
                said = [ToolResult(c.id, c.name, "r") for c in reply.message.tool_calls]
            return reply.message.text

        try:
            return await asyncio.gather(*[one() for _ in range(30)])
        finally:
            await client.aclose()

    assert asyncio.run(run()) == ["done"] * 30
