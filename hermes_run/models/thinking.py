"""Reasoning that a model wrote into its text: `<think>` and `<REASONING_SCRATCHPAD>` blocks.

The rules, read from left to right:

- An opening tag outside of code begins a block; it ends at the first closing tag of its kind, or with
  the text when there is none (a reply that was cut while it thought).
- A tag inside a fenced code block or an inline code span is text: somebody writes *about* the tag.
- A `</think>` without an opening tag before it, outside of code, ends a block that began with the text
  (chat templates that put the opening tag into the prompt give such replies).
- Blocks are taken out of the text, what remains loses its outer white space.
"""

from __future__ import annotations

import re

_CLOSING = {"<think>": "</think>", "<REASONING_SCRATCHPAD>": "</REASONING_SCRATCHPAD>"}
_NEXT = re.compile(
    r"(?P<open><think>|<REASONING_SCRATCHPAD>)"
    r"|(?P<close></think>)"
    r"|(?P<fence>^[ ]{0,3}(?P<mark>`{3,}|~{3,})[^\n]*$)"
    r"|(?P<span>(?P<ticks>`+)(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`))",
    re.MULTILINE,
)


def _after_fence(text: str, match: re.Match[str]) -> int:
    mark = match["mark"]
    closing = re.compile(rf"^[ ]{{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*$", re.MULTILINE)
    end = closing.search(text, match.end())
    return end.end() if end else len(text)


def split_thinking(text: str) -> tuple[str, str]:
    """(reasoning, text without it); ("", text unchanged) when there is no block."""
    if "<think>" not in text and "</think>" not in text and "<REASONING_SCRATCHPAD>" not in text:
        return "", text
    thoughts: list[str] = []
    said: list[str] = []
    kept_from = at = 0
    while match := _NEXT.search(text, at):
        if match["fence"]:
            at = _after_fence(text, match)
        elif match["span"]:
            at = match.end()
        elif match["close"]:
            at = match.end()
            if not thoughts:
                thoughts.append(text[: match.start()])
                said, kept_from = [], at
        else:
            said.append(text[kept_from : match.start()])
            closing = _CLOSING[match["open"]]
            end = text.find(closing, match.end())
            thoughts.append(text[match.end() : end if end >= 0 else len(text)])
            kept_from = at = end + len(closing) if end >= 0 else len(text)
    if not thoughts:
        return "", text
    said.append(text[kept_from:])
    reasoning = "\n\n".join(thought.strip() for thought in thoughts if thought.strip())
    return reasoning, "".join(said).strip()
