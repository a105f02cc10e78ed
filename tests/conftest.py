"""How property tests run: the same examples every time, so that a build fails for a change alone.

`pytest --hypothesis-profile=search` looks for new examples, many more of them.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_SLOW_MACHINES = [HealthCheck.too_slow]

settings.register_profile(
    "repeatable", deadline=None, derandomize=True, database=None, suppress_health_check=_SLOW_MACHINES
)
settings.register_profile(
    "search", deadline=None, max_examples=3000, database=None, suppress_health_check=_SLOW_MACHINES
)
settings.load_profile("repeatable")
