# ruff: noqa: E501 - whole messages, as people see them
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_run.core.toolsets import TOOLSETS
from hermes_run.spec.distributions import load_distributions
from tests.spec.writing import REQUIRED, load, mistakes, write

if TYPE_CHECKING:
    from pathlib import Path

ALL_SIX = ("web", "vision", "image_gen", "terminal", "file", "browser")
BUILT_IN = {
    "default": dict.fromkeys(ALL_SIX, 100),
    "balanced": dict.fromkeys(ALL_SIX, 50),
    "image_gen": {"image_gen": 90, "vision": 90, "web": 55, "terminal": 45},
    "research": {"web": 90, "browser": 70, "vision": 50, "terminal": 10},
    "science": {"web": 94, "terminal": 94, "file": 94, "vision": 65, "browser": 50, "image_gen": 15},
    "development": {"terminal": 80, "file": 80, "web": 30, "vision": 10},
    "safe": {"web": 80, "browser": 70, "vision": 60, "image_gen": 60},
    "minimal": {"web": 100},
    "terminal_only": {"terminal": 100, "file": 100},
    "terminal_web": {"terminal": 100, "file": 100, "web": 100},
    "creative": {"image_gen": 90, "vision": 90, "web": 30},
    "reasoning": {"web": 90, "file": 60, "terminal": 20},
    "browser_use": {"browser": 100, "web": 80, "vision": 70},
    "browser_only": {"browser": 100},
    "browser_tasks": {"browser": 97, "vision": 12, "terminal": 15},
    "terminal_tasks": {"terminal": 97, "file": 97, "web": 97, "browser": 75, "vision": 50, "image_gen": 10},
    "mixed_tasks": {"browser": 92, "terminal": 92, "file": 92, "web": 35, "vision": 15, "image_gen": 15},
}


def test_the_seventeen_distributions_are_as_they_were_known() -> None:
    found = load_distributions()
    assert {name: one.toolsets for name, one in found.items()} == BUILT_IN
    for name, one in found.items():
        assert list(one.toolsets) == list(BUILT_IN[name])  # the first wins on ties
        assert one.description.endswith(".")


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_can_be_named_in_a_spec(folder: Path, name: str) -> None:
    found = load(folder, REQUIRED + f"distribution: {name}\n").distribution
    assert (found.name, found.toolsets, found.source) == (name, BUILT_IN[name], None)


def test_a_map_keeps_its_order_and_loses_what_cannot_be_drawn(folder: Path) -> None:
    text = "distribution: {todo: 5, web: 0, terminal: 99.5, file: 20}\nwithout: [file, vision]\n"
    found = load(folder, REQUIRED + text).distribution
    assert list(found.toolsets.items()) == [("todo", 5), ("terminal", 99.5)]
    assert found.name == "custom"


def test_a_file_counts_from_the_spec_and_may_use_own_toolsets(folder: Path) -> None:
    write(folder, "description: mine\nx-by: me\ntoolsets: {own: 10, todo: 20}\n", "mixes/mine.yaml")
    text = REQUIRED + "distribution: mixes/mine.yaml\ntoolsets: {own: [read_file]}\n"
    found = load(folder, text).distribution
    assert (found.name, found.toolsets, found.source) == (
        "mine",
        {"own": 10, "todo": 20},
        folder / "mixes/mine.yaml",
    )


KNOWN = ", ".join(sorted(TOOLSETS))
WRONG = [
    ("distribution: develpment", '4:15: distribution: there is no distribution "develpment"; did you mean "development"? known: '
     + ", ".join(sorted(BUILT_IN)) + "; a file is written with its .yaml"),
    ("distribution: {webb: 30}", '4:16: distribution.webb: there is no toolset "webb"; did you mean "web"?'),
    ("distribution: {qqq: 30}", f'4:16: distribution.qqq: there is no toolset "qqq"; known: {KNOWN}'),
    ("distribution: {web: 0, file: 0}", ("4:15: distribution: every percentage is 0, so there is nothing to draw; give a "
     "toolset more than 0")),
    ("without: [wbe]", '4:11: without[0]: there is no toolset "wbe"; did you mean "web"?'),
    ("distribution: minimal\nwithout: [web]", ("5:10: without: nothing of the distribution minimal is left to draw (web "
     "taken out); take out fewer toolsets")),
    ("distribution: no.yaml", ("4:15: distribution: the distribution file {folder}/no.yaml does not exist; paths count from "
     "the folder of the file they are in")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_distribution_is_told(folder: Path, text: str, message: str) -> None:
    (found,) = mistakes(folder, REQUIRED + text + "\n")
    assert found == f"spec.yaml:{message}".replace("{folder}", str(folder))


def test_all_mistakes_of_a_map_are_told_at_once(folder: Path) -> None:
    found = mistakes(folder, REQUIRED + "distribution: {webb: 30, file: 140, terminal: yes}\n")
    assert len(found) == 3


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        ("toolsets: {webb: 3}", ['1:12: toolsets.webb: there is no toolset "webb"; did you mean "web"?']),
        ("toolsets: {}", ["1:11: toolsets: is required, a map of toolset: percent; add one"]),
        ("description: x", [" toolsets: is required, a map of toolset: percent; add one"]),
        (
            "toolset: {}\ntoolsets: {web: 140, file: yes, todo: '3', tts: -1}\ndescription: 3",
            [
                '1:1: toolset: unknown key; did you mean "toolsets"?',
                "2:17: toolsets.web: must be a percentage from 0 to 100, not 140",
                "2:28: toolsets.file: must be a percentage from 0 to 100, not true",
                '2:39: toolsets.todo: must be a percentage from 0 to 100, not "3"',
                "2:49: toolsets.tts: must be a percentage from 0 to 100, not -1",
                "3:14: description: must be text",
            ],
        ),
    ],
)
def test_mistakes_of_a_distribution_file_point_into_it(
    folder: Path, content: str, messages: list[str]
) -> None:
    write(folder, content + "\n", "mine.yaml")
    assert mistakes(folder, REQUIRED + "distribution: ./mine.yaml\n") == [
        f"{folder}/mine.yaml:{message}" for message in messages
    ]
