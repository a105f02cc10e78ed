"""Usage adds up, and unknown is not zero."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hermes_run.core.messages import Usage
from hermes_run.core.trajectory import ToolCount

COUNTS = st.integers(0, 10**12)
COSTS = st.floats(0, 10_000, allow_subnormal=False) | st.integers(0, 100)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COSTS, COUNTS, COUNTS, COUNTS)
TOOL_COUNTS = st.builds(ToolCount, COUNTS, COUNTS, COUNTS)


@given(USAGES, USAGES, USAGES)
def test_usages_add_up_in_any_order(a: Usage, b: Usage, c: Usage) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Usage() + b == a + b


@given(USAGES)
def test_a_sum_has_a_cost_in_floating_point_whatever_the_provider_wrote(usage: Usage) -> None:
    assert isinstance((usage + Usage()).cost, float)


def test_a_cost_is_known_only_when_every_call_said_it() -> None:
    assert Usage().known_cost == 0.0
    assert Usage(cost=0.5, calls=1).known_cost == 0.5
    assert (Usage(cost=0.5, calls=1) + Usage(calls=1, calls_without_cost=1)).known_cost is None


@given(TOOL_COUNTS, TOOL_COUNTS, TOOL_COUNTS)
def test_tool_counts_add_up(a: ToolCount, b: ToolCount, c: ToolCount) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + ToolCount() == a
