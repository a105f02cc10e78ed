"""The summary: whole words and figures, however wide the terminal is."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from hermes_run.cli.display import print_summary
from hermes_run.quality.statistics import Statistics, describe

_TOOLS = {
    name: {"count": count, "success": count, "failure": 0, "success_rate": 100.0, "failure_rate": 0.0}
    for name, count in (("terminal", 1400), ("search_files", 30), ("browser_get_images", 2))
}


def _statistics(**changed: Any) -> dict[str, Any]:
    return {
        "run_name": "coding_v1",
        "model": "some/model",
        "duration_seconds": 1.4,
        **describe(Statistics(), total=0, invalid=0),
        **changed,
    }


def _shown(statistics: dict[str, Any], width: int) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    with console.capture() as captured:
        print_summary(console, statistics, [("log", "data/coding_v1/run.log")])
    return captured.get()


@pytest.mark.parametrize("width", [44, 60, 72, 80, 100, 200])
def test_every_name_and_figure_stays_whole_at_any_width(width: int) -> None:
    outcomes = {"completed": 12, "partial": 1, "discarded": 1, "failed": 1000, "invalid": 1, "pending": 1}
    statistics = _statistics(
        outcomes=outcomes, failed={"provider_error": 1000}, tool_statistics=_TOOLS, cost=None
    )
    shown = _shown(statistics, width)
    assert "…" not in shown
    for word in (*outcomes, *_TOOLS, "provider_error", "1,000", "1,400", "success"):
        assert word in shown
    assert shown.count("100.0 %") == len(_TOOLS)
    assert max(len(line) for line in shown.splitlines()) <= width


@pytest.mark.parametrize("width", [44, 80, 200])
def test_a_run_without_rows_is_shown_in_whole_words(width: int) -> None:
    shown = _shown(_statistics(), width)
    assert "…" not in shown
    for word in ("completed", "discarded", "none was called"):
        assert word in shown


def test_of_manifests_alone_tools_and_reasoning_are_unknown() -> None:
    statistics = _statistics(turns={"total": 18, "per_trajectory": 3.0})
    statistics["outcomes"]["completed"] = 6
    shown = _shown(statistics, 100)
    assert "none was called" not in shown
    assert "no turns" not in shown
    assert "unknown: no trajectory is here" in shown


def test_what_does_not_fit_side_by_side_stands_one_under_the_other() -> None:
    statistics = _statistics(tool_statistics=_TOOLS)

    def starts(width: int) -> tuple[int, int]:
        lines = _shown(statistics, width).splitlines()
        return next(i for i, line in enumerate(lines) if "outcomes" in line), next(
            i for i, line in enumerate(lines) if "tools" in line
        )

    beside, under = starts(100), starts(50)
    assert beside[0] == beside[1]
    assert under[0] < under[1]


def test_who_served_is_shown_where_it_is_not_the_model_asked_for_alone() -> None:
    assert "served by" not in _shown(_statistics(served_models={"some/model": 12}), 100)
    for drifted in (
        {"some/model-mini": 12},
        {"some/model": 12, "some/model-mini": 1},
        {"some/model,some/model-mini": 13},
    ):
        shown = _shown(_statistics(served_models=drifted), 100)
        assert "served by" in shown
        assert "some/model-mini 1" in shown
    assert "some/model + some/model-mini 13" in shown


def test_several_providers_are_shown_and_one_is_not() -> None:
    assert "providers" not in _shown(_statistics(served_providers={"One": 12}), 100)
    assert "providers" in _shown(_statistics(served_providers={"One,Two": 12}), 100)
    many = {f"P{number}": number for number in range(1, 12)}
    shown = " ".join(_shown(_statistics(served_providers=many), 100).replace("│", " ").split())
    assert "providers P11 11, P10 10," in shown
    assert "and 3 more" in shown
