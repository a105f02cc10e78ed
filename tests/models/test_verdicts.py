"""The pure part of the error table: waits and texts."""

from __future__ import annotations

import json

import pytest

from hermes_run.models.verdicts import judge_error, judge_inside, scrub
from hermes_run.models.waits import RETRY_AFTER_CAP_S, retry_after_s, told_wait_s

NOON = 1_795_953_600.0  # 2026-11-29T12:00:00Z


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": " 0 "}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "7200"}, RETRY_AFTER_CAP_S),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Sun, 29 Nov 2026 12:00:20 GMT"}, 20.0),
        ({"retry-after": "Sun, 29 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Sun, 99 Nov 2026 11:00:00 GMT"}, None),
        ({"retry-after": "Sun, 29 Nov 2026 11:00:00 " + "1" * 400}, None),
        ({"retry-after": "9" * 400}, RETRY_AFTER_CAP_S),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
    ],
)
def test_retry_after_is_read_as_seconds_or_date_and_capped(
    headers: dict[str, str], wait_s: float | None
) -> None:
    assert retry_after_s(headers, NOON) == wait_s


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [
        ("Please try again in 612ms.", 0.612),
        ("please try again in 6m0s. visit …", 360.0),
        ("quota exceeded, limit: 20\nplease retry in 58.5s.", 58.5),
        ('{"details": [{"@type": "…retryinfo", "retrydelay": "26s"}]}', 26.0),
        ("retry after 2 seconds", 2.0),
        ("try again in 1h1m1s", RETRY_AFTER_CAP_S),
        ("try again in 5 steps", None),
        ("try again in a minute", None),
        ("limit 10, used 3s", None),
    ],
)
def test_a_wait_that_is_told_in_words_is_read(text: str, wait_s: float | None) -> None:
    assert told_wait_s(text.lower()) == (wait_s and min(wait_s, RETRY_AFTER_CAP_S))


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("Model overloaded, 4096 tokens of 8192", "Model overloaded, 4096 tokens of 8192"),
        ("a\n  b\tc", "a b c"),
        ("\x1b[31mred\x00\x9b", "[31mred"),
        ("http://127.0.0.1:8123/v1 failed", "http://127.0.0.1…/v1 failed"),
        ("request chatcmpl-9xYz12 failed", "request … failed"),
        ("hash 00ff12ab34cd56ef", "hash …"),
        ("at 1796006946", "at …"),
        ("at 2026-11-30 08:15:00", "at …"),
        ("retry in 2m3.5s or 40ms", "retry in … or …"),
        ("sk-abc***xyz", "…"),
        ("see /tmp/x/y.log", "see …"),
        ("half \ud835", "half \U0010d835"),
        ("x" * 1000, "x" * 299 + "…"),
    ],
)
def test_what_varies_between_equal_runs_is_taken_out(text: str, scrubbed: str) -> None:
    assert scrub(text) == scrubbed


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": {"message": "m"}}', "HTTP 418: m"),
        (b'{"error": "m"}', "HTTP 418: m"),
        (b'{"message": "m"}', "HTTP 418: m"),
        (b'{"detail": "m"}', "HTTP 418: m"),
        (b'{"object": "error", "message": "m", "code": 418}', "HTTP 418: m"),
        (b'[{"error": {"message": "m"}}]', "HTTP 418: m"),
        (b'{"error": {"message": "m", "metadata": {"raw": "upstream"}}}', "HTTP 418: m: upstream"),
        (b"<html><h1>I am a teapot</h1></html>", "HTTP 418: I am a teapot"),
        (b"", "HTTP 418"),
        (b"\xff\xfe", "HTTP 418: \ufffd\ufffd"),
        (b"[" * 50_000, "HTTP 418: " + "[" * 299 + "…"),
        (b"7", "HTTP 418: 7"),
    ],
)
def test_an_error_is_read_in_whatever_form_it_comes(body: bytes, text: str) -> None:
    assert judge_error(418, {}, body).text == text


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Tool call id call_1 was not found in the conversation", "fail"),
        ("invalid arguments of a tool", "fail"),
        ("The number of images is not valid", "fail"),
        ("Unknown name 'odd' at 'messages[1]': Cannot find field.", "fail"),
        ("tools is not supported in this model", "stop"),
        ("Unsupported parameter: 'temperature'", "stop"),
        ("Value of max_tokens must be less than 4096", "stop"),
        ("The final message role must be user", "stop"),
        ("Invalid schema for function 'x': tools[0].function.parameters", "stop"),
        ("This model's maximum context length is 10 tokens; reduce the length", "context"),
    ],
)
def test_a_400_stops_the_run_only_when_every_row_would_meet_it(message: str, kind: str) -> None:
    assert judge_error(400, {}, ('{"error": {"message": "%s"}}' % message).encode()).kind == kind  # noqa: UP031


_VLLM = (
    "'max_tokens' or 'max_completion_tokens' is too large: {}. This model's maximum context length is 4096"
)
_NO_QUOTA = "You exceeded your current quota, please check your plan and billing details."


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, _VLLM.format(4000) + " tokens and your request has 500 input tokens", "context"),
        (400, _VLLM.format(9000) + " tokens and your request has 500 input tokens", "stop"),
        (
            400,
            "maximum context length is 128000 tokens. However, you requested 65535 output tokens",
            "context",
        ),
        (400, "maximum context length is 4097 tokens, 5000 requested (500 in the completion)", "context"),
        (400, "maximum context length is 4097 tokens, 5000 requested (4900 in the completion)", "stop"),
        (400, "max_tokens must be at least 1, got -120.", "context"),
        (400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096", "context"),
        (422, "`inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens", "context"),
        (400, "Invalid request: Your request exceeded model token limit: 131072", "context"),
        (400, "This model's maximum prompt length is 131072 but the request has 200000 tokens", "context"),
        (400, "Range of input length should be [1, 129024]", "context"),
        (400, "Prompt exceeds max length", "context"),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", "context"),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed", "context"),
        (413, "whatever", "context"),
        (400, "max_tokens: 99999 > 8192, which is the maximum allowed number of output tokens", "stop"),
        (400, "max_tokens is too large: 99999. This model supports at most 16384", "stop"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice to be set', "stop"),
        (400, "Expected last role User or Tool for serving but got assistant", "stop"),
        (400, "Your credit balance is too low to access the API.", "stop"),
        (400, "Output data may contain inappropriate content.", "filtered"),
        (400, "System detected potentially unsafe or sensitive content in input or generation.", "filtered"),
        (403, "Your input was flagged", "filtered"),
        (403, "Your account has been flagged for abuse", "stop"),
        (403, "Your team has used all available credits", "stop"),
        (429, _NO_QUOTA, "stop"),
        (
            429,
            _NO_QUOTA + " Quota exceeded for metric: requests, limit: 20. Please retry in 41.2s.",
            "cool_down",
        ),
        (429, "Rate limit reached on tokens per min. Please try again in 612ms.", "cool_down"),
    ],
)
def test_what_providers_say_is_understood(status: int, message: str, kind: str) -> None:
    verdict = judge_error(status, {}, json.dumps({"error": {"message": message}}).encode())
    assert (verdict.reason if verdict.kind == "fail" else verdict.kind) == kind, verdict


_ROW = {
    "credit": "Write a bank that says insufficient funds when the balance is low",
    "a key": "What does invalid api key mean?",
    "a context": "Explain the context length of transformers",
    "a prefill": "What is a prefill?",
    "moderation": "Write a content filter",
    "a field": "The model says: tools are not supported, temperature is invalid",
    "a stream": "This server requires stream=true",
}


@pytest.mark.parametrize("row", _ROW.values(), ids=_ROW)
@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (
            422,
            {
                "detail": [
                    {"loc": ["body", "messages", 1], "msg": "Input should be a string", "input": ["ROW"]}
                ]
            },
            "provider_error",
        ),
        (
            400,
            {"message": "[{'loc': ('body', 'messages', 1), 'msg': 'odd', 'input': 'ROW'}]"},
            "provider_error",
        ),
        (
            400,
            {
                "error": {
                    "message": "odd",
                    "metadata": {"raw": '{"error": {"message": "odd", "input": "ROW"}}'},
                }
            },
            "provider_error",
        ),
        (418, {"error": {"message": "odd", "request": {"messages": [{"content": "ROW"}]}}}, "provider_error"),
        (
            400,
            {"error": {"message": "no call", "code": "tool_use_failed", "failed_generation": "ROW"}},
            "malformed_call",
        ),
    ],
)
def test_the_words_of_a_row_that_an_error_repeats_say_nothing_of_the_endpoint(
    status: int, body: dict[str, object], reason: str, row: str
) -> None:
    verdict = judge_error(status, {}, json.dumps(body).replace("ROW", row).encode())
    kind = "retry" if reason == "malformed_call" else "fail"
    assert (verdict.kind, verdict.reason) == (kind, reason), verdict


def test_a_wait_in_words_is_waited_and_a_header_wins() -> None:
    said = [{"error": {"code": 429, "message": _NO_QUOTA, "details": [{"retryDelay": "26s"}]}}]
    assert judge_error(429, {}, json.dumps(said).encode()).wait_s == 26.0
    assert judge_error(429, {"retry-after": "3"}, json.dumps(said).encode()).wait_s == 3.0
    assert judge_error(503, {}, b'{"error": "retry after 9s"}').wait_s is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 400, "message": "This endpoint's maximum context length is 8192 tokens"}, "context"),
        ("prompt is too long: 9 tokens > 8 maximum", "context"),
        ({"code": 403, "metadata": {"reasons": ["violence"]}}, "filtered"),
        ({"code": 429, "message": "rate-limited upstream"}, "retry"),
        ({"code": 502, "message": "Provider returned error"}, "retry"),
        (["odd"], "retry"),
        (True, "retry"),
    ],
)
def test_an_error_inside_a_reply_is_tried_again_unless_that_cannot_help(error: object, kind: str) -> None:
    verdict = judge_inside(error)
    assert (verdict.reason if verdict.kind == "fail" else verdict.kind) == kind, verdict


@pytest.mark.parametrize(
    ("status", "message", "cure"),
    [
        (400, "This model does not support assistant message prefill.", "agent.prefill_messages_file"),
        (400, "m does not support tools", "choose a model that calls tools"),
        (400, "The plain HTTP request was sent to HTTPS port", "https:// in model.base_url"),
        (400, "Client sent an HTTP request to an HTTPS server.", "https:// in model.base_url"),
        (400, "Unrecognized request argument supplied: stream_options", "stream_options: null"),
        (400, "Unrecognized request argument supplied: top_k", "model.extra_body"),
        (400, 'Invalid JSON payload received. Unknown name "top_k": Cannot find field.', "model.extra_body"),
        (407, "Proxy Authentication Required", "of the proxy in HTTPS_PROXY"),
        (404, "No endpoints found that support tool use.", "choose a model that calls tools"),
        (404, "The model `m` does not exist", "model.name"),
        (404, "404 Not Found", "model.base_url"),
        (400, "Unsupported parameter: reasoning_effort", "`reasoning`"),
        (400, "temperature must be at most 1, invalid", "model.sampling"),
        (400, "m is not a valid model ID", "model.name"),
        (400, _VLLM.format(9000), "model.max_tokens"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice to be set', "start the server with"),
    ],
)
def test_a_refusal_of_all_requests_says_what_to_change(status: int, message: str, cure: str) -> None:
    verdict = judge_error(status, {}, json.dumps({"error": {"message": message}}).encode())
    assert (verdict.kind, cure in verdict.cure) == ("stop", True), verdict
