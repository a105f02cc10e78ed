# ruff: noqa: E501 - whole messages, as people see them
"""The traps of YAML: each has one message that says what, where and the cure."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_run.spec.locate import Mistakes, Source
from hermes_run.spec.yaml_tree import MAX_DEPTH, MAX_NODES, parse_yaml
from tests.spec.writing import REQUIRED, load, mistakes

TRAPS = [
    ("workers: 1\nworkers: 2\n", "5:1: workers: is written twice, first in line 4, column 1; keep one"),
    (
        "model:\n  name: x\n  name: y\n",
        "6:3: model.name: is written twice, first in line 5, column 3; keep one",
    ),
    ("model:\n\tname: x\n", "5:1: a tab in the indentation; YAML wants spaces, put spaces there"),
    (
        "model:\n  name: x\n\tmax_tokens: 3\n",
        "6:1: a tab in the indentation; YAML wants spaces, put spaces there",
    ),
    ("---\nworkers: 1\n", "4:1: a second YAML document begins here; keep one, a file is one document"),
    ("1: x\n", "4:1: a key is text, and this one is 1; put it in quotes"),
    ("on: x\n", "4:1: a key is text, and this one is on, which YAML reads as true; put it in quotes"),
    ("? [a]\n: x\n", "4:3: a key is text, and this one is a list; put it in quotes"),
    ("~: x\n", "4:1: a key is text, and this one is ~, which YAML reads as null; put it in quotes"),
    ("seed: .nan\n", "4:7: seed: .nan is no finite number; write a number, or quotes around text"),
    ("seed: -.INF\n", "4:7: seed: -.INF is no finite number; write a number, or quotes around text"),
    (
        "model: {sampling: {temperature: 1e400}}\n",
        "4:33: model.sampling.temperature: 1e400 is too large for a number",
    ),
    (
        "workers: 010\n",
        '4:10: workers: 010 has a leading zero, which YAML reads as octal; write 10, or "010" in quotes for text',
    ),
    (
        "seed: !!python/name:os.system\n",
        '4:7: seed: the YAML tag "tag:yaml.org,2002:python/name:os.system" is not known here; take it out',
    ),
    ("model: !Model {name: x}\n", '4:8: model: the YAML tag "!Model" is not known here; take it out'),
    (
        "without: *all\n",
        "4:10: without: *all is an alias, and no &all stands before it; put quotes around text that begins with *",
    ),
    ("x-a: &a [*a]\n", "4:10: x-a[0]: *a stands inside its own anchor; take it out"),
    (
        "agent:\n  system_prompt: a: b\n",
        (
            "5:19: is no YAML: mapping values are not allowed in this context; check the indentation, and put quotes "
            "around text that holds a colon and a space"
        ),
    ),
    (
        "agent:\n  system_prompt: @home\n",
        "5:18: is no YAML: found character that cannot start any token; put quotes around text that begins with @",
    ),
    (
        "without: [web\nworkers: 3\n",
        (
            "5:8: is no YAML: did not find expected ',' or ']' (while parsing a flow sequence that begins in line 4); "
            "close the bracket, or put quotes around text that holds one"
        ),
    ),
    ("run: \x07\n", "4:6: the character U+0007 cannot stand in YAML; take it out"),
    ('model: {name: "a\\0b"}\n', "4:15: model.name: holds the character U+0000; take it out"),
    ("<<: 3\n", "4:5: << merges maps; write an alias of a map after it"),
]


@pytest.mark.parametrize(("text", "message"), TRAPS)
def test_a_trap_of_yaml_is_told_with_its_place_and_cure(folder: Path, text: str, message: str) -> None:
    assert mistakes(folder, REQUIRED + text)[0] == f"spec.yaml:{message}"


def test_a_tab_between_key_and_value_is_no_mistake(folder: Path) -> None:
    assert load(folder, REQUIRED + "workers:\t3\t# three\n").workers == 3


def test_an_alias_bomb_is_refused_before_it_is_written_out(folder: Path) -> None:
    lines = ["x-0: &a0 [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]"]
    lines += [f"x-{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 30)]
    (found,) = mistakes(folder, REQUIRED + "\n".join(lines))
    assert found.endswith(f"is more than {MAX_NODES} values with its aliases written out; use fewer aliases")
    assert found.startswith("spec.yaml:8:6: ")


def test_a_wide_alias_bomb_is_refused_too(folder: Path) -> None:
    text = REQUIRED + "x-a: &a [" + "0, " * 1000 + "]\nx-b: [" + "*a, " * 100_000 + "]\n"
    (found,) = mistakes(folder, text)
    assert "aliases written out" in found


def test_a_bomb_of_map_merges_is_refused_too(folder: Path) -> None:
    lines = ["x-0: &a0 {" + ", ".join(f"k{i}: 0" for i in range(200)) + "}"]
    lines += [
        f"x-{i}: &a{i} {{b: *a{i - 1}, c: *a{i - 1}, d: *a{i - 1}, <<: *a{i - 1}}}" for i in range(1, 12)
    ]
    assert "aliases written out" in mistakes(folder, REQUIRED + "\n".join(lines))[0]


def test_aliases_and_merges_in_moderation_are_fine(folder: Path) -> None:
    text = (
        "x-tools: &tools [terminal, file]\n"
        "x-sampling: &s {temperature: 0.5, seed: 3}\n"
        "without: *tools\ndistribution: {todo: 100, web: 10}\nmodel: {sampling: {<<: *s, seed: 4}}\n"
    )
    spec = load(folder, REQUIRED + text)
    assert spec.without == ("terminal", "file")
    assert (spec.model.sampling.temperature, spec.model.sampling.seed) == (0.5, 4)


def test_deep_nesting_is_refused(folder: Path) -> None:
    (found,) = mistakes(folder, REQUIRED + "x-a: " + "[" * 45 + "]" * 45)
    assert found == f"spec.yaml:4:{5 + MAX_DEPTH}: is nested more than {MAX_DEPTH} deep; make it flatter"
    (found,) = mistakes(folder, REQUIRED + "x-a: " + "[" * 50_000)
    assert re.fullmatch(r"spec\.yaml:4:\d+: .*nest.*", found)


@given(st.text(max_size=200))
def test_any_text_is_a_tree_or_a_mistake_and_never_a_traceback(text: str) -> None:
    found = Mistakes()
    parse_yaml(text, Source("x", Path()), found)
    assert all("\n" not in line for line in found.lines())


ALPHABET = st.text(st.sampled_from("ab:- \n\t[]{}&*!|>'\"#%@`,?~0.1<"), max_size=60)


@given(ALPHABET)
def test_texts_that_look_like_yaml_are_a_tree_or_a_mistake(text: str) -> None:
    found = Mistakes()
    node = parse_yaml(text, Source("x", Path()), found)
    if node is not None:
        assert node.size < 10_000
