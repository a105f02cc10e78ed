"""Docstrings: what a function does, and what its parameters are (a section `Args:`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Raises|Yields?|Examples?|Notes?|Attributes|See Also|Warnings?):\s*"
)
_PARAMETER = re.compile(r"\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)")


def read_docstring(text: str, names: Collection[str]) -> tuple[str, dict[str, str]]:
    """What comes before the first section, as one line for each paragraph; and parameter -> its words.

    Args:
        text: a docstring without its indentation (`inspect.cleandoc`).
        names: of the parameters.
    """
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    paragraphs = "\n".join(lines[:first]).strip().split("\n\n")
    about = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return about, _parameters(lines[first:], names)


def _parameters(lines: list[str], names: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    is_inside = False
    depth = 0
    last = ""
    for line in lines:
        section = _SECTION.fullmatch(line)
        if section is not None:
            is_inside, depth, last = section[1] in ("Args", "Arguments", "Parameters"), 0, ""
            continue
        if not is_inside or not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        depth = depth or indent
        match = _PARAMETER.fullmatch(line.strip()) if indent <= depth else None
        if match is not None and match["name"] in names:
            last = match["name"]
            found[last] = match["text"].strip()
        elif last:
            found[last] = f"{found[last]} {line.strip()}".strip()
    return found
