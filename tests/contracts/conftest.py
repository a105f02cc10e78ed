"""The backends that the contract suites run over."""

from __future__ import annotations

import pytest

from tests.conftest import require
from tests.contracts.sandboxes import NAMES, kind_of, what_is_missing

_CONTAINERS = {"docker", "singularity", "modal"}
"""Whose sandboxes take a while to start: of these, the quick tier runs what is named below."""
_QUICK = {
    "test_stdin_is_what_was_given_and_then_ends",
    "test_directory_and_exported_variables_carry_over",
    "test_late_output_never_reaches_the_next_call",
    "test_timeout_kills_everything_that_the_call_started[{name}-setsid",
    "test_fork_bomb_ends_with_its_own_call",
    "test_memory_bomb_ends_with_its_own_call",
    "test_what_kills_its_own_shell_ends_only_its_own_call[{name}-kill -9 -1",
    "test_loss_is_noticed_at_once",
    "test_cancelled_command_is_killed_and_the_sandbox_goes_on",
    "test_long_output_is_cut_to_head_and_tail_and_kept_whole",
    "test_environment_has_nothing_of_the_runner",
    "test_two_sandboxes_never_see_each_other",
    "test_what_a_killed_run_leaves_is_found_and_removed_and_nothing_else",
}
_QUICK_TOO = {
    "test_directory_and_exported_variables_carry_over",
    "test_timeout_kills_everything_that_the_call_started[{name}-setsid",
    "test_what_kills_its_own_shell_ends_only_its_own_call[{name}-kill -9 -1",
    "test_long_output_is_cut_to_head_and_tail_and_kept_whole",
}
"""The same for further images of such a backend."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What of the suite belongs to the longer tier on backends that start slowly."""
    for item in items:
        name = getattr(item, "callspec", None) and item.callspec.params.get("name")  # type: ignore[attr-defined]
        if not isinstance(name, str) or kind_of(name) not in _CONTAINERS:
            continue
        quick = _QUICK if name == kind_of(name) else _QUICK_TOO
        if not any(item.name.startswith(each.format(name=name)) for each in quick):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """A sandbox backend that works here."""
    backend: str = request.param
    reason = what_is_missing(backend)
    if isinstance(reason, str):
        require(kind_of(backend), reason)
    return backend
