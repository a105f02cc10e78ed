"""What is said before the prompt. A change here raises core.toolsets.TOOL_TEXTS_VERSION."""

from __future__ import annotations

BUILT_IN_PROMPT = (
    "You are a capable agent. Do the task that you are given with the tools that you have: look before "
    "you change anything, check what you did, and mend what went wrong. When the task is done, answer "
    "in plain text without calling a tool."
)


def opening_text(system_prompt: str | None, ephemeral: str | None) -> str:
    """The system message that is sent.

    A spec's `agent.system_prompt`, which is saved as the trajectory's system turn, stands in place of
    the built-in prompt, so that what is saved is what was said; the ephemeral prompt follows, unsaved.
    """
    return "\n\n".join(text for text in (system_prompt or BUILT_IN_PROMPT, ephemeral) if text)
