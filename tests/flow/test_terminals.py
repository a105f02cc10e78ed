"""A run outlives what it talks to: a terminal that is closed, a full disk behind stderr."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.servers import fails, says

if TYPE_CHECKING:
    from tests.flow.lab import Lab
    from tests.servers import ModelServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="terminals end otherwise there"),
]


def started(lab: Lab, *words: str, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    """A run in a session of its own: no signal tells it that its terminal is gone."""
    return subprocess.Popen(
        lab.command("run", str(lab.write_spec()), *words),
        cwd=lab.folder,
        env=lab.environment() | {"TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )


@pytest.fixture
def served(lab: Lab, server: ModelServer) -> Lab:
    server.respond = lambda _: says("x", reasoning="r", delay_s=0.4)
    lab.use_server(server.url)
    lab.spec["workers"] = 2
    lab.write_prompts(*(f"[{n}]" for n in range(6)))
    return lab


def check(lab: Lab, running: subprocess.Popen[bytes]) -> None:
    assert running.wait(60) == 0
    assert lab.statuses() == {"completed": 6}
    lab.assert_sound()


def test_a_terminal_that_hangs_up_lets_what_is_in_flight_finish(served: Lab, server: ModelServer) -> None:
    """Closed with the window, it sends SIGHUP, and nothing that is written there arrives any more."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        served.command("run", str(served.write_spec())),
        cwd=served.folder,
        env=served.environment() | {"TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=lambda: os.login_tty(theirs),  # noqa: PLW1509 - it is its session's terminal then
    )
    os.close(theirs)
    while len(server.requests) < 3:
        assert running.poll() is None
        time.sleep(0.02)
    os.close(ours)
    assert running.wait(60) == 129
    begun = len(server.requests)
    assert served.statuses() == {"completed": begun}
    assert begun < 6
    assert served.run("-q").code == 0
    assert len(server.requests) == 6
    served.assert_sound()


@pytest.mark.parametrize("has_stdout", [True, False])
def test_a_terminal_that_is_closed_ends_nothing(
    served: Lab, server: ModelServer, *, has_stdout: bool
) -> None:
    ours, theirs = pty.openpty()
    running = started(served, stdout=theirs if has_stdout else subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    while len(server.requests) < 3:
        assert running.poll() is None
        time.sleep(0.02)
    os.close(ours)
    check(served, running)


def test_progress_that_cannot_be_written_ends_nothing(served: Lab) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    running = started(served, stdout=subprocess.DEVNULL, stderr=full)
    os.close(full)
    check(served, running)


def test_a_result_that_cannot_be_written_is_told(served: Lab) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    running = started(served, "--json", "-q", stdout=full, stderr=subprocess.PIPE)
    os.close(full)
    _, err = running.communicate(timeout=60)
    assert (running.returncode, b"the disk is full" in err) == (4, True)
    assert served.statuses() == {"completed": 6}


@pytest.mark.slow
def test_a_run_that_waits_long_says_so(lab: Lab, server: ModelServer) -> None:
    answers = iter([fails(429, headers={"Retry-After": "10"})])
    server.respond = lambda _: next(answers, says("x", reasoning="r"))
    lab.use_server(server.url)
    lab.write_prompts("[1]")
    for words in ((), ("-q",)):
        done = lab.run(*words)
        assert done.code == 0
        assert "all calls wait 10.0 s" in done.err
        lab.write_prompts("[1]", "[2]")
        answers = iter([fails(429, headers={"Retry-After": "10"})])
