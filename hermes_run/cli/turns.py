"""A turn of a trajectory as a few lines for people, and where two of them begin to differ."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHARED = 24  # characters kept of what both lines begin with


def turn_lines(turn: dict[str, Any] | None) -> list[str]:
    """A turn as lines: who, what was thought, said and called."""
    if turn is None:
        return ["(it ends before)"]
    who = {"gpt": "assistant", "human": "user"}.get(turn["from"], turn["from"])
    if turn["name"]:
        who += f" {turn['name']}"
    lines = [f"{who}:"]
    if turn["reasoning"]:
        lines += [f"(thinks) {line}" for line in turn["reasoning"].splitlines()]
    lines += turn["value"].splitlines()
    lines += [f"calls {call['name']} {call['arguments']}" for call in turn["tool_calls"]]
    return lines


def without_shared(a: list[str], b: list[str]) -> tuple[list[str], list[str]]:
    """Two texts from where they begin to differ, who speaks kept."""
    if a[0] != b[0]:
        return a, b
    at = _shared(a, b)
    tails = [[lines[0] + (" …" if at > 1 else ""), *(lines[at:] or ["(nothing more)"])] for lines in (a, b)]
    if at < min(len(a), len(b)):
        skipped = _shared(a[at], b[at]) - _SHARED
        if skipped > _SHARED:
            for tail in tails:
                tail[1] = f"…{tail[1][skipped:]}"
    return tails[0], tails[1]


def _shared(a: Sequence[str], b: Sequence[str]) -> int:
    """How many items both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
