from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cases.here import LabHere
from tests.flow.conftest import lab, server

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["lab", "server"]


@pytest.fixture
def here(tmp_path: Path) -> LabHere:
    return LabHere(tmp_path / "lab")
