"""Plain text for the small commands: JSON, aligned columns, numbers and times for people."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NO_TERMINAL = 100_000
_NARROWEST = 30
"""What a column needs, in characters; a narrower one goes below the others."""
_SHALLOW = 4


def as_json(value: Any) -> str:
    """One JSON object, indented, as it goes to stdout."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def columns(rows: Iterable[Sequence[object]], *, indent: str = "  ") -> str:
    """Rows as aligned columns, numbers to the right; the last column is not padded."""
    cells = [[str(cell) for cell in row] for row in rows]
    if not cells:
        return ""
    widths = [max(len(row[i]) for row in cells if i < len(row)) for i in range(max(map(len, cells)))]
    lines = []
    for row in cells:
        padded = [
            cell.rjust(width) if cell.replace(",", "").isdigit() else cell.ljust(width)
            for cell, width in zip(row, widths, strict=False)
        ]
        lines.append((indent + "  ".join(padded)).rstrip())
    return "\n".join(lines)


def terminal_width() -> int:
    """Characters of a line of the terminal; where stdout is none, lines are as long as they are."""
    return shutil.get_terminal_size((_NO_TERMINAL, 0)).columns


def hanging(lead: str, text: str, width: int) -> str:
    """`text` behind `lead`, wrapped to `width` under its own beginning, or below where that is too narrow."""
    if len(lead) + len(text) <= width:
        return (lead + text).rstrip()
    start = len(lead) if width - len(lead) >= _NARROWEST else _SHALLOW
    room = max(width - start, _NARROWEST)
    wrapped = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    lines = [" " * start + line for line in wrapped]
    if start == len(lead):
        lines[0] = lead + wrapped[0]
    elif lead.strip():
        lines.insert(0, lead.rstrip())
    return "\n".join(lines)


def table(rows: Iterable[Sequence[str]], *, indent: str = "  ") -> str:
    """Rows of one length as aligned columns: the first to the left, the others to the right."""
    cells = list(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *others in cells:
        padded = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([indent + first.ljust(widths[0]), *padded]).rstrip())
    return "\n".join(lines)


def number(count: float) -> str:
    """1,234,567."""
    return f"{count:,.0f}"


def duration(seconds: float) -> str:
    """0.8 s, 42 s, 3 min 05 s, 2 h 10 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def money(cost: float | None) -> str:
    """$0.0123, or that it is not known: unknown is never zero."""
    if cost is None:
        return "unknown"
    return f"${cost:,.2f}" if cost >= 1 or cost == 0 else f"${cost:.4f}"


def count_of(number_of: int, noun: str) -> str:
    """1 row, 2 rows."""
    return f"{number(number_of)} {noun}{'' if number_of == 1 else 's'}"


def near(path: Path) -> str:
    """A path as one would type it here: relative when it is below the working directory."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def printable(text: str) -> str:
    """A text whose control characters cannot reach a terminal: they are shown as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)


def cut(text: str, room: int) -> str:
    """A text that takes at most `room` characters."""
    return text if len(text) <= room else f"{text[: room - 1]}…"
