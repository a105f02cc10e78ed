"""Syntax checks by file kind: the text is parsed on the host and never run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from hermes_run.tools.lint import MAX_CHARS, check_syntax

if TYPE_CHECKING:
    from pathlib import Path

OK = {"status": "ok"}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", "def f():\n    return 1\n"),
        ("a.py", "\ufeffx = 1\n"),
        ("a.py", "x = '\\d'\n"),  # warns, and is no error
        ("a.PYI", "x: int\n"),
        ("a.json", '{"a": [1, null]}'),
        ("a.json", "\ufeff{}"),
        ("a.ipynb", "{}"),
        ("a.jsonl", '{"a": 1}\n\n[2]\n'),
        ("a.yaml", "a: 1\n---\nb: [x, y]\n"),
        ("a.yml", "a: !Ref x\n"),
        ("dir.json/a.toml", "[a]\nb = 1\n"),
    ],
)
def test_good_text_is_ok(path: str, text: str) -> None:
    assert check_syntax(path, text) == OK


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("a.py", "def f(:\n", "invalid syntax (line 1, column 7"),
        ("a.py", "x = (\n", "'(' was never closed (line 1"),
        ("a.py", "return 1\n", "'return' outside function"),
        ("a.py", "if x:\ny\n", "expected an indented block"),
        ("a.py", "x = '\udce9'\n", "not valid UTF-8"),
        ("a.py", "x = 1\0\n", "null bytes"),
        ("a.json", '{"a": }', "Expecting value: line 1 column 7"),
        ("a.json", "", "Expecting value"),
        ("a.json", "[NaN]", "NaN is no JSON value"),
        ("a.jsonl", '{"a": 1}\n{"a"\n', "line 2: Expecting ':' delimiter"),
        ("a.yaml", "a: [1\n", "(line 2, column 1)"),
        ("a.yaml", "a: 1\n\tb: 2\n", "line 2"),
        ("a.yaml", "a: \udce9", "not valid UTF-8"),
        ("a.toml", "a = \n", "Invalid value (at line 1, column 5)"),
    ],
)
def test_fault_is_told_with_its_place(path: str, text: str, said: str) -> None:
    result = check_syntax(path, text)
    assert result["status"] == "error"
    assert said in result["message"]


@pytest.mark.parametrize("path", ["a.txt", "py", ".py.bak", "Makefile", "a"])
def test_other_kinds_are_skipped(path: str) -> None:
    assert check_syntax(path, "{{{")["status"] == "skipped"


@pytest.mark.parametrize("path", ["a.py", "a.json", "a.toml"])
def test_text_nested_without_end_is_skipped_or_refused_in_time(path: str) -> None:
    begin = time.monotonic()
    assert check_syntax(path, "x = " * (path == "a.toml") + "[" * 90_000)["status"] in {"skipped", "error"}
    assert check_syntax("a.py", "-" * 90_000 + "1")["status"] == "skipped"
    assert check_syntax("a.py", "+".join(["1"] * 40_000))["status"] in {"ok", "skipped"}
    assert time.monotonic() - begin < 5


def test_yaml_alias_bomb_is_not_unfolded() -> None:
    levels = "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'x'}]" for i in range(30))
    begin = time.monotonic()
    assert check_syntax("a.yaml", levels) == OK
    assert time.monotonic() - begin < 2


def test_huge_text_is_skipped_with_the_reason() -> None:
    result = check_syntax("a.py", "x = 1\n" * MAX_CHARS)
    assert result == {"status": "skipped", "message": f"not checked: longer than {MAX_CHARS} characters"}


def test_checked_code_does_not_run(tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    assert check_syntax("a.py", f"open({str(proof)!r}, 'w')\nraise SystemExit(3)\n") == OK
    assert not proof.exists()
