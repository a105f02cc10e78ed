"""What a command printed, as the model reads it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_run.core.contracts import ExecResult
from hermes_run.core.text import clean
from hermes_run.tools.output import ASKED_BYTES, MAX_CHARS, plain, shown


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        ("\x1b[31mred\x1b[0m and \x1b[1;38;5;12mblue\x1b[m", "red and blue"),
        ("\x1b[2K\x1b[1Gline", "line"),
        ("\x1b[?25lhidden\x1b[?25h", "hidden"),
        ("\x1b]0;a title\x07text", "text"),
        ("\x1b]8;;http://x.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0;2\x1b\\after", "after"),
        ("\x1b_app\x1b\\after", "after"),
        ("\x1b(Bascii\x1b)0", "ascii"),
        ("\x1b7saved\x1b8\x1bM\x1b=", "saved"),
        ("\x1b[38:2:1:2:3mtrue colour\x1b[0m", "true colour"),
        ("\u009b31mC1\u009b0m", "C1"),
        ("cut off \x1b[3", "cut off "),
        ("cut off \x1b", "cut off "),
        ("\x1b]0;a title that does not end\nnext", "\nnext"),
        (" 10%\r 50%\r100%\ndone", "100%\ndone"),
        (" 10%\r 50%\r100%\r\ndone\r\n", "100%\ndone\n"),
        ("50%\r", "50%"),
        ("a\r\r\nb", "a\nb"),
        ("a\n\rb", "a\nb"),
        ("abc\b\b\bxyz", "xyz"),
        ("N\bNA\bAM\bM\n", "NAM\n"),
        ("a\n\b\bb", "a\nb"),
        ("tab\tstays, bell\x07 too", "tab\tstays, bell\x07 too"),
        ("\u0085 \u2028 \ufeff \U0001d54f", "\u0085 \u2028 \ufeff \U0001d54f"),
    ],
)
def test_text_is_what_a_terminal_would_leave(printed: str, read: str) -> None:
    assert plain(printed) == read


def cut(data: bytes, size: int = ASKED_BYTES, path: str = "/tmp/all") -> ExecResult:
    """What a sandbox answers for an output of these bytes."""
    if len(data) <= size:
        return ExecResult(data, 0, head=len(data))
    head = size * 4 // 10
    kept = data[:head] + data[len(data) - (size - head) :]
    return ExecResult(kept, 0, omitted=len(data) - size, head=head, full_path=path)


def test_long_output_says_how_much_is_left_out_and_where_it_is() -> None:
    text = shown(cut(b"a" * 100_000 + b"z" * 100_000))
    head, middle, tail = text.partition(
        "\n[... 150500 bytes left out here; the whole output is in /tmp/all ...]\n"
    )
    assert middle
    assert set(head) == {"a"}
    assert set(tail) == {"z"}
    assert len(tail) * 4 == pytest.approx(len(head) * 6, rel=0.01)
    assert len(text) <= MAX_CHARS


@pytest.mark.parametrize("char", ["é", "€", "😀"])
@pytest.mark.parametrize("shift", range(4))
def test_cut_never_leaves_half_a_character(char: str, shift: int) -> None:
    data = b"x" * shift + char.encode() * 40_000
    text = shown(cut(data))
    head, _, rest = text.partition("\n[... ")
    omitted, _, rest = rest.partition(" bytes")
    tail = rest.partition("...]\n")[2]
    assert set(head[shift:]) == {char}
    assert set(tail) == {char}
    assert len(head.encode()) + int(omitted) + len(tail.encode()) == len(data)


@given(st.binary(max_size=300), st.integers(10, 200))
def test_any_bytes_become_valid_text_within_the_limit(data: bytes, size: int) -> None:
    text = clean(shown(cut(data, size)))
    assert text.encode().decode() == text
    assert len(text) <= size * 2 + 100


def test_ten_megabytes_of_backspaces_are_read_in_time() -> None:
    import time

    begin = time.monotonic()
    plain("x" * 25_000 + "\b" * 25_000)
    plain("\x1b]" * 25_000)
    plain("\x1b[" + "1;" * 25_000)
    plain("a\r" * 25_000)
    assert time.monotonic() - begin < 2
