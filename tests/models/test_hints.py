"""The limits that endpoints tell in their headers."""

from __future__ import annotations

import pytest

from hermes_run.models.hints import Hint, has_hints, read_hints

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("headers", "hints"),
    [
        (
            {
                "x-ratelimit-limit-requests": "500",
                "x-ratelimit-remaining-requests": "499",
                "x-ratelimit-reset-requests": "120ms",
                "x-ratelimit-limit-tokens": "30000",
                "x-ratelimit-remaining-tokens": "12.0",
                "x-ratelimit-reset-tokens": "6m0s",
            },
            [Hint(499, 500, 0.12), Hint(12, 30000, 360, is_tokens=True)],
        ),
        (
            {
                "x-ratelimit-limit": "20",
                "x-ratelimit-remaining": "0",
                "x-ratelimit-reset": str(int((NOW + 30) * 1000)),
            },
            [Hint(0, 20, 30)],
        ),
        ({"x-ratelimit-remaining": "3", "x-ratelimit-reset": str(int(NOW + 9))}, [Hint(3, 0, 9)]),
        (
            {
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "7",
                "anthropic-ratelimit-requests-reset": "2027-01-15T08:00:05Z",
            },
            [Hint(7, 50, 5)],
        ),
        ({"ratelimit-limit": "10", "ratelimit-remaining": "1", "ratelimit-reset": "50"}, [Hint(1, 10, 50)]),
        (
            {"ratelimit-limit": "10, 10;w=1", "ratelimit-remaining": "1", "ratelimit-reset": "1"},
            [Hint(1, 10, 1)],
        ),
        ({"x-ratelimit-remaining-requests": "5"}, []),
        ({"x-ratelimit-remaining": "many", "x-ratelimit-reset": "soon"}, []),
        ({"x-ratelimit-remaining": "-1", "x-ratelimit-reset": "1e9999"}, []),
        ({"x-ratelimit-remaining": "9", "x-ratelimit-reset": "23h59m0s"}, []),
        ({"x-ratelimit-remaining": "9", "x-ratelimit-reset": str(int(NOW - 5))}, [Hint(9, 0, 0)]),
    ],
)
def test_headers_are_read_in_each_form(headers: dict[str, str], hints: list[Hint]) -> None:
    assert read_hints(headers, NOW) == hints
    assert has_hints((name.title().encode(), b"x") for name in headers)


def test_other_headers_are_no_hints() -> None:
    assert not has_hints([(b"Content-Type", b"ratelimit"), (b"X-Request-Id", b"1")])
    assert read_hints({"content-type": "application/json"}) == []
