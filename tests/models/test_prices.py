"""What calls cost, and when that is not known."""

from __future__ import annotations

import pytest

from hermes_run.core.messages import Usage
from hermes_run.models.prices import Price, Prices

TABLE = Prices(
    {
        "a": Price(input=1.0, output=10.0, cached_input=0.1),
        "b": Price(input=2.0, output=2.0),
        "subscribed": Price(flat=True),
    }
)
SILENT = Usage(calls=1, calls_without_usage=1, calls_without_cost=1)


def counted(cost: float | None = None) -> Usage:
    return Usage(
        prompt_tokens=1_000_000,
        completion_tokens=100_000,
        total_tokens=1_100_000,
        cached_tokens=500_000,
        cost=cost or 0.0,
        calls=1,
        calls_without_cost=int(cost is None),
    )


def priced(usage: Usage, asked: str = "a", served: str = "") -> Usage:
    return TABLE.priced(usage, asked, served, (400_000, 40_000))


def test_tokens_are_priced_cached_ones_by_their_own_price() -> None:
    assert priced(counted()).known_cost == pytest.approx(0.5 + 0.05 + 1.0)
    assert priced(counted(), asked="b").known_cost == pytest.approx(2.2)


def test_what_only_the_total_counts_is_priced_as_written() -> None:
    thought = Usage(1_000_000, 100_000, 1_300_000, calls=1, calls_without_cost=1)
    assert priced(thought).known_cost == pytest.approx(1.0 + 3.0)
    assert priced(Usage(total_tokens=100_000, calls=1, calls_without_cost=1)).known_cost == pytest.approx(1.0)


def test_what_the_endpoint_says_wins() -> None:
    assert priced(counted(0.25)) == counted(0.25)
    assert priced(counted(0.0)) == counted(0.0)


def test_the_model_that_served_decides_the_price_and_the_asked_one_where_that_has_none() -> None:
    assert priced(counted(), asked="a", served="b").known_cost == pytest.approx(2.2)
    assert priced(counted(), asked="b", served="b-2026").known_cost == pytest.approx(2.2)


def test_without_a_price_nothing_is_made_up() -> None:
    assert priced(counted(), asked="unknown").known_cost is None
    assert priced(SILENT, asked="unknown") == SILENT


def test_tokens_that_were_not_reported_are_estimated_where_there_is_a_price_and_counted() -> None:
    usage = priced(SILENT)
    assert usage.known_cost == pytest.approx(0.1 + 0.1)
    assert (usage.calls_estimated, usage.prompt_tokens, usage.calls_without_usage) == (1, 0, 1)


def test_a_subscription_costs_nothing_more_and_that_is_known() -> None:
    usage = priced(SILENT, asked="subscribed")
    assert (usage.known_cost, usage.calls_estimated) == (0.0, 0)


def test_billed_retries_whose_cost_is_known_are_not_priced_again() -> None:
    usage = counted(0.25) + counted()
    assert priced(usage).known_cost == pytest.approx(0.25 + 1.55)


def test_a_retry_that_told_nothing_adds_its_estimate_and_no_share_of_the_others() -> None:
    told, silent = counted(0.25), priced(SILENT)
    usage = priced(told + SILENT)
    assert usage.known_cost == pytest.approx(0.25 + silent.cost)
    assert priced(counted() + SILENT).known_cost == pytest.approx(1.55 + silent.cost)
