"""The one reversible replacement of lone surrogates."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_run.core.text import clean, clean_bytes, restore, restore_bytes

MARK = "\U0010d7ff"
HALVES = st.integers(0xD800, 0xDFFF).map(chr)
LOOKALIKES = st.integers(0x10D7FE, 0x10DFFF).map(chr)
TEXTS = st.text(
    st.one_of(HALVES, LOOKALIKES, st.just(MARK), st.sampled_from("a\x00\u2028\ufeff\U0001f600é"))
) | st.text(st.characters(codec=None))


def joined(text: str) -> str:
    """The text with two halves that make a pair joined into their character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


@given(TEXTS)
@example("\ud835")
@example("\udc00\ud835")
@example("\ud83d\ude00")
@example("\ud83d\ud83d\ude00\ude00")
@example(MARK + "\ud800" + MARK)
@example("\U0010d835" + "\ud835")
def test_every_text_has_a_clean_form_that_is_utf8_and_can_be_taken_back(text: str) -> None:
    stored = clean(text)
    stored.encode()
    assert restore(stored) == joined(text)


@given(TEXTS, TEXTS)
def test_two_texts_have_the_same_clean_form_only_when_they_are_the_same(one: str, other: str) -> None:
    assert (clean(one) == clean(other)) == (joined(one) == joined(other))


@given(st.text())
def test_a_clean_text_survives_json(text: str) -> None:
    assert msgspec.json.decode(msgspec.json.encode(clean(text))) == clean(text)
    assert json.loads(json.dumps(clean(text))) == clean(text)


@pytest.mark.parametrize(
    "text", ["", "plain", "é", "\U0001f600", "\u2028\x00\ufeff", "\U0010ffff", "\U0010d7fe"]
)
def test_text_without_lone_halves_or_their_stand_ins_stays_as_it_is(text: str) -> None:
    assert clean(text) == text
    assert restore(text) == text


def test_the_rule_is_the_documented_one() -> None:
    assert clean("x\ud835y") == "x\U0010d835y"
    assert clean("x\U0010d835y") == f"x{MARK}\U0010d835y"
    assert clean(MARK) == MARK + MARK
    assert clean("\ud83d\ude00") == "\U0001f600"


@given(
    st.binary()
    | st.lists(st.sampled_from([b"\xed\xa0\xb5", b"\xff", b"a", MARK.encode(), b"\xc3"])).map(b"".join)
)
@example(b"caf\xe9")
@example("\U0010dce9".encode())
def test_every_byte_string_has_a_clean_text_that_gives_the_bytes_back(data: bytes) -> None:
    text = clean_bytes(data)
    text.encode()
    assert restore_bytes(text) == data


def test_a_half_that_no_byte_stands_for_leaves_as_its_three_bytes() -> None:
    assert restore_bytes(clean("\ud835")) == b"\xed\xa0\xb5"
    assert restore_bytes(clean("caf\udce9 \ud835")) == b"caf\xe9 \xed\xa0\xb5"
