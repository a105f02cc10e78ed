"""What a command printed -> the text that a model reads: no escapes, bounded, never half a character."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hermes_run.tools.shell import text_of

if TYPE_CHECKING:
    from hermes_run.core.contracts import ExecResult

MAX_CHARS = 50_000
"""Characters of a command's output that reach the model, the sentence about the cut included."""

ASKED_BYTES = MAX_CHARS - 500
"""What is asked of the sandbox, in bytes: so the sandbox makes the only cut and keeps the whole."""

_ESCAPES = re.compile(
    "\x1b\\[[0-?]*[ -/]*(?:[@-~]|$)"  # CSI: colours, cursor
    "|\x9b[0-?]*[ -/]*[@-~]"  # CSI in its one-character form
    "|\x1b[\\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c|(?=[\x1b\n])|$)"  # OSC, DCS, SOS, PM, APC
    "|[\x9d\x90\x98\x9e\x9f][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)"  # their one-character forms
    "|\x1b[ -/]+(?:[0-~]|$)"  # character sets and the like
    "|\x1b[0-~]"  # two-character escapes
    "|\x1b"  # what is left of a cut one
)
_C1 = re.compile("[\x80-\x9f]")
_UNFINISHED = re.compile(rb"(?:[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z")
_CONTINUED = re.compile(rb"\A[\x80-\xbf]{1,3}")


def plain(text: str) -> str:
    """Text as a terminal would leave it: no escape sequences, what was overwritten gone.

    Of a line that returns to its start (a progress bar) only what was written last stays.
    """
    if "\x1b" in text or _C1.search(text):
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = re.sub("\r+\n", "\n", text)
        text = "\n".join(_last_written(line) if "\r" in line else line for line in text.split("\n"))
    return _rubbed_out(text) if "\b" in text else text


def _rubbed_out(text: str) -> str:
    """Text in which each backspace has taken the character before it, within its line."""
    kept: list[str] = []
    for char in text:
        if char != "\b":
            kept.append(char)
        elif kept and kept[-1] != "\n":
            kept.pop()
    return "".join(kept)


def _last_written(line: str) -> str:
    return next((part for part in reversed(line.split("\r")) if part), "")


def without_half_characters(data: bytes, *, at_start: bool = True, at_end: bool = True) -> bytes:
    """Bytes cut out of UTF-8 text, without the pieces of characters at their ends."""
    if at_start:
        data = _CONTINUED.sub(b"", data)
    return _UNFINISHED.sub(b"", data) if at_end else data


def shown(result: ExecResult) -> str:
    """The output of a command for the model.

    When the sandbox left something out: head, a sentence that says how much and where the whole is,
    tail. A character that the cut went through is left out as a whole.
    """
    if not result.omitted:
        return plain(text_of(result.output))
    head, tail = result.output[: result.head], result.output[result.head :]
    whole_head = without_half_characters(head, at_start=False)
    whole_tail = without_half_characters(tail, at_end=False)
    omitted = result.omitted + len(head) - len(whole_head) + len(tail) - len(whole_tail)
    where = f"; the whole output is in {result.full_path}" if result.full_path else ""
    sentence = f"\n[... {omitted} bytes left out here{where} ...]\n"
    return plain(text_of(whole_head)) + sentence + plain(text_of(whole_tail))
