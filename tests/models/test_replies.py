"""From the body of a 200 to a Reply."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.messages import Reply, Usage
from hermes_run.core.secrets import forms_of
from hermes_run.models.replies import read_reply, read_usage
from hermes_run.models.verdicts import UNKNOWN_USAGE, Unusable, judge_error
from tests.servers import events, says

if TYPE_CHECKING:
    from collections.abc import Callable


def read(
    message: dict[str, Any], finish: str | None = "stop", used: set[str] | None = None, **choice: Any
) -> Reply:
    body = {"choices": [{"message": message, "finish_reason": finish, **choice}], "model": "real"}
    return read_reply(json.dumps(body).encode(), set() if used is None else used, 7)


def call(name: Any = "t", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **more}


@pytest.mark.parametrize(
    ("message", "reasoning"),
    [
        ({"reasoning": "r", "reasoning_content": "c", "reasoning_details": [{"text": "d"}]}, "r"),
        ({"reasoning": None, "reasoning_content": "c", "reasoning_details": [{"text": "d"}]}, "c"),
        ({"reasoning": "", "reasoning_details": [{"text": "d"}, {"summary": "s"}, {"data": "…"}]}, "d\ns"),
        ({"reasoning": " ", "reasoning_content": " "}, ""),
        ({"reasoning": {"odd": 1}, "reasoning_details": "odd"}, ""),
        (
            {"content": [{"type": "thinking", "thinking": [{"text": "p"}]}, {"type": "text", "text": "hi"}]},
            "p",
        ),
        ({"content": "<think>b</think>hi"}, "b"),
        ({"content": "<REASONING_SCRATCHPAD>b</REASONING_SCRATCHPAD>hi"}, "b"),
    ],
)
def test_reasoning_is_taken_from_the_first_place_that_holds_any(
    message: dict[str, Any], reasoning: str
) -> None:
    reply = read({"content": "hi", **message})
    assert (reply.message.text, reply.message.reasoning) == ("hi", reasoning)


def test_a_block_stays_in_the_text_when_the_reasoning_came_by_itself() -> None:
    reply = read({"content": "<think>x</think>hi", "reasoning": "r"})
    assert reply.message.text == "<think>x</think>hi"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (["a", {"type": "text", "text": "b"}, {"type": "image"}, 3], "ab"),
        ([{"type": "output_text", "text": "x"}], "x"),
        (" kept \n", " kept \n"),
    ],
)
def test_content_may_be_text_or_parts(content: Any, text: str) -> None:
    assert read({"content": content}).message.text == text


@pytest.mark.parametrize(
    "finish", ["stop", "STOP", "end_turn", "eos", "tool_calls", "function_call", None, "odd"]
)
def test_every_normal_ending_is_stop_without_calls_and_tool_calls_with_them(finish: str | None) -> None:
    assert read({"content": "hi"}, finish).finish_reason == "stop"
    assert read({"content": "hi", "tool_calls": [call()]}, finish).finish_reason == "tool_calls"


@pytest.mark.parametrize("finish", ["length", "MAX_TOKENS", "max_tokens"])
def test_a_cut_reply_keeps_its_text_and_loses_its_calls(finish: str) -> None:
    reply = read({"content": "half", "tool_calls": [call(), call(arguments='{"a": "b')]}, finish)
    assert (reply.finish_reason, reply.message.text, reply.message.tool_calls) == ("length", "half", ())
    assert read({"content": None, "tool_calls": [call(arguments='{"a')]}, finish).finish_reason == "length"


@pytest.mark.parametrize(
    ("message", "finish", "choice", "reason"),
    [
        ({"content": ""}, "MALFORMED_FUNCTION_CALL", {}, "malformed_call"),
        ({"content": "text"}, "stop", {"native_finish_reason": "MALFORMED_FUNCTION_CALL"}, "malformed_call"),
        ({"tool_calls": [{"function": {"arguments": "{}"}}]}, "tool_calls", {}, "malformed_call"),
        ({"tool_calls": [{"function": None}]}, "tool_calls", {}, "malformed_call"),
        ({"tool_calls": ["odd"]}, "tool_calls", {}, "malformed_call"),
        ({"content": None}, "stop", {}, "empty_reply"),
        ({"content": " \n"}, None, {}, "empty_reply"),
        ({"content": "", "reasoning": "only thought"}, "stop", {}, "empty_reply"),
        ({"content": "<think>never closed"}, "stop", {}, "empty_reply"),
        ({"content": None, "tool_calls": []}, "tool_calls", {}, "empty_reply"),
        ({"content": "half"}, "error", {}, "provider_error"),
        ({"content": "half"}, "stop", {"error": {"message": "x"}}, "provider_error"),
        ({"content": "half"}, "insufficient_system_resource", {}, "provider_error"),
        ({"content": "half"}, "abort", {}, "provider_error"),
        ({"content": "x"}, "content_filter", {}, "filtered"),
        ({"content": None, "refusal": "no"}, "stop", {}, "filtered"),
        ({"content": [{"type": "refusal", "refusal": "no"}]}, "stop", {}, "filtered"),
    ],
)
def test_no_text_is_ever_invented(
    message: dict[str, Any], finish: str | None, choice: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Unusable) as caught:
        read(message, finish, **choice)
    assert caught.value.verdict.reason == reason
    assert caught.value.usage.calls == 1


def test_ids_are_unique_in_the_conversation_and_the_same_every_time() -> None:
    raw = [call(id="a"), call(id="a"), call(id=""), call(), call(id=5), call(id="call00703")]
    first = [c.id for c in read({"tool_calls": raw}, used={"a"}).message.tool_calls]
    again = [c.id for c in read({"tool_calls": raw}, used={"a"}).message.tool_calls]
    assert first == again
    assert len({*first, "a"}) == 7
    assert all(len(made) == 9 and made.isalnum() for made in first if made != "5")
    assert "5" in first


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ('{"a": 1', '{"a": 1'),
        ({"a": [1, None]}, '{"a":[1,null]}'),
        ([1], "[1]"),
        (None, "{}"),
        ("", "{}"),
        (" {} ", " {} "),
    ],
)
def test_arguments_are_the_text_that_came(given: Any, arguments: str) -> None:
    assert read({"tool_calls": [call(arguments=given)]}).message.tool_calls[0].arguments == arguments


def test_the_old_form_of_a_call_is_read() -> None:
    message = {"content": None, "tool_calls": None, "function_call": {"name": "t", "arguments": "{}"}}
    assert read(message, "function_call").message.tool_calls[0].name == "t"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, Usage(calls=1, calls_without_usage=1, calls_without_cost=1)),
        ({}, Usage(calls=1, calls_without_usage=1, calls_without_cost=1)),
        ("odd", Usage(calls=1, calls_without_usage=1, calls_without_cost=1)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "cost": 0.25,
                "prompt_tokens_details": {"cached_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(9, 4, 13, 3, 2, 0.25, calls=1),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": None,
                "total_tokens": 20,
                "prompt_tokens_details": None,
            },
            Usage(9, 0, 20, calls=1, calls_without_cost=1),
        ),
        ({"prompt_tokens": 9, "cost": 0}, Usage(9, 0, 9, calls=1)),
        ({"prompt_tokens": 9.0, "cost": True}, Usage(9, 0, 9, calls=1, calls_without_cost=1)),
        ({"prompt_tokens": 9, "cost": float("nan")}, Usage(9, 0, 9, calls=1, calls_without_cost=1)),
        (
            {"prompt_tokens": "9", "completion_tokens": "4", "cost": "2.5e-1"},
            Usage(9, 4, 13, cost=0.25, calls=1),
        ),
        ({"prompt_tokens": "many", "cost": "NaN"}, UNKNOWN_USAGE),
        ({"prompt_tokens": True, "completion_tokens": -4}, UNKNOWN_USAGE),
        ({"prompt_tokens": 10**400, "completion_tokens": 1e300}, UNKNOWN_USAGE),
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "cost": 0}, UNKNOWN_USAGE),
        (
            {"prompt_tokens": 0, "completion_tokens": 0, "cost": 0.5},
            Usage(cost=0.5, calls=1, calls_without_usage=1),
        ),
        ({"total_tokens": 57}, Usage(total_tokens=57, calls=1, calls_without_cost=1)),
        ({"input_tokens": 9, "output_tokens": 4}, Usage(9, 4, 13, calls=1, calls_without_cost=1)),
        (
            {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 3},
            Usage(9, 4, 13, calls=1, calls_without_cost=1),
        ),
        ({"prompt_tokens": 9, "cost": {"total_cost": 0.5}}, Usage(9, 0, 9, cost=0.5, calls=1)),
        ({"prompt_tokens": 9, "estimated_cost": 0.5}, Usage(9, 0, 9, cost=0.5, calls=1)),
    ],
)
def test_what_was_not_reported_is_unknown_not_zero(usage: Any, expected: Usage) -> None:
    assert read_usage(usage) == expected


@pytest.mark.parametrize(
    ("more", "cost"),
    [
        ({"is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}}, 0.51),
        ({"is_byok": True, "cost_details": {"upstream_inference_cost": None}}, None),
        ({"is_byok": True}, None),
        ({"is_byok": False, "cost_details": {"upstream_inference_cost": 0.5}}, 0.01),
    ],
)
def test_the_bill_of_a_providers_own_key_is_beside_the_fee(more: dict[str, Any], cost: float | None) -> None:
    assert read_usage({"prompt_tokens": 9, "cost": 0.01, **more}).known_cost == cost


def test_usage_is_found_where_providers_put_it() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 4}
    choice = {"message": {"content": "hi"}, "finish_reason": "stop"}
    for body in ({"choices": [choice | {"usage": usage}]}, {"choices": [choice], "x_groq": {"usage": usage}}):
        assert read_reply(json.dumps(body).encode(), set(), 0).usage.total_tokens == 13


def test_the_first_choice_is_the_one_with_the_least_number() -> None:
    choices = [{"index": place, "message": {"content": str(place)}} for place in (1, 0)]
    assert read_reply(json.dumps({"choices": choices}).encode(), set(), 0).message.text == "0"


def test_the_model_that_served_is_kept() -> None:
    assert read({"content": "hi"}).model == "real"
    assert read_reply(b'{"choices": [{"message": {"content": "x"}}], "model": null}', set(), 0).model == ""


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'"\\ud835"', "\U0010d835"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"caf\xe9"', "caf\U0010dce9"),
        ('"\U0010d835"'.encode(), "\U0010d7ff\U0010d835"),
        (b'"a\\u2028b\\u0000"', "a\u2028b\x00"),
    ],
)
def test_text_that_utf8_cannot_hold_is_replaced_in_the_one_way(raw: bytes, text: str) -> None:
    for begin in (b"", b"\xef\xbb\xbf"):
        body = begin + b'{"choices": [{"message": {"content": ' + raw + b', "reasoning": ' + raw + b"}}]}"
        reply = read_reply(body, set(), 0)
        assert (reply.message.text, reply.message.reasoning) == (text, text)


def test_a_body_nested_too_deeply_is_no_crash() -> None:
    with pytest.raises(Unusable):
        read_reply(b"[" * 100_000, set(), 0)


@pytest.mark.parametrize("escape", [str, lambda body: body.replace("/", "\\/")])
def test_a_key_that_a_reply_repeats_does_not_get_into_the_dataset(escape: Callable[[str], str]) -> None:
    key = "sk-canary/7Zq+Xw9vT3mK5pL2==end"
    call = {
        "id": key,
        "type": "function",
        "function": {"name": "terminal", "arguments": f'{{"command": "{key}"}}'},
    }
    message = {"role": "assistant", "content": f"Bearer {key}", "reasoning": key, "tool_calls": [call]}
    body = {"model": key, "choices": [{"message": message, "finish_reason": "tool_calls"}]}
    reply = read_reply(escape(json.dumps(body)).encode(), set(), 0, key)
    assert key not in repr(reply)
    assert reply.message.text == "Bearer [redacted]"


def test_a_placeholder_for_a_key_is_a_word_like_any_other() -> None:
    body = {"choices": [{"message": {"content": "the list is EMPTY"}, "finish_reason": "stop"}]}
    assert read_reply(json.dumps(body).encode(), set(), 0, "EMPTY").message.text == "the list is EMPTY"


@pytest.mark.parametrize("form", sorted(forms_of("sk-canary/7Zq+Xw9vT3mK5pL2==end")))
def test_no_form_of_the_key_comes_back_in_a_reply(form: str) -> None:
    """Whole, or cut across the events of a stream, in text, reasoning, arguments and what goes back."""
    secret = "sk-canary/7Zq+Xw9vT3mK5pL2==end"
    call = ("terminal", {"command": f"echo {form}"})
    plain = says(f"it is {form}.", calls=[call], reasoning=form, reasoning_details=[{"data": form}])
    half = len(form) // 2
    pieces = [
        {"choices": [{"delta": {"content": part, "reasoning": part}}]} for part in (form[:half], form[half:])
    ]
    for body in (plain.body, events(*pieces, {"choices": [{"delta": {}, "finish_reason": "stop"}]}).body):
        reply = read_reply(body, set(), 0, secret)
        assert form not in str(reply)
        assert "[redacted]" in reply.message.text
    assert form not in str(judge_error(400, {}, f'{{"error": "{form}"}}'.encode(), secret))


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens_details": {"cached_tokens": 7}, "completion_tokens_details": {"reasoning_tokens": 3}},
        {"prompt_cache_hit_tokens": 7, "reasoning_tokens": 3},
        {"cache_read_input_tokens": 7, "completion_tokens_details": {"reasoning_tokens": 3}},
    ],
)
def test_cached_and_reasoning_tokens_are_read_wherever_they_stand(usage: dict[str, Any]) -> None:
    found = read_usage({"prompt_tokens": 10, "completion_tokens": 5, **usage})
    assert (found.cached_tokens, found.reasoning_tokens) == (7, 3)
