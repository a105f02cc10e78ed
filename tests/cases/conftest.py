from __future__ import annotations

from tests.flow.conftest import lab, server

__all__ = ["lab", "server"]
