"""What every filter holds to: a pure judgement with a reason that the contract names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from hermes_run.core import registry
from hermes_run.core.trajectory import DISCARDED_REASONS
from hermes_run.formats.sharegpt import ShareGPT
from tests.trajectories import trajectories

if TYPE_CHECKING:
    from hermes_run.core.contracts import Filter
    from hermes_run.core.trajectory import Trajectory

NAMES = [name for name, row in registry.FILTERS.items() if row.path]
each = pytest.mark.parametrize("name", NAMES)


def make(name: str) -> Filter:
    made: Filter = registry.load("filter", registry.FILTERS, name)()
    return made


@each
def test_its_reason_is_its_name_and_a_reason_of_the_contract(name: str) -> None:
    assert make(name).reason == name
    assert name in DISCARDED_REASONS


def test_every_reason_of_the_contract_has_its_filter() -> None:
    assert set(DISCARDED_REASONS) == {make(name).reason for name in NAMES}


@each
@given(trajectory=trajectories())
def test_it_judges_by_the_record_alone_and_changes_nothing(name: str, trajectory: Trajectory) -> None:
    """A kept line judged again must come to what the trajectory came to."""
    before = repr(trajectory)
    judged = make(name).discards(trajectory)
    form = ShareGPT()
    assert make(name).discards(form.decode(form.encode(trajectory))) is judged
    assert make(name).discards(trajectory) is judged
    assert isinstance(judged, bool)
    assert repr(trajectory) == before
