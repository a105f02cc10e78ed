"""The pure part of the error table: waits and texts."""

from __future__ import annotations

import json

import pytest

from hermes_run.models.verdicts import RETRY_AFTER_CAP_S, judge_error, retry_after_s, scrub

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
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
    ],
)
def test_retry_after_is_read_as_seconds_or_date_and_capped(
    headers: dict[str, str], wait_s: float | None
) -> None:
    assert retry_after_s(headers, NOON) == wait_s


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


@pytest.mark.parametrize(
    ("status", "message", "cure"),
    [
        (400, "This model does not support assistant message prefill.", "agent.prefill_messages_file"),
        (400, "m does not support tools", "choose a model that calls tools"),
        (404, "No endpoints found that support tool use.", "choose a model that calls tools"),
        (404, "The model `m` does not exist", "model.name"),
        (404, "404 Not Found", "model.base_url"),
        (400, "Unsupported parameter: reasoning_effort", "`reasoning`"),
        (400, "temperature must be at most 1, invalid", "model.sampling"),
        (400, "m is not a valid model ID", "model.name"),
    ],
)
def test_a_refusal_of_all_requests_says_what_to_change(status: int, message: str, cure: str) -> None:
    verdict = judge_error(status, {}, json.dumps({"error": {"message": message}}).encode())
    assert (verdict.kind, cure in verdict.cure) == ("stop", True), verdict
