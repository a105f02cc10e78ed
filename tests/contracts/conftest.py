"""The backends that the contract suites run over."""

from __future__ import annotations

import pytest

from tests.conftest import require
from tests.contracts.sandboxes import NAMES, kind_of, what_is_missing


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """A sandbox backend that works here."""
    backend: str = request.param
    reason = what_is_missing(backend)
    if isinstance(reason, str):
        require(kind_of(backend), reason)
    return backend
