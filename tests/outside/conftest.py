"""A web site for the tests of this room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.outside.web import Site

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def site() -> Iterator[Site]:
    """A site of this test's own."""
    with Site() as site:
        yield site
