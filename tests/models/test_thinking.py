"""Reasoning inside the text."""

from __future__ import annotations

import pytest

from hermes_run.models.thinking import split_thinking

FENCED = "Write\n```xml\n<think>like this</think>\n```\nand it works."


@pytest.mark.parametrize(
    ("text", "reasoning", "rest"),
    [
        ("plain", "", "plain"),
        (" plain ", "", " plain "),
        ("<think>\na\n</think>\n\nb", "a", "b"),
        ("x <think>a</think> y <think>b</think> z", "a\n\nb", "x  y  z"),
        ("<REASONING_SCRATCHPAD>a</think>b</REASONING_SCRATCHPAD>c", "a</think>b", "c"),
        ("<think>never closed", "never closed", ""),
        ("said. <think>cut", "cut", "said."),
        ("<think></think>b", "", "b"),
        ("from the template\n</think>\n\nb", "from the template", "b"),
        ("a</think>b</think>c", "a", "b</think>c"),
        ("the tag `<think>` begins it, `</think>` ends it", "", None),
        ("``a ` <think>`` b", "", None),
        (FENCED, "", None),
        ("```\n<think>an open fence", "", None),
        ("~~~\n<think>a</think>\n~~~", "", None),
        ("<think>see `x`</think>" + FENCED, "see `x`", FENCED),
        ("a ` lone tick <think>b</think>c", "b", "a ` lone tick c"),
    ],
)
def test_blocks_are_taken_out_and_talk_about_tags_is_left(
    text: str, reasoning: str, rest: str | None
) -> None:
    assert split_thinking(text) == (reasoning, text if rest is None else rest)


def test_a_long_text_with_many_ticks_is_read_quickly() -> None:
    text = "` " * 20_000 + "<think>a</think>"
    assert split_thinking(text)[0] in ("a", "")
    assert split_thinking("`" * 50_000 + "<think>")[0] == ""
