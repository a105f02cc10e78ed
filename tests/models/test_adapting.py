"""What an endpoint wants to be sent otherwise, and is sent so, once."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from hermes_run.core.messages import ToolResult, User
from hermes_run.core.task import PromptTask
from hermes_run.errors import EnvironmentStop, OutOfCredit, ProviderError, RequestRefused
from hermes_run.models.config import ModelConfig
from hermes_run.models.openai import OpenAIClient
from tests.models.conftest import QUICK
from tests.servers import Answer, Request, fails, says

if TYPE_CHECKING:
    from tests.models.conftest import Ask
    from tests.servers import ModelServer

POOR = (
    "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only"
    " afford 4000. To increase, visit the settings and upgrade to a paid account"
)
PAGE = Answer(body=b"<!DOCTYPE html><html><body>Welcome</body></html>", headers={"Content-Type": "text/html"})


def affords(tokens: int) -> object:
    def respond(request: Request) -> Answer:
        asked = request.json.get("max_tokens", 65536)
        return says() if asked <= tokens else fails(402, POOR.replace("4000", str(tokens)))

    return respond


def test_a_402_that_names_what_is_affordable_lowers_max_tokens_once(server: ModelServer, ask: Ask) -> None:
    server.respond = affords(4000)  # type: ignore[assignment]
    assert ask("[a]").message.text == "ok"
    assert [request.json.get("max_tokens") for request in server.requests] == [None, 4000]
    server.requests.clear()
    assert ask("[a]", max_tokens=9000).message.text == "ok"
    assert [request.json.get("max_tokens") for request in server.requests] == [9000, 4000]


def test_the_rollouts_after_it_ask_for_no_more_than_that(server: ModelServer) -> None:
    server.respond = affords(4000)  # type: ignore[assignment]

    async def run() -> None:
        client = OpenAIClient(ModelConfig(name="m", base_url=server.url), QUICK)
        for number in range(3):
            await client.start(PromptTask(f"{number}#0", 0, ""), [], []).ask([User("[a]")])
        server.respond = affords(3000)  # type: ignore[assignment]
        await client.start(PromptTask("3#0", 0, ""), [], []).ask([User("[a]")])
        await client.aclose()

    asyncio.run(run())
    asked = [request.json.get("max_tokens") for request in server.requests]
    assert asked == [None, 4000, 4000, 4000, 4000, 3000]


def test_a_second_402_in_one_call_stops_the_run(server: ModelServer, ask: Ask) -> None:
    server.script("[a]", fails(402, POOR))
    with pytest.raises(OutOfCredit, match="can only afford 4000"):
        ask("[a]")
    assert len(server.requests) == 2


def test_the_newer_name_of_max_tokens_is_taken_where_it_is_wanted(server: ModelServer, ask: Ask) -> None:
    text = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    server.respond = lambda request: (
        fails(400, text, param="max_tokens") if "max_tokens" in request.json else None
    )
    assert ask("[a]", max_tokens=50).message.text == "ok"
    assert server.requests[1].json["max_completion_tokens"] == 50
    server.respond = lambda _: fails(400, text, param="max_tokens")
    with pytest.raises(RequestRefused):
        ask("[a]", max_tokens=50)


def test_an_endpoint_that_answers_with_web_pages_stops_the_run(server: ModelServer, ask: Ask) -> None:
    server.script("[a]", PAGE)
    with pytest.raises(RequestRefused, match=r"answers with a web page .* as model\.base_url") as caught:
        ask("[a]")
    assert caught.value.exit_code == 4
    assert len(server.requests) == 5


def test_a_web_page_now_and_then_is_one_rollouts_bad_luck(server: ModelServer) -> None:
    server.script("[a]", PAGE, says())
    server.script("[b]", PAGE)

    async def run() -> None:
        client = OpenAIClient(ModelConfig(name="m", base_url=server.url), QUICK)
        await client.start(PromptTask("a#0", 0, ""), [], []).ask([User("[a]")])
        with pytest.raises(ProviderError, match="a web page instead of a reply"):
            await client.start(PromptTask("b#0", 0, ""), [], []).ask([User("[b]")])
        await client.aclose()

    asyncio.run(run())


def test_after_a_stop_nobody_asks_any_more(server: ModelServer) -> None:
    """64 rollouts wait for their turn; one is told that the key is no good."""
    server.respond = lambda _: fails(401, "no", {"x": "y"})

    async def run() -> None:
        client = OpenAIClient(ModelConfig(name="m", base_url=server.url, per_minute=6000), QUICK)
        calls = [client.start(PromptTask(f"{n}#0", 0, ""), [], []).ask([User("[a]")]) for n in range(64)]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, EnvironmentStop)
        await client.aclose()

    asyncio.run(run())
    assert len(server.requests) <= 5


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "'messages.1': property 'reasoning_content' is unsupported"}}),
        (400, {"error": {"message": "Extra inputs are not permitted, field: 'messages[1].reasoning'"}}),
        (400, {"error": {"message": "Unknown name \"reasoning\" at 'messages[1]': Cannot find field."}}),
        (400, {"error": {"message": "Please remove the reasoning_content from your message"}}),
        (
            422,
            {"detail": [{"loc": ["body", "messages", 1, "assistant", "reasoning"], "msg": "Extra inputs"}]},
        ),
    ],
)
def test_reasoning_that_an_endpoint_does_not_take_back_is_left_out(
    server: ModelServer, status: int, body: dict[str, object]
) -> None:
    """For all rollouts after the first refusal, and nothing else of the turn."""

    def respond(request: Request) -> Answer:
        if any("reasoning" in message for message in request.messages):
            return Answer(status=status, body=json.dumps(body).encode())
        calls = [] if request.turn else [("terminal", {"command": "ls"})]
        return says("done", calls=calls, reasoning="because")

    server.respond = respond

    async def run() -> list[str]:
        client = OpenAIClient(ModelConfig(name="m", base_url=server.url), QUICK)
        found = []
        for number in range(3):
            chat = client.start(PromptTask(f"{number}#0", 0, ""), [], [])
            first = await chat.ask([User("[a]")])
            found.append(first.message.reasoning)
            reply = await chat.ask([ToolResult(first.message.tool_calls[0].id, "terminal", "{}")])
            found.append(reply.message.text)
        await client.aclose()
        return found

    assert asyncio.run(run()) == ["because", "done"] * 3
    assert len(server.requests) == 7
    last = server.requests[-1].messages[1]
    assert (sorted(last), last["content"]) == (["content", "role", "tool_calls"], "done")
