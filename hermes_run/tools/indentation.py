"""The indentation that a model remembers, and that of the file: new lines go where old ones stand. Pure."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def indent_of(line: str) -> str:
    """The white space that a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def mover(was: Sequence[str], stands: Sequence[str]) -> Callable[[str], str]:
    """How a line is moved from the model's indentation to the file's; as it is where that is not clear.

    Args:
        was: indentations of lines as the model gave them.
        stands: indentations of the same lines in the file.
    """
    pairs = list(dict.fromkeys(zip(was, stands, strict=True)))
    if not pairs or all(a == b for a, b in pairs):
        return lambda line: line
    first, there = pairs[0]
    added, removed = there.removesuffix(first), first.removesuffix(there)
    if all(b == added + a for a, b in pairs):
        return lambda line: added + line if line.strip() else line
    if all(a == removed + b for a, b in pairs):
        return lambda line: line.removeprefix(removed)
    scale = _scale(pairs)
    return scale.move if scale is not None else lambda line: line


class _Scale(NamedTuple):
    """`base` of the one is `there` of the other, and each `step` deeper a `stride`."""

    base: str
    there: str
    step: str
    stride: str

    def of(self, indent: str) -> str | None:
        """An indentation as the file has it; None for one that is not deeper than the base."""
        if not indent.startswith(self.base):
            return None
        rest, count = indent[len(self.base) :], 0
        while rest.startswith(self.step):
            rest, count = rest[len(self.step) :], count + 1
        return self.there + self.stride * count + rest

    def move(self, line: str) -> str:
        """A line with its indentation as the file has it."""
        indent = indent_of(line)
        moved = self.of(indent) if line.strip() else None
        return line if moved is None else moved + line[len(indent) :]


def _scale(pairs: Sequence[tuple[str, str]]) -> _Scale | None:
    """The one scale that all pairs stand on: other units (tabs for spaces, two for four), or None."""
    ordered = sorted(pairs, key=lambda pair: len(pair[0]))
    for ladder in ([("", ""), *ordered], ordered):  # from the file's edge, or from the first line
        for (base, there), (deeper, deeper_there) in itertools.pairwise(ladder):
            step, stride = deeper.removeprefix(base), deeper_there.removeprefix(there)
            if len(set(step)) != 1 or len(set(stride)) != 1:
                continue
            levels = math.gcd(len(step), len(stride)) if step[0] != stride[0] else 1
            scale = _Scale(*ladder[0], step[: len(step) // levels], stride[: len(stride) // levels])
            if all(scale.of(a) == b for a, b in pairs):
                return scale
    return None
