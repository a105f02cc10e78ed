"""Every row of the wire's error table, against a real server."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.messages import Usage, User
from hermes_run.core.task import PromptTask
from hermes_run.errors import (
    ContextExceeded,
    CredentialsRefused,
    EndpointUnreachable,
    EnvironmentStop,
    OutOfCredit,
    ProviderError,
    RequestRefused,
)
from hermes_run.models.config import ModelConfig
from hermes_run.models.openai import OpenAIClient
from hermes_run.models.retry import RetryPolicy
from hermes_run.models.verdicts import UNKNOWN_USAGE
from tests.models.conftest import QUICK, ask_once
from tests.servers import Answer, ModelServer, fails, says

if TYPE_CHECKING:
    from tests.models.conftest import Ask

MALFORMED = says("", finish_reason="MALFORMED_FUNCTION_CALL")
EMPTY = says(None)
RETRIED = [
    pytest.param(fails(408), "HTTP 408: no", id="408"),
    pytest.param(fails(409), "HTTP 409: no", id="409"),
    pytest.param(fails(500), "HTTP 500: no", id="500"),
    pytest.param(fails(502), "HTTP 502: no", id="502"),
    pytest.param(fails(503, "overloaded"), "HTTP 503: overloaded", id="503"),
    pytest.param(fails(529), "HTTP 529: no", id="529"),
    pytest.param(Answer(drop="before"), "connection dropped before the reply", id="drop"),
    pytest.param(
        Answer(drop="middle", body=says().body), "connection dropped in the middle of the reply", id="dropmid"
    ),
    pytest.param(Answer(body=says().body[:40]), "the reply is no JSON", id="cut JSON"),
    pytest.param(Answer(body=b""), "the reply is no JSON", id="empty body"),
    pytest.param(Answer(body=b"busy"), "the reply is no JSON", id="text"),
    pytest.param(Answer(body=b"[1]"), "the reply is no JSON object", id="a list"),
    pytest.param(Answer(body=b'{"choices": []}'), "a reply without choices", id="no choices"),
    pytest.param(Answer(body=b'{"choices": [{}]}'), "a reply without a message", id="no message"),
    pytest.param(
        Answer(body=b'{"error": {"message": "upstream", "code": 502}}'),
        "an error inside the reply: upstream",
        id="error in a 200",
    ),
    pytest.param(
        Answer(body=b'{"choices": [{"message": {"content": 7}, "finish_reason": "stop"}]}'),
        "a reply whose content is no text",
        id="content is a number",
    ),
    pytest.param(
        Answer(body=b"not compressed", headers={"Content-Encoding": "gzip"}),
        "the reply cannot be decompressed",
        id="bad gzip",
    ),
]


@pytest.mark.parametrize(("answer", "text"), RETRIED)
def test_what_may_pass_is_tried_five_times_then_fails_the_rollout(
    server: ModelServer, ask: Ask, answer: Answer, text: str
) -> None:
    server.script("[a]", answer)
    with pytest.raises(ProviderError) as caught:
        ask("[a]")
    assert caught.value.reason == "provider_error"
    assert str(caught.value).startswith(text)
    assert str(caught.value).endswith("(5 attempts)")
    assert len(server.requests) == 5


@pytest.mark.parametrize(("answer", "text"), RETRIED)
def test_what_may_pass_and_passes_gives_the_reply(
    server: ModelServer, ask: Ask, answer: Answer, text: str
) -> None:
    server.script("[a]", answer, answer, says("fine"))
    assert ask("[a]").message.text == "fine", text
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(fails(401, "Incorrect API key provided."), CredentialsRefused, id="401"),
        pytest.param(fails(403, "this key may not"), CredentialsRefused, id="403"),
        pytest.param(
            fails(400, "API key not valid. Please pass a valid API key."), CredentialsRefused, id="400 key"
        ),
        pytest.param(fails(402, "Insufficient credits"), OutOfCredit, id="402"),
        pytest.param(fails(429, "You exceeded", code="insufficient_quota"), OutOfCredit, id="429 quota"),
        pytest.param(fails(404, "The model `m` does not exist"), RequestRefused, id="404"),
        pytest.param(fails(405), RequestRefused, id="405"),
        pytest.param(
            fails(308, headers={"Location": "https://elsewhere.example/v1"}), RequestRefused, id="308"
        ),
        pytest.param(
            fails(400, "Unsupported value", param="reasoning_effort"), RequestRefused, id="400 param"
        ),
        pytest.param(fails(400, "m does not support tools"), RequestRefused, id="400 tools"),
        pytest.param(
            fails(400, "Unrecognized request argument: reasoning"), RequestRefused, id="400 reasoning"
        ),
        pytest.param(
            fails(400, "This model does not support assistant message prefill."),
            RequestRefused,
            id="400 prefill",
        ),
        pytest.param(fails(400, "m is not a valid model ID"), RequestRefused, id="400 model"),
        pytest.param(
            Answer(
                422, b'{"detail": [{"loc": ["body", "tools", 0], "msg": "Extra inputs are not permitted"}]}'
            ),
            RequestRefused,
            id="422 tools",
        ),
    ],
)
def test_what_every_row_would_meet_stops_the_run_at_once(
    server: ModelServer, ask: Ask, answer: Answer, error: type[EnvironmentStop]
) -> None:
    server.script("[a]", answer)
    with pytest.raises(error) as caught:
        ask("[a]")
    assert caught.value.exit_code == 4
    assert f"HTTP {answer.status}" in str(caught.value)
    assert "Cure:" in str(caught.value)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(fails(400, "Invalid request (injected)."), "provider_error", id="400"),
        pytest.param(
            fails(
                400, "messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
            ),
            "provider_error",
            id="400 of one row",
        ),
        pytest.param(
            fails(400, "Invalid 'messages[3].tool_calls[0].id'", param="messages[3].tool_calls[0].id"),
            "provider_error",
            id="400 messages",
        ),
        pytest.param(fails(418), "provider_error", id="418"),
        pytest.param(fails(403, "Your input was flagged by moderation"), "filtered", id="403 moderation"),
        pytest.param(
            fails(403, "no", metadata={"reasons": ["violence"], "flagged_input": "…"}),
            "filtered",
            id="403 metadata",
        ),
        pytest.param(fails(400, "filtered", code="content_filter"), "filtered", id="400 filter"),
        pytest.param(says("some", finish_reason="content_filter"), "filtered", id="content_filter"),
        pytest.param(says(None, finish_reason="SAFETY"), "filtered", id="safety"),
        pytest.param(says(None, refusal="I cannot"), "filtered", id="refusal"),
    ],
)
def test_what_no_retry_can_help_fails_the_rollout_at_once(
    server: ModelServer, ask: Ask, answer: Answer, reason: str
) -> None:
    server.script("[a]", answer)
    with pytest.raises(ProviderError) as caught:
        ask("[a]")
    assert caught.value.reason == reason
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        fails(400, "This model's maximum context length is 8192 tokens.", code="context_length_exceeded"),
        fails(400, "prompt is too long: 210000 tokens > 200000 maximum"),
        fails(400, "the request exceeds the available context size"),
        fails(413, "payload too large"),
    ],
)
def test_a_conversation_that_is_too_long_ends_partial(server: ModelServer, ask: Ask, answer: Answer) -> None:
    server.script("[a]", answer)
    with pytest.raises(ContextExceeded):
        ask("[a]")
    assert len(server.requests) == 1


@pytest.mark.parametrize(("answer", "reason"), [(MALFORMED, "malformed_call"), (EMPTY, "empty_reply")])
def test_a_reply_that_is_none_is_tried_three_times_and_all_are_billed(
    server: ModelServer, ask: Ask, answer: Answer, reason: str
) -> None:
    server.script("[a]", answer)
    with pytest.raises(ProviderError) as caught:
        ask("[a]")
    assert caught.value.reason == reason
    assert len(server.requests) == 3
    assert caught.value.usage == Usage(30, 15, 45, calls=3, calls_without_cost=3)


def test_thrown_away_replies_are_part_of_the_usage_of_the_one_that_counts(
    server: ModelServer, ask: Ask
) -> None:
    server.script("[a]", EMPTY, MALFORMED, fails(500), Answer(body=b"{"), says("fine"))
    usage = ask("[a]").usage
    assert (usage.prompt_tokens, usage.calls, usage.calls_without_usage) == (30, 4, 1)


@pytest.mark.slow
def test_rate_limits_use_up_no_retries(server: ModelServer, ask: Ask) -> None:
    limit = fails(429, "slow down", {"Retry-After": "0"})
    server.script("[a]", *[limit] * 12, *[fails(500)] * 4, says("fine"))
    assert ask("[a]").message.text == "fine"
    assert len(server.requests) == 17


def test_retry_after_is_waited(server: ModelServer, ask: Ask) -> None:
    server.script("[a]", fails(429, "slow down", {"Retry-After": "1"}), says("fine"))
    ask("[a]")
    first, second = server.requests
    assert second.arrived_at - first.arrived_at >= 1.0


def test_no_credit_for_the_moment_is_waited_for(server: ModelServer, ask: Ask) -> None:
    server.script("[a]", fails(402, "top-up under way", {"Retry-After": "0"}), says("fine"))
    assert ask("[a]").message.text == "fine"


def test_nothing_but_rate_limits_for_long_stops_the_run(server: ModelServer) -> None:
    server.script("[a]", fails(429, "slow down", {"Retry-After": "0.05"}))
    policy = type(QUICK)(give_up_s=0.2)
    with pytest.raises(RequestRefused, match="nothing but refusals"):
        ask_once(server.url, "[a]", policy)


def test_a_hang_is_a_retryable_error(server: ModelServer, ask: Ask) -> None:
    server.script("[a]", Answer(drop="hang"), says("fine"))
    reply = ask("[a]", request_timeout_s=0.3)
    assert reply.message.text == "fine"
    assert (reply.usage.calls, reply.usage.calls_without_usage) == (2, 1)  # what was cut off may be billed
    server.script("[b]", Answer(drop="hang"))
    with pytest.raises(ProviderError, match=r"no reply within 0\.2 s .* \(5 attempts\)"):
        ask("[b]", request_timeout_s=0.2)


def test_an_endpoint_that_was_never_reached_stops_the_run() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    with pytest.raises(EndpointUnreachable, match=r"never reached: connection refused \(5 attempts\)"):
        ask_once(url, "hi")


def test_an_endpoint_that_goes_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """That uses up no attempt: the connection that it closed may take one, and there are two here."""

    async def run() -> str:
        with ModelServer() as first:
            port = first.port
            client = OpenAIClient(ModelConfig(name="m", base_url=first.url), RetryPolicy(attempts=2))
            chat = client.start(PromptTask("k#0", 0, ""), [], [])
            await chat.ask([User("one")])
        asking = asyncio.ensure_future(chat.ask([User("two")]))
        while "cannot be reached: connection refused; its calls wait" not in caplog.text:
            await asyncio.sleep(0.01)
            assert not asking.done()
        with ModelServer(port):
            reply = await asking
            await client.aclose()
        return reply.message.text

    assert asyncio.run(asyncio.wait_for(run(), 60)) == "ok"


def test_an_endpoint_that_stays_away_stops_the_run() -> None:
    async def run() -> None:
        policy = RetryPolicy(base_s=0.001, cap_s=0.01, gone_s=0.2)
        with ModelServer() as first:
            client = OpenAIClient(ModelConfig(name="m", base_url=first.url), policy)
            chat = client.start(PromptTask("k#0", 0, ""), [], [])
            await chat.ask([User("one")])
        try:
            await chat.ask([User("two")])
        finally:
            await client.aclose()

    with pytest.raises(EndpointUnreachable, match="cannot be reached any more: connection refused"):
        asyncio.run(asyncio.wait_for(run(), 60))


def test_a_host_that_does_not_exist_stops_the_run() -> None:
    with pytest.raises(EndpointUnreachable, match="host name is unknown"):
        ask_once("http://no-such-host.invalid/v1", "hi")


@pytest.mark.parametrize(
    ("answers", "unsettled"),
    [
        ([says("late", delay_s=60)], UNKNOWN_USAGE),
        (
            [EMPTY, says("late", delay_s=60)],
            Usage(10, 5, 15, calls=2, calls_without_usage=1, calls_without_cost=2),
        ),
        ([fails(429, headers={"Retry-After": "60"})], Usage()),
    ],
)
def test_what_is_in_flight_when_a_call_is_given_up_may_be_billed(
    server: ModelServer, answers: list[Answer], unsettled: Usage
) -> None:
    server.script("[a]", *answers)

    async def run() -> Usage:
        client = OpenAIClient(ModelConfig(name="m", base_url=server.url), QUICK)
        chat = client.start(PromptTask("k#0", 0, ""), [], [])
        asking = asyncio.create_task(chat.ask([User("[a]")]))
        while len(server.requests) < len(answers):  # noqa: ASYNC110 - the server is in another thread
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await client.aclose()
        return chat.unsettled

    assert asyncio.run(run()) == unsettled


def test_texts_hold_nothing_that_varies_and_no_key(server: ModelServer) -> None:
    varying = (
        "req_0a1B2c3d4e at 2026-11-30T08:15:00.123Z from 10.0.0.7:43210, key sk-verysecret-9 "
        "trace 123e4567-e89b-12d3-a456-426614174000 in /tmp/tmpab12/x, try again in 1.25s"
    )
    server.script("[a]", fails(418, varying))
    with pytest.raises(ProviderError) as caught:
        ask_once(server.url, "[a]", api_key="sk-verysecret-9")
    assert str(caught.value) == "HTTP 418: … at … from 10.0.0.7…, key … trace … in … try again in …"


@pytest.mark.parametrize("seconds", [0.0, 0.2])
def test_errors_do_not_wait_longer_than_they_must(server: ModelServer, ask: Ask, seconds: float) -> None:
    server.script("[a]", fails(503, headers={"Retry-After": str(seconds)}), says("fine"))
    started = time.monotonic()
    ask("[a]")
    assert seconds <= time.monotonic() - started < seconds + 2


def test_a_key_that_no_header_can_hold_is_refused_without_showing_it() -> None:
    from hermes_run.errors import KeyMissing

    for bad in ("sk secret", "sk-se\ncret", "sk-sécret"):
        with pytest.raises(KeyMissing) as caught:
            ask_once("http://127.0.0.1:9/v1", "hi", api_key=bad, api_key_env="MY_KEY")
        assert "MY_KEY" in str(caught.value)
        assert "cret" not in str(caught.value)


def test_the_text_of_a_stop_names_where_the_key_comes_from(server: ModelServer) -> None:
    server.script("[a]", fails(401, "bad key sk-12"))
    config: dict[str, Any] = {"api_key": "sk-12", "api_key_env": "MY_KEY"}
    with pytest.raises(CredentialsRefused) as caught:
        ask_once(server.url, "[a]", **config)
    assert "MY_KEY" in str(caught.value)
    assert "sk-12" not in str(caught.value)
