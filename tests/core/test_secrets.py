from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest

from hermes_run.core.secrets import MARK, make_redactor

KEY = 'sk-Live_9/zÿ+="quoted"&x'


@pytest.mark.parametrize(
    "form",
    [
        KEY,
        json.dumps(KEY)[1:-1],
        quote(KEY, safe=""),
        quote_plus(KEY),
        quote(KEY, safe="").replace("%2F", "%2f").replace("%3D", "%3d").replace("%2B", "%2b"),
        KEY.encode().hex(),
        repr(KEY),
    ],
)
def test_a_secret_is_taken_out_in_every_form_it_is_written_in(form: str) -> None:
    assert MARK in make_redactor([KEY])(f"before {form} after")
    assert KEY not in make_redactor([KEY])(f"before {form} after")


@pytest.mark.parametrize("before", [b"", b"u", b"us", b"user:", b"Bearer "])
@pytest.mark.parametrize("after", [b"", b"\n", b"/x"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_secret_inside_base64_is_taken_out_wherever_it_begins(
    before: bytes, after: bytes, encode: object
) -> None:
    key = b"sk-or-v1-0123456789abcdef"
    text = encode(before + key + after).decode()  # type: ignore[operator]
    left = make_redactor([key.decode()])(text).replace(MARK, "")
    assert len(left) * 6 / 8 < len(before) + len(after) + 4


def test_text_without_the_secret_stays_as_it_is() -> None:
    assert make_redactor([KEY])("sk-other and nothing else") == "sk-other and nothing else"


def test_several_secrets_are_taken_out_and_the_longer_one_whole() -> None:
    redact = make_redactor(["secret", "secret-long", "other-one"])
    assert redact("secret-long, secret, other-one") == f"{MARK}, {MARK}, {MARK}"


def test_a_value_too_short_to_be_a_secret_leaves_the_text_readable() -> None:
    assert make_redactor(["", "x", "abc"])("x abc example") == "x abc example"
