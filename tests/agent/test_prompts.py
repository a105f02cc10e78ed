"""What is said before the prompt."""

from __future__ import annotations

import pytest

from hermes_run.agent.prompts import BUILT_IN_PROMPT, opening_text


@pytest.mark.parametrize(
    ("system_prompt", "ephemeral", "said"),
    [
        (None, None, BUILT_IN_PROMPT),
        ("", "", BUILT_IN_PROMPT),
        ("Be kind.", None, "Be kind."),
        (None, "Hurry.", f"{BUILT_IN_PROMPT}\n\nHurry."),
        ("Be kind.", "Hurry.", "Be kind.\n\nHurry."),
    ],
)
def test_a_specs_system_prompt_stands_in_place_of_the_built_in_one_and_the_ephemeral_one_follows(
    system_prompt: str | None, ephemeral: str | None, said: str
) -> None:
    """So that what is saved as the system turn is what was said, and nothing else was but the ephemeral."""
    assert opening_text(system_prompt, ephemeral) == said
