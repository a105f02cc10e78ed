"""The built-in distributions, drawn over 20,000 keys, against their tables: a chi-square test of each."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import exp, lgamma, log
from pathlib import Path

import pytest
import yaml

from hermes_run.core.keys import content_key, rollout_key
from hermes_run.core.toolsets import draw

FOLDER = Path(__file__).parents[2] / "hermes_run/spec/distributions"
TABLES: dict[str, dict[str, float]] = {
    path.stem: yaml.safe_load(path.read_text())["toolsets"] for path in sorted(FOLDER.glob("*.yaml"))
}
KEYS = [rollout_key(content_key(f"task {number}"), 0) for number in range(20_000)]
FEWEST = 5.0
"""Draws expected of a cell; rarer ones are put together."""


def shares(table: dict[str, float]) -> dict[tuple[str, ...], float]:
    """Every set of toolsets that can be drawn -> its probability, the fallback's included."""
    found: dict[tuple[str, ...], float] = {}
    highest = max(table, key=lambda name: table[name])
    for chosen in product((True, False), repeat=len(table)):
        share = 1.0
        for percent, is_in in zip(table.values(), chosen, strict=True):
            share *= percent / 100 if is_in else 1 - percent / 100
        names = tuple(sorted(name for name, is_in in zip(table, chosen, strict=True) if is_in))
        drawn = names or (highest,)
        found[drawn] = found.get(drawn, 0.0) + share
    return {names: share for names, share in found.items() if share > 0}


def cells(seen: Counter[tuple[str, ...]], table: dict[str, float]) -> list[tuple[int, float]]:
    """(drawn, expected) of each cell; what is too rare for one of its own stands in one together."""
    pairs = sorted((share * len(KEYS), seen[names]) for names, share in shares(table).items())
    rare_wanted, rare_seen, found = 0.0, 0, []
    for wanted, drawn in pairs:
        if wanted < FEWEST or 0 < rare_wanted < FEWEST:
            rare_wanted, rare_seen = rare_wanted + wanted, rare_seen + drawn
        else:
            found.append((drawn, wanted))
    return [*found, (rare_seen, rare_wanted)] if rare_wanted else found


def p_value(statistic: float, freedom: int) -> float:
    """The chance of a chi-square of so many degrees of freedom to be at least this large.

    1 minus the regularised lower incomplete gamma function, by its series.
    """
    a, x = freedom / 2, statistic / 2
    if x <= 0:
        return 1.0
    term = total = 1 / a
    for n in range(1, 10_000):
        term *= x / (a + n)
        total += term
        if term < total * 1e-12:
            break
    return max(0.0, 1 - total * exp(a * log(x) - x - lgamma(a)))


def test_the_p_value_is_that_of_the_tables() -> None:
    for statistic, freedom, wanted in ((3.841, 1, 0.05), (29.588, 10, 0.001), (99.607, 60, 0.001)):
        assert abs(p_value(statistic, freedom) - wanted) < 0.02 * wanted


def test_there_are_seventeen_distributions() -> None:
    assert len(TABLES) == 17


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("seed", [0, 42])
def test_draws_of_a_distribution_pass_a_chi_square_test(name: str, seed: int) -> None:
    table = TABLES[name]
    seen = Counter(draw(table, seed, key) for key in KEYS)
    assert set(seen) <= set(shares(table))
    tested = cells(seen, table)
    assert sum(drawn for drawn, _ in tested) == len(KEYS)
    statistic = sum((drawn - wanted) ** 2 / wanted for drawn, wanted in tested)
    assert len(tested) == 1 or p_value(statistic, len(tested) - 1) > 0.0001


@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if 0 < min(table.values()) < 90])
def test_draws_of_another_table_do_not_pass(name: str) -> None:
    """A percentage that is off by six points is found: the test can fail."""
    table = TABLES[name]
    rarest = min(table, key=lambda each: table[each])
    seen = Counter(draw({**table, rarest: table[rarest] + 6}, 0, key) for key in KEYS)
    tested = cells(seen, table)
    statistic = sum((drawn - wanted) ** 2 / wanted for drawn, wanted in tested)
    assert p_value(statistic, len(tested) - 1) < 0.0001
