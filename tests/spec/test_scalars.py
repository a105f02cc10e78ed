from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_run.spec.scalars import ScalarTrap, is_number_text, plain_value, reads_as_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e5", 1e5), ("-1.5e-3", -0.0015), ("1_000", 1000), ("0x1F", 31), ("+3", 3), (".5", 0.5), ("0", 0),
        ("1:30", "1:30"), ("0o17", "0o17"), ("1.2.3", "1.2.3"), ("2026-11-30", "2026-11-30"), ("-", "-"),
        ("yes", True), ("Off", False), ("nO", "nO"), ("y", "y"), ("~", None), ("", None), ("=", "="),
    ],
)  # fmt: skip
def test_scalars_mean_what_every_reader_takes_them_for(text: str, value: object) -> None:
    assert plain_value(text) == value
    assert type(plain_value(text)) is type(value)


@given(st.text(st.sampled_from("0123456789_+-.eExXinfabINF"), min_size=1, max_size=12))
def test_anything_like_a_number_is_one_or_text_or_a_trap(text: str) -> None:
    try:
        value = plain_value(text)
    except ScalarTrap:
        assert not reads_as_text(text)
        assert not is_number_text(text)
    else:
        assert value is None or isinstance(value, bool | int | float) or value == text
        assert reads_as_text(text) is isinstance(value, str)


def test_a_text_that_begins_with_a_digit_may_be_long_and_a_number_may_not() -> None:
    text = "3 apples and " * 50
    assert plain_value(text) == text
    with pytest.raises(ScalarTrap, match=r"^99999999999999999999… is too large for a number$"):
        plain_value("9" * 5000)


def test_quotes_hide_a_number_and_not_a_word() -> None:
    assert is_number_text("8")
    assert not is_number_text("yes")
    assert not is_number_text("8 GB")
