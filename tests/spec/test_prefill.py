# ruff: noqa: E501 - whole messages, as people see them
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spec.writing import REQUIRED, load, mistakes, write

if TYPE_CHECKING:
    from pathlib import Path

TEXT = REQUIRED + "agent: {prefill_messages_file: prefill.json}\n"


def test_prefill_messages_are_read_in_order(folder: Path) -> None:
    write(folder, '[{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]', "prefill.json")
    assert load(folder, TEXT).prefill == (
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": ""},
    )


def test_a_missing_file_is_told_at_the_key(folder: Path) -> None:
    assert mistakes(folder, TEXT) == [
        (
            f"spec.yaml:4:32: agent.prefill_messages_file: the file of prefill messages {folder}/prefill.json does not "
            "exist; paths count from the folder of the file they are in"
        )
    ]


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        ("", ["{f}:1:1: is no JSON: Expecting value; it must be a list of {role, content}"]),
        ('[\n {"role" "user"}]', ["{f}:2:10: is no JSON: Expecting ':' delimiter; it must be a list of {role, content}"]),
        ("{}", ["{f}: must be a JSON list of {role, content}, not a map"]),
        ("[" * 100_000, ["{f}: is nested too deeply; it must be a list of {role, content}"]),
        (
            '[3, {"role": "usr", "content": "a"}, {"role": "user"}, {"role": "user", "content": "a", "name": "x"}]',
            [
                "{f}: message 1: must be {role, content}, not 3",
                '{f}: message 2: role must be one of user, assistant, system, not "usr"; did you mean "user"?',
                "{f}: message 3: content must be text, not null",
                '{f}: message 4: unknown key "name"; known: role, content',
            ],
        ),
    ],
)  # fmt: skip
def test_every_mistake_of_the_file_is_told_with_its_place(
    folder: Path, content: str, messages: list[str]
) -> None:
    write(folder, content, "prefill.json")
    file = str(folder / "prefill.json")
    assert mistakes(folder, TEXT) == [message.replace("{f}", file) for message in messages]
