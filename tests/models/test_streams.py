"""Replies as streams of events: put together, cut, silent, abandoned."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.messages import ToolCall, User
from hermes_run.core.task import PromptTask
from hermes_run.errors import ProviderError, RequestRefused
from hermes_run.models.config import ModelConfig
from hermes_run.models.openai import OpenAIClient
from hermes_run.models.replies import read_reply
from hermes_run.models.verdicts import Unusable
from tests.models.conftest import QUICK, ask_once
from tests.servers import Answer, events, fails, says

if TYPE_CHECKING:
    from tests.models.conftest import Ask
    from tests.servers import ModelServer


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "x", "model": "served", "choices": [choice], **fields}


USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10, "cost": 0.5}
LAST = {"id": "x", "model": "served", "choices": [], "usage": USAGE}


def read(*chunks: dict[str, Any]) -> Any:
    return read_reply(events(*chunks).body, set(), 0)


def test_pieces_add_up_to_the_reply() -> None:
    details = [{"type": "reasoning.text", "index": 0, "text": "let me"}]
    reply = read(
        chunk({"role": "assistant", "content": ""}, provider="Someone"),
        chunk({"reasoning": "let ", "reasoning_details": details}),
        chunk({"reasoning": "me", "reasoning_details": [{**details[0], "text": " see", "signature": "s"}]}),
        chunk({"content": "one "}),
        chunk({"content": "two"}),
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "t", "arguments": ""}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]}),
        chunk({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "u", "arguments": "{}"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}),
        chunk({}, "tool_calls"),
        LAST,
    )
    assert reply.message.text == "one two"
    assert reply.message.reasoning == "let me"
    assert reply.message.tool_calls == (ToolCall("a", "t", '{"x": 1}'), ToolCall("b", "u", "{}"))
    assert reply.message.wire["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "let me see", "signature": "s"}
    ]
    assert (reply.model, reply.provider, reply.usage.total_tokens, reply.usage.cost) == (
        *("served", "Someone"),
        *(10, 0.5),
    )


def test_servers_that_number_all_calls_alike_or_not_at_all() -> None:
    one = {"id": "a", "function": {"name": "t", "arguments": '{"x": 1}'}}
    two = {"id": "b", "function": {"name": "t", "arguments": '{"x": 2}'}}
    for extra in ({"index": 0}, {}):
        reply = read(
            chunk({"tool_calls": [one | extra]}), chunk({"tool_calls": [two | extra]}), chunk({}, "stop")
        )
        assert [call.arguments for call in reply.message.tool_calls] == ['{"x": 1}', '{"x": 2}']


def piece(index: int | None = None, given: str | None = None, **function: Any) -> dict[str, Any]:
    fields = {"index": index, "id": given, "function": function}
    return {name: value for name, value in fields.items() if value is not None}


ONE, TWO = ("t", '{"x": 1}'), ("u", '{"x": 2}')


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        # ids and no index, mixed
        (
            [
                piece(given="a", name="t", arguments='{"x"'),
                piece(given="b", name="u", arguments='{"x"'),
                piece(given="a", arguments=": 1}"),
                piece(given="b", arguments=": 2}"),
            ],
            [ONE, TWO],
        ),
        # neither ids nor different indexes: a name after whole arguments begins another call
        ([piece(name="t", arguments='{"x": 1}'), piece(name="u", arguments='{"x": 2}')], [ONE, TWO]),
        ([piece(0, name="t", arguments='{"x": 1}'), piece(0, name="u", arguments='{"x": 2}')], [ONE, TWO]),
        ([piece(0, name="t", arguments='{"x": 1}'), piece(0, name="t", arguments='{"x": 1}')], [ONE, ONE]),
        # the name again in every piece, an empty one in the end
        (
            [
                piece(0, "a", name="t", arguments='{"x"'),
                piece(0, "a", name="t", arguments=": 1}"),
                piece(0, name="t", arguments=""),
            ],
            [ONE],
        ),
        # an id of its own in every piece
        ([piece(0, "a", name="t", arguments=""), piece(0, "b", arguments='{"x": 1}')], [ONE]),
        # names in pieces, whether each goes on or begins anew
        ([piece(0, "a", name="ter"), piece(0, name="minal"), piece(0, arguments="{}")], [("terminal", "{}")]),
        (
            [piece(0, "a", name="ter"), piece(0, name="terminal"), piece(0, arguments="{}")],
            [("terminal", "{}")],
        ),
        ([piece(0, "a", name="t", arguments=None), piece(0, name="", arguments='{"x": 1}')], [ONE]),
    ],
)
def test_pieces_of_calls_come_together_however_they_are_marked(
    pieces: list[dict[str, Any]], calls: list[tuple[str, str]]
) -> None:
    for chunks in ([chunk({"tool_calls": [each]}) for each in pieces], [chunk({"tool_calls": pieces})]):
        reply = read(*chunks, chunk({}, "tool_calls"))
        assert [(call.name, call.arguments) for call in reply.message.tool_calls] == calls


def test_content_may_change_between_text_and_parts() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    reply = read(
        chunk({"content": [thinking]}),
        chunk({"content": "a"}),
        chunk({"content": [{"type": "text", "text": "b"}]}),
        chunk({"content": "c"}),
        chunk({}, "stop"),
    )
    assert (reply.message.text, reply.message.reasoning) == ("abc", "hm")


def test_other_choices_and_empty_events_are_no_part_of_the_reply() -> None:
    both = [{"index": 1, "delta": {"content": "B"}}, {"index": 0, "delta": {"content": "A"}}]
    body = events({"choices": both}, {"choices": 7}, chunk({}, "stop")).body
    assert read_reply(b"data:\n\ndata: \n\n" + body, set(), 0).message.text == "A"


def test_a_usage_of_zeros_takes_no_other_ones_place() -> None:
    zeros = {"id": "x", "choices": [], "usage": dict.fromkeys(USAGE, 0)}
    assert read(chunk({"content": "a"}, "stop"), LAST, zeros).usage.total_tokens == 10
    in_choice = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}]}
    assert read(chunk({"content": "a"}), in_choice).usage.total_tokens == 10


def test_a_whole_message_in_the_end_takes_the_place_of_its_pieces() -> None:
    whole = {"index": 0, "message": {"content": "ab", "tool_calls": [piece(given="a", name="t")]}}
    reply = read(chunk({"content": "a"}), {"choices": [whole | {"finish_reason": "tool_calls"}]})
    assert (reply.message.text, [call.name for call in reply.message.tool_calls]) == ("ab", ["t"])


def test_a_stream_that_is_done_and_stays_open_is_taken(server: ModelServer, ask: Ask) -> None:
    said = events(chunk({"content": "hi"}), chunk({}, "stop")).body
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(said), said)
    for raw in (chunked, head + b"\r\n" + said):
        server.script("[a]", Answer(raw=(raw,), drop="hang"))
        assert ask("[a]", stream=True, request_timeout_s=60).message.text == "hi"
    assert len(server.requests) == 2


def test_a_whole_message_instead_of_pieces_is_fine() -> None:
    body = b'data: {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}\n\n'
    assert read_reply(body, set(), 0).message.text == "hi"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'data: {"choices": [{"delta": {"content": "half"}}]}\n\n', "the stream broke off"),
        (b"data: [DONE]\n\n", "a reply without choices"),
        (b'data: {"choices": [{"delta": {"con\n\ndata: [DONE]\n\n', "the reply is no JSON"),
        (b"data: 7\n\ndata: [DONE]\n\n", "the reply is no JSON"),
        (b": PROCESSING\n\n: PROCESSING\n\n", "the stream broke off"),
        (
            b'data: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: {"error": "upstream"}\n\n',
            "an error inside the reply: upstream",
        ),
        (
            b'data: {"choices": [{"delta": {"content": ""}, "finish_reason": "error"}]}\n\n',
            "the provider broke off the reply",
        ),
    ],
)
def test_what_is_no_whole_stream_is_tried_again(body: bytes, text: str) -> None:
    with pytest.raises(Unusable, match=text) as caught:
        read_reply(body, set(), 0)
    assert caught.value.verdict.kind == "retry"


def test_line_ends_comments_and_spaces_are_as_servers_like_them() -> None:
    first = json.dumps(chunk({"content": "a"}, "stop")).encode()
    for body in (
        b"\xef\xbb\xbfdata:" + first + b"\r\n\r\n: ping\r\n\r\ndata:[DONE]\r\n\r\n",
        b"event: message\nid: 1\ndata: " + first + b"\n\ndata: [DONE]",
        b": OPENROUTER PROCESSING\n\ndata: " + first + b"\n\n",
    ):
        assert read_reply(body, set(), 0).message.text == "a"


def test_streaming_is_asked_for_with_usage_and_read(server: ModelServer, ask: Ask) -> None:
    server.script("[a]", events(chunk({"content": "hi"}), chunk({}, "stop"), LAST))
    reply = ask("[a]", stream=True)
    assert (reply.message.text, reply.usage.total_tokens) == ("hi", 10)
    body = server.requests[0].json
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    assert list(body)[-1] == "messages"
    assert server.requests[0].headers["accept"] == "text/event-stream"
    ask("[a]", stream=True, extra_body={"stream_options": None})
    assert "stream_options" not in server.requests[1].json


def test_a_plain_reply_to_a_stream_and_a_stream_unasked_are_taken(server: ModelServer, ask: Ask) -> None:
    server.script("[a]", says("plain"))
    assert ask("[a]", stream=True).message.text == "plain"
    server.script("[b]", events(chunk({"content": "hi"}), chunk({}, "stop")))
    assert ask("[b]").message.text == "hi"


@pytest.mark.parametrize(
    "text",
    [
        "This model only support stream mode, please enable the stream parameter to access the model.",
        "Stream must be set to true",
        "non-streaming requests are not supported by this model",
    ],
)
def test_a_server_that_only_streams_is_found_out(server: ModelServer, ask: Ask, text: str) -> None:
    stream = events(chunk({"content": "hi"}), chunk({}, "stop"))
    server.respond = lambda request: stream if request.json.get("stream") else fails(400, text)
    assert ask("[a]").message.text == "hi"
    assert len(server.requests) == 2


def test_a_server_that_wants_no_stream_and_only_streams_stops_the_run(server: ModelServer, ask: Ask) -> None:
    server.script("[a]", fails(400, "This model only supports streaming"))
    with pytest.raises(RequestRefused, match="only supports streaming"):
        ask("[a]")
    assert len(server.requests) == 2


def test_a_stream_may_pause_and_not_be_silent(server: ModelServer, ask: Ask) -> None:
    pieces = [chunk({"content": "a"}), chunk({"content": "b"}), chunk({}, "stop")]
    server.script("[a]", events(*pieces, pause_s=0.15))
    assert ask("[a]", stream=True, idle_timeout_s=0.4).message.text == "ab"
    server.script("[b]", events(*pieces, pause_s=1.0), says("fine"))
    assert ask("[b]", stream=True, idle_timeout_s=0.2).message.text == "fine"
    server.script("[c]", Answer(drop="hang"))
    with pytest.raises(ProviderError, match=r"the stream was silent for 0\.1 s \(model\.idle_timeout_s\)"):
        ask("[c]", stream=True, idle_timeout_s=0.1)


def test_silence_is_no_matter_without_a_stream(server: ModelServer, ask: Ask) -> None:
    server.script("[a]", says("late", delay_s=0.4))
    assert ask("[a]", idle_timeout_s=0.1).message.text == "late"


def test_streams_that_are_abandoned_give_their_connections_back(server: ModelServer) -> None:
    """Every tenth one is dropped in the middle; the others come, and in the end no socket is left."""
    pieces = [chunk({"content": "a"}), chunk({"content": "b"}), chunk({}, "stop")]
    server.respond = lambda _: events(*pieces, pause_s=0.02)

    async def run() -> int:
        client = OpenAIClient(
            ModelConfig(name="m", base_url=server.url, stream=True, max_concurrency=100), QUICK
        )

        async def call(number: int) -> bool:
            chat = client.start(PromptTask(f"{number}#0", 0, ""), [], [])
            try:
                async with asyncio.timeout(0.03 if number % 10 == 0 else 30):
                    return (await chat.ask([User("[a]")])).message.text == "ab"
            except TimeoutError:
                return False

        came = await asyncio.gather(*[call(number) for number in range(100)])
        assert client.replicas.all[0].gate.in_flight == 0
        await client.aclose()
        return sum(came)

    assert 90 <= asyncio.run(run()) <= 100
    for _ in range(100):
        if server.open_connections == 0:
            break
        asyncio.run(asyncio.sleep(0.05))
    assert server.open_connections == 0


def test_the_reply_of_a_stream_goes_back_like_any_other(server: ModelServer) -> None:
    call = {"index": 0, "id": "abc", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    server.script(
        "[a]",
        events(chunk({"reasoning_content": "hm"}), chunk({"tool_calls": [call]}), chunk({}, "tool_calls")),
        says("done"),
    )

    async def run() -> None:
        client = OpenAIClient(ModelConfig(name="m", base_url=server.url, stream=True), QUICK)
        chat = client.start(PromptTask("k#0", 0, ""), [], [])
        await chat.ask([User("[a]")])
        await chat.ask([User("more")])
        await client.aclose()

    asyncio.run(run())
    assert server.requests[1].messages[1] == {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [{key: value for key, value in call.items() if key != "index"}],
    }


def test_a_stream_may_come_through_a_proxy(server: ModelServer) -> None:
    server.script("[a]", events(chunk({"content": "hi"}), chunk({}, "stop"), LAST))
    proxy = server.url.removesuffix("/v1")
    reply = ask_once("http://far.example/v1", "[a]", proxy=proxy, stream=True, idle_timeout_s=5)
    assert reply.message.text == "hi"
    assert server.requests[0].json["stream"] is True
