"""How property tests run: the same examples every time, so that a build fails for a change alone.

`pytest --hypothesis-profile=search` looks for new examples, many more of them.
"""

from __future__ import annotations

import os
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

_SLOW_MACHINES = [HealthCheck.too_slow]

settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=50,
    suppress_health_check=_SLOW_MACHINES,
)
settings.register_profile(
    "search", deadline=None, max_examples=1000, database=None, suppress_health_check=_SLOW_MACHINES
)
settings.load_profile("repeatable")


def require(name: str, reason: str) -> NoReturn:
    """Skip a test for want of a real part, or fail it when HERMES_RUN_REQUIRE (a,b,c) names that part."""
    if name in os.environ.get("HERMES_RUN_REQUIRE", "").split(","):
        pytest.fail(f"{name} is required here: {reason}")
    pytest.skip(f"{name}: {reason}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What failed at first and was tried again is a fault to be mended, so its account is kept."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"first try of {report.nodeid}")
        terminalreporter.line(report.longreprtext)
