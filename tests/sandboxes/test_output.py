"""Bounded output: exact for any pieces, small for any length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermes_run.sandboxes._output import BoundedOutput


class Kept:
    """A spill that keeps everything."""

    def __init__(self) -> None:
        self.data = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.data += data

    def close(self) -> str:
        self.is_closed = True
        return "/tmp/kept"


@given(st.lists(st.binary(max_size=60)), st.integers(0, 100))
def test_head_and_tail_are_exact_however_the_output_arrives(pieces: list[bytes], most: int) -> None:
    opened: list[Kept] = []

    def open_spill() -> Kept:
        opened.append(Kept())
        return opened[-1]

    output = BoundedOutput(most, open_spill)
    for piece in pieces:
        output.add(piece)
    data, omitted, head, path = output.finish()
    whole = b"".join(pieces)
    if len(whole) <= most:
        assert (data, omitted, head, path, opened) == (whole, 0, len(whole), "", [])
        return
    head_size = most * 40 // 100
    assert data == whole[:head_size] + whole[len(whole) - (most - head_size) :]
    assert (omitted, head, path) == (len(whole) - most, head_size, "/tmp/kept")
    assert [(kept.data, kept.is_closed) for kept in opened] == [(whole, True)]


def test_memory_does_not_grow_with_the_output() -> None:
    output = BoundedOutput(1000, lambda: None)
    for _ in range(10_000):
        output.add(b"x" * 1000)
        assert len(output._all) <= 2 * 600 + 4096 + 1000
    data, omitted, _, path = output.finish()
    assert (len(data), omitted, path) == (1000, 10_000_000 - 1000, "")
