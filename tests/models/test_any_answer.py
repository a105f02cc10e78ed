"""Whatever an endpoint answers: a reply, or an error that has a name. Never a crash."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_run.errors import ProviderError
from hermes_run.models.replies import read_reply
from hermes_run.models.requests import encode_message
from hermes_run.models.transport import Answer as Arriving
from hermes_run.models.verdicts import Unusable, judge_error
from tests.servers import Answer, ModelServer, says

if TYPE_CHECKING:
    from tests.models.conftest import Ask

TEXTS = st.text(st.characters(codec=None), max_size=20) | st.sampled_from(
    ["stop", "length", "text", "<think>"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(TEXTS, inside, max_size=3),
    max_leaves=8,
)
FUNCTION = st.fixed_dictionaries({}, optional={"name": JSON, "arguments": JSON})
CALL = JSON | st.fixed_dictionaries({}, optional={"id": JSON, "function": JSON | FUNCTION, "extra": JSON})
PART = JSON | st.fixed_dictionaries(
    {}, optional={"type": JSON, "text": JSON, "thinking": JSON, "summary": JSON}
)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "content": JSON | st.lists(PART, max_size=3),
        "reasoning": JSON,
        "reasoning_content": JSON,
        "reasoning_details": JSON | st.lists(PART, max_size=3),
        "tool_calls": JSON | st.lists(CALL, max_size=3),
        "function_call": JSON | FUNCTION,
        "refusal": JSON,
    },
)
DETAILS = st.fixed_dictionaries({}, optional={"cached_tokens": JSON, "reasoning_tokens": JSON})
USAGE = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": JSON,
        "completion_tokens": JSON,
        "total_tokens": JSON,
        "cost": JSON,
        "prompt_tokens_details": JSON | DETAILS,
    },
)
CHOICE = st.fixed_dictionaries(
    {"message": JSON | MESSAGE}, optional={"finish_reason": JSON, "native_finish_reason": JSON, "error": JSON}
)
REPLY = st.fixed_dictionaries(
    {"choices": st.lists(CHOICE, min_size=1, max_size=1)}, optional={"usage": JSON | USAGE, "model": JSON}
)


@given(JSON | REPLY)
def test_any_json_is_a_reply_or_unusable(body: Any) -> None:
    try:
        reply = read_reply(json.dumps(body).encode(), set(), 0)
    except Unusable:
        return
    assert reply.finish_reason in ("stop", "tool_calls", "length")
    assert reply.finish_reason == "length" or reply.message.text.strip() or reply.message.tool_calls
    assert reply.usage.calls == 1
    sent_back = json.loads(encode_message(reply.message))
    assert sent_back["role"] == "assistant"
    f"{reply.message.text}{reply.message.reasoning}{reply.message.tool_calls}".encode()


@given(st.binary(max_size=200) | st.binary(max_size=40).map(lambda end: says("text").body[:-20] + end))
def test_any_bytes_are_a_reply_or_unusable(body: bytes) -> None:
    try:
        read_reply(body, set(), 0)
    except Unusable as unusable:
        assert unusable.verdict.text  # noqa: PT017 - both ways are right


ERROR = st.fixed_dictionaries(
    {},
    optional={"message": JSON, "code": JSON, "type": JSON, "param": JSON, "metadata": JSON, "status": JSON},
)
FORMS = st.fixed_dictionaries({}, optional={"error": JSON | ERROR, "detail": JSON, "message": JSON})


@given(
    st.integers(300, 599),
    st.binary(max_size=100) | (JSON | FORMS).map(lambda value: json.dumps(value).encode()),
    st.text(max_size=30),
)
def test_any_error_has_a_verdict_in_one_line(status: int, body: bytes, retry_after: str) -> None:
    verdict = judge_error(status, {"retry-after": retry_after}, body)
    assert verdict.text.startswith(f"HTTP {status}")
    assert verdict.text.isprintable() or not verdict.text.isascii()
    assert "\n" not in verdict.text
    assert len(verdict.text) < 500


@given(
    st.binary(max_size=60),
    st.lists(st.integers(0, 200), max_size=6),
    st.booleans(),
    st.integers(1, 9),
)
def test_an_answer_may_be_cut_into_pieces_anywhere(
    body: bytes, cuts: list[int], is_chunked: bool, size: int
) -> None:
    if is_chunked:
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        framed = b"".join(b"%X\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + framed
    else:
        whole = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    answer = Arriving()
    is_whole = [answer.feed(whole[begin:end]) for begin, end in itertools.pairwise(places)]
    assert is_whole == [False] * (len(is_whole) - 1) + [True]
    assert bytes(answer.body) == body
    assert not answer.is_last


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (says("", finish_reason="MALFORMED_FUNCTION_CALL"), "malformed_call"),
        (says(None), "empty_reply"),
        (says(None, finish_reason="content_filter"), "filtered"),
        (Answer(body=b'{"error": {"message": "no", "code": 500}}'), "provider_error"),
        (says("half", calls=[("t", '{"a": "b')], finish_reason="length"), ""),
        (says("fine"), ""),
    ],
)
def test_each_way_a_reply_can_fail_has_a_reason_of_its_own(
    server: ModelServer, ask: Ask, answer: Answer, reason: str
) -> None:
    server.script("[g]", answer)
    if reason:
        with pytest.raises(ProviderError) as caught:
            ask("[g]")
        assert caught.value.reason == reason
    else:
        assert ask("[g]").message.text in ("half", "fine")
