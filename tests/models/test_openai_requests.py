"""What goes over the wire, as a real server receives it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.contracts import ToolSpec
from hermes_run.core.messages import Assistant, Message, Reply, System, ToolCall, ToolResult, User
from hermes_run.core.task import PromptTask
from hermes_run.errors import SpecError
from hermes_run.models.config import ModelConfig
from hermes_run.models.openai import OpenAIClient
from tests.models.conftest import QUICK
from tests.servers import says

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.models.conftest import Ask
    from tests.servers import ModelServer

TERMINAL = ToolSpec(
    "terminal", "Runs a command.", {"type": "object", "properties": {"command": {"type": "string"}}}
)
TASK = PromptTask("k#0", 0, "[a]")


def talk(
    config: ModelConfig,
    *turns: Sequence[Message],
    opening: Sequence[Message] = (),
    tools: Sequence[ToolSpec] = (TERMINAL,),
) -> list[Reply]:
    async def run() -> list[Reply]:
        client = OpenAIClient(config, QUICK)
        try:
            chat = client.start(TASK, opening, tools)
            return [await chat.ask(turn) for turn in turns]
        finally:
            await client.aclose()

    return asyncio.run(run())


def test_only_what_is_set_is_sent(server: ModelServer, ask: Ask) -> None:
    ask("[a] hello")
    request = server.requests[0]
    assert request.path == "/v1/chat/completions"
    assert request.json == {
        "model": "m",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "[a] hello"}],
    }
    assert sorted(request.headers) == [
        *("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent")
    ]
    assert request.headers["user-agent"].startswith("hermes-run/")


def test_everything_that_is_set_is_sent_and_the_extra_body_wins(server: ModelServer) -> None:
    config = ModelConfig(
        name="m",
        base_url=server.url + "/",
        api_key=" sk-1\n",
        max_tokens=50,
        sampling={"temperature": 0.0, "top_p": None, "stop": ("a", "b"), "seed": 3},
        extra_body={"seed": 4, "provider": {"require_parameters": True}, "chat_template_kwargs": {"x": 1}},
        dialect="openrouter",
        reasoning="high",
        routing={"allowed": ("p",), "ignored": (), "order": ("q", "p"), "sort": "price"},
    )
    talk(config, [User("[a]")])
    request = server.requests[0]
    assert request.headers["authorization"] == "Bearer sk-1"
    body = request.json
    assert body.pop("tools") == [
        {
            "type": "function",
            "function": {
                "name": "terminal",
                "description": "Runs a command.",
                "parameters": TERMINAL.parameters,
            },
        }
    ]
    assert body == {
        "model": "m",
        "max_tokens": 50,
        "temperature": 0.0,
        "stop": ["a", "b"],
        "seed": 4,
        "reasoning": {"effort": "high"},
        "provider": {"only": ["p"], "order": ["q", "p"], "sort": "price", "require_parameters": True},
        "chat_template_kwargs": {"x": 1},
        "messages": [{"role": "user", "content": "[a]"}],
    }


@pytest.mark.parametrize("name", ["messages", "stream", "n"])
def test_what_the_client_sets_itself_is_refused_in_the_extra_body(name: str) -> None:
    with pytest.raises(SpecError, match=f"model.extra_body.{name}"):
        OpenAIClient(ModelConfig(name="m", base_url="http://127.0.0.1:9/v1", extra_body={name: 1}))


def test_the_environment_changes_nothing(
    server: ModelServer, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "OPENAI_API_KEY": "sk-env",
        "OPENAI_ADMIN_KEY": "sk-admin",
        "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
        "OPENAI_ORG_ID": "org-env",
        "OPENAI_PROJECT_ID": "proj-env",
        "OPENAI_CUSTOM_HEADERS": "X-Leak: yes\nAuthorization: Bearer sk-env",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(name, value)
    ask("[a]")
    ask("[a]", api_key="sk-mine")
    plain, keyed = server.requests
    assert "authorization" not in plain.headers
    assert keyed.headers.pop("authorization") == "Bearer sk-mine"
    assert keyed.headers.keys() == plain.headers.keys()
    assert "env" not in f"{plain.headers}{keyed.headers}"
    assert "x-leak" not in plain.headers


def test_a_proxy_is_used_when_the_config_names_one(server: ModelServer) -> None:
    config = ModelConfig(name="m", base_url="http://far.example/v1", proxy=server.url.removesuffix("/v1"))
    [reply] = talk(config, [User("[a]")])
    assert reply.message.text == "ok"
    assert server.requests[0].path == "http://far.example/v1/chat/completions"


def test_the_key_is_in_no_repr() -> None:
    config = ModelConfig(name="m", base_url="http://127.0.0.1:9/v1", api_key="sk-secret")
    assert "sk-secret" not in f"{config!r}{OpenAIClient(config)!r}"


def test_a_conversation_only_grows_at_its_end(server: ModelServer) -> None:
    server.script("[a]", says("", calls=[("terminal", {"command": "ls"})], reasoning="hm"), says("done"))
    config = ModelConfig(name="m", base_url=server.url, max_tokens=9, sampling={"temperature": 0.5})
    opening: list[Message] = [System("be brief"), User("example?"), Assistant("[a] example.")]
    server.respond = lambda request: says("done") if request.turn > 2 else None
    server.script("example", says("", calls=[("terminal", {"command": "ls"})]), says("bye"))
    talk(
        config,
        [User("[a]")],
        [ToolResult("c0", "terminal", '{"output": "x"}')],
        [User("thanks")],
        opening=opening,
    )
    first, second, third = (request.body for request in server.requests)
    assert second.startswith(first.removesuffix(b"]}"))
    assert third.startswith(second.removesuffix(b"]}"))


def test_a_turn_goes_back_as_the_provider_wants_it(server: ModelServer) -> None:
    details = [{"type": "reasoning.encrypted", "data": "Zz==", "index": 0, "odd": None}]
    call = {
        "id": "abc",
        "type": "function",
        "index": 0,
        "function": {"name": "terminal", "arguments": '{"command":\n "ls"}'},
        "extra_content": {"google": {"thought_signature": "sig"}},
    }
    server.script(
        "[a]", says(None, tool_calls=[call], reasoning="hm", reasoning_details=details), says("done")
    )
    talk(ModelConfig(name="m", base_url=server.url), [User("[a]")], [ToolResult("abc", "terminal", "out")])
    _, assistant, result = server.requests[1].messages
    assert assistant == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{key: value for key, value in call.items() if key != "index"}],
        "reasoning_details": details,
    }
    assert result == {"role": "tool", "tool_call_id": "abc", "content": "out"}


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_plain_reasoning_goes_back_under_its_name(server: ModelServer, name: str) -> None:
    extra: dict[str, Any] = {name: "hm"}
    server.script("[a]", says("hello", **extra))
    talk(ModelConfig(name="m", base_url=server.url), [User("[a]")], [User("more")])
    assert server.requests[1].messages[1] == {"role": "assistant", "content": "hello", name: "hm"}


def test_prefilled_calls_are_sent_in_the_wire_form(server: ModelServer) -> None:
    opening: list[Message] = [
        User("q"),
        Assistant("", tool_calls=(ToolCall("x", "t", "{}"),)),
        ToolResult("x", "t", "r"),
    ]
    talk(ModelConfig(name="m", base_url=server.url), [User("[a]")], opening=opening)
    assert server.requests[0].messages[1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "x", "type": "function", "function": {"name": "t", "arguments": "{}"}}],
    }


def test_half_characters_and_odd_ones_are_sent_and_read(server: ModelServer) -> None:
    body = (
        b'{"choices":[{"message":{"content":"half \\ud835 pair \\ud83d\\ude00 \\u2028\\u0000\\ufeff",'
        b'"tool_calls":[{"id":"i","function":{"name":"t","arguments":"{\\"a\\": \\"\\udc00\\"}"}}]}}]}'
    )
    from tests.servers import Answer

    server.respond = lambda request: Answer(body=body) if request.turn == 0 else None
    first, _ = talk(
        ModelConfig(name="m", base_url=server.url),
        [User("prompt with \ud800 half")],
        [ToolResult("i", "t", "caf\udce9")],
    )
    assert first.message.text == "half \U0010d835 pair \U0001f600 \u2028\x00\ufeff"
    assert first.message.tool_calls[0].arguments == '{"a": "\U0010dc00"}'
    user, assistant, result = server.requests[1].messages
    assert user["content"] == "prompt with \U0010d800 half"
    assert assistant["content"] == first.message.text
    assert assistant["tool_calls"][0]["function"]["arguments"] == first.message.tool_calls[0].arguments
    assert result["content"] == "caf\U0010dce9"
    json.loads(server.requests[1].body.decode("utf-8", "strict"))
