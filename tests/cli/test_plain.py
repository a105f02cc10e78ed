"""Plain text of the small commands fits the terminal it is shown in, and says the same at every width."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_run.cli.plain import hanging

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.calling import Cli

LONG = "what does not work is told at length, with its cure: https://example.org/a-rather-long-address"


def test_a_text_that_fits_stays_beside_its_lead() -> None:
    assert hanging("name  ", "short", 80) == "name  short"
    assert hanging("name  ", "", 80) == "name"
    assert hanging("name  ", LONG, 1000) == f"name  {LONG}"
    assert hanging("name of some length          ", "works", 34) == "name of some length          works"


@pytest.mark.parametrize("width", [36, 60, 90])
def test_a_long_text_hangs_under_its_own_beginning(width: int) -> None:
    first, *rest = hanging("name  ", LONG, width).splitlines()
    assert first.startswith("name  what")
    assert rest
    assert all(line.startswith("      ") and line[6] != " " for line in rest)
    assert " ".join([first[6:], *(line.strip() for line in rest)]) == LONG


def test_where_a_column_is_too_narrow_the_text_stands_below() -> None:
    lines = hanging(f"{'name':30}", LONG, 40).splitlines()
    assert lines[0] == "name"
    assert lines[1].startswith("    what")


@pytest.mark.parametrize("words", [("doctor",), ("tools",)])
@pytest.mark.parametrize(
    "columns", [60, pytest.param(80, marks=pytest.mark.slow), pytest.param(120, marks=pytest.mark.slow)]
)
def test_tables_fit_the_terminal(cli: Cli, tmp_path: Path, words: tuple[str, ...], columns: int) -> None:
    (tmp_path / "empty.yaml").write_text("")
    words = (*words, "--config", "empty.yaml")
    wide = cli(*words, env={"COLUMNS": ""}).stdout
    narrow = cli(*words, env={"COLUMNS": str(columns)}).stdout
    assert narrow.split() == wide.split()
    assert max(map(len, narrow.splitlines())) <= columns
    assert len(narrow.splitlines()) > len(wide.splitlines())
