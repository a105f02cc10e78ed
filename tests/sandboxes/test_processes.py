"""Whose process is it: the call's, or an older one's?"""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from hermes_run.sandboxes._processes import Process, call_members, descendants, kill_all, process_table

_TICKS = 100


def table(*rows: tuple[int, int, int]) -> dict[int, Process]:
    return {pid: Process(pid, parent, started) for pid, parent, started in rows}


FIRST, SHELL = 10, 11


def members(processes: dict[int, Process], started_s: float = 0.0) -> set[int]:
    orphans = [p.pid for p in processes.values() if p.parent == FIRST and p.pid != SHELL]
    return call_members(processes, SHELL, orphans, started_s)


def test_everything_below_the_kept_shell_is_the_calls() -> None:
    assert members(table((FIRST, 1, 0), (SHELL, FIRST, 0), (20, SHELL, 50), (21, 20, 50), (22, 21, 60))) == {
        20,
        21,
        22,
    }


def test_younger_orphans_and_theirs_are_the_calls() -> None:
    processes = table((FIRST, 1, 0), (SHELL, FIRST, 0), (20, SHELL, 50), (30, FIRST, 51), (31, 30, 52))
    assert members(processes) == {20, 30, 31}


def test_older_survivors_and_what_they_start_are_left_alone() -> None:
    processes = table(
        (FIRST, 1, 0),
        (SHELL, FIRST, 0),
        (15, FIRST, 40),
        (40, 15, 90),
        (20, SHELL, 50),
        (30, FIRST, 50),
        (14, FIRST, 50),
    )
    assert members(processes) == {20, 30}


def test_orphans_of_a_call_whose_shell_died_are_told_by_the_time_it_was_sent() -> None:
    processes = table((FIRST, 1, 0), (15, FIRST, 40), (30, FIRST, 50 * _TICKS), (31, 30, 51 * _TICKS))
    assert call_members(processes, None, [15, 30], 49.5) == {30, 31}


def test_forkers_do_not_get_away() -> None:
    forker = (
        "import os, time\n"
        "for _ in range(60):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(60)\n"
        "        os._exit(0)\n"
        "    time.sleep(0.003)\n"
        "time.sleep(60)"
    )
    root = subprocess.Popen([sys.executable, "-c", forker])
    try:
        time.sleep(0.1)
        kill_all(lambda: {root.pid} | descendants(process_table(), [root.pid]))
        assert root.wait(5) == -9
        assert descendants(process_table(), [root.pid]) == set()
    finally:
        root.kill()
        root.wait()


@pytest.mark.parametrize("number", [0, -1, 1])
def test_a_signal_is_never_sent_to_a_group_or_to_everybody(number: int) -> None:
    """A control group lists processes that are just ending as 0. In a pid namespace, should it fail."""
    program = (
        "import os, signal; from hermes_run.sandboxes._processes import send;"
        f"send([{number}, os.getpid()], signal.SIGTERM); print('alive', flush=True)"
    )
    contained = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    done = subprocess.run(
        [*contained, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    if "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout == "alive\n", done.stderr
