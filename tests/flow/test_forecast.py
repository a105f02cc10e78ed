"""What the rest of a run will come to: after a pilot, and in a dry run."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from hermes_run.runner.signals import GRACE_S
from tests.flow.lab import Lab
from tests.flow.replies import turns
from tests.servers import ModelServer, fails, says

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        running.respond = turns(3)
        yield running


def lab_at(server: ModelServer, folder: Path, prompts: int = 10) -> Lab:
    lab = Lab(folder, {"sandbox": {"backend": "local"}})
    lab.write_prompts(*(f"[{number}] do it" for number in range(prompts)))
    lab.use_server(server.url)
    return lab


def test_a_pilot_runs_its_rollouts_shows_the_forecast_and_stops_where_nobody_can_be_asked(
    server: ModelServer, tmp_path: Path
) -> None:
    lab = lab_at(server, tmp_path)
    first = lab.run("--pilot", "4")
    assert first.code == 5
    assert len(server.requests) == 12
    assert "forecast of 6 rollouts, from 4 of the pilot" in first.err
    assert "18  (18 to 18)" in first.err  # six rollouts of three calls each
    assert "--yes" in first.err
    assert lab.run().code == 0
    assert len(server.requests) == 30
    lab.assert_sound()


@pytest.mark.parametrize(("count", "interval"), [("1", "(0 to 183)"), ("2", "(12 to 12)")])
def test_of_a_small_pilot_the_interval_is_as_wide_as_little_is_known(
    server: ModelServer, tmp_path: Path, count: str, interval: str
) -> None:
    lab = lab_at(server, tmp_path, prompts=int(count) + 4)
    assert interval in lab.run("--pilot", count, "-q").err
    assert len(server.requests) == 3 * int(count)


def test_yes_goes_on_unasked(server: ModelServer, tmp_path: Path) -> None:
    lab = lab_at(server, tmp_path)
    done = lab.run("--pilot", "3", "--yes")
    assert (done.code, len(server.requests)) == (0, 30)
    assert "forecast of 7 rollouts" in done.err


def test_a_pilot_as_big_as_the_run_is_the_run(server: ModelServer, tmp_path: Path) -> None:
    lab = lab_at(server, tmp_path, prompts=3)
    done = lab.run("--pilot", "5")
    assert (done.code, "forecast" in done.err) == (0, False)


@contextmanager
def at_a_terminal(lab: Lab) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A run with a pilot whose question has just come, and the terminal that it asks at."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        lab.command("run", str(lab.write_spec()), "--pilot", "3", "-q"),
        cwd=lab.folder,
        env=lab.environment(),
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    deadline = time.monotonic() + 60
    while b"run the rest? [y/N]" not in said and time.monotonic() < deadline:
        said += os.read(ours, 4096)
    yield running, ours
    os.close(ours)


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "code", "requests"), [("y\n", 0, 18), ("n\n", 5, 9), ("\n", 5, 9)])
def test_at_a_terminal_it_asks(
    server: ModelServer, tmp_path: Path, answer: str, code: int, requests: int
) -> None:
    with at_a_terminal(lab_at(server, tmp_path, prompts=6)) as (running, terminal):
        os.write(terminal, answer.encode())
        assert running.wait(60) == code
    assert len(server.requests) == requests


@pytest.mark.slow
def test_a_signal_is_an_answer(server: ModelServer, tmp_path: Path) -> None:
    lab = lab_at(server, tmp_path, prompts=6)
    with at_a_terminal(lab) as (running, _):
        asked = time.monotonic()
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert time.monotonic() - asked < GRACE_S / 2, "nothing is in flight that could be waited for"
    assert len(server.requests) == 9
    lab.assert_sound()


def test_after_a_signal_during_the_pilot_nobody_is_asked(server: ModelServer, tmp_path: Path) -> None:
    server.respond = turns(3, delay_s=0.5)
    lab = lab_at(server, tmp_path, prompts=6)
    child = lab.start("--pilot", "3", "--yes")
    while not server.requests:
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert (child.returncode, "forecast" in err) == (130, False)
    assert lab.statuses() == {"completed": 3}
    assert len(server.requests) == 9
    lab.assert_sound()


def test_a_dry_run_forecasts_from_the_run_itself_or_from_an_earlier_one_of_the_same_dataset(
    server: ModelServer, tmp_path: Path
) -> None:
    lab = lab_at(server, tmp_path)
    assert lab.run("--dry-run", "--json").json()["forecast"] is None
    lab.run("--pilot", "4")
    own = lab.run("--dry-run", "--json").json()["forecast"]
    assert (own["from_rollouts"], own["rollouts"]) == (4, 6)
    assert own["calls"] == {"expected": 18, "low": 18, "high": 18}
    assert own["tokens"]["expected"] > 0
    assert own["cost"] is None  # the endpoint tells none: unknown, not zero
    assert "cost         unknown" in lab.run("--dry-run").out
    lab.spec["run_name"] = "another"
    other = lab.run("--dry-run", "--json").json()["forecast"]
    assert other["source"].endswith("data/r")
    assert other["calls"]["expected"] == 30
    assert "forecast of 10 rollouts" in lab.run("--dry-run").out
    (tmp_path / "data/r/journal.jsonl").unlink()  # as where only what lives in git is kept
    kept = lab.run("--dry-run", "--json").json()["forecast"]
    assert kept == other | {"seconds": None}
    lab.write_prompts("another dataset")
    assert lab.run("--dry-run", "--json").json()["forecast"] is None


def test_rollouts_that_were_never_answered_forecast_nothing_and_are_no_promise_of_zero(
    server: ModelServer, tmp_path: Path
) -> None:
    lab = lab_at(server, tmp_path)
    server.respond = lambda _: fails(418)
    nothing = lab.run("--pilot", "4")
    assert nothing.code == 5
    assert "no forecast: no rollout of the pilot had a reply" in nothing.err
    assert "$0" not in nothing.err
    server.respond = lambda request: fails(418) if "[1]" in request.prompt else turns(3)(request)
    assert "forecast of 6 rollouts, from 3 of the pilot" in lab.run("--pilot", "4").err


def test_what_failed_and_was_billed_is_part_of_the_forecast(server: ModelServer, tmp_path: Path) -> None:
    lab = lab_at(server, tmp_path)
    server.respond = lambda _: says(None)
    assert "18  (18 to 18)" in lab.run("--pilot", "4").err  # six rollouts of three empty replies each


def test_runs_beside_that_cannot_be_read_are_no_reason_to_stop(server: ModelServer, tmp_path: Path) -> None:
    lab = lab_at(server, tmp_path)
    lab.run("--pilot", "4")
    for name in ("odd", "hollow"):
        (tmp_path / f"data/{name}").mkdir()
    (tmp_path / "data/odd/plan.json").mkdir()
    plan = (tmp_path / "data/r/plan.json").read_bytes()
    (tmp_path / "data/hollow/plan.json").write_bytes(plan)
    (tmp_path / "data/hollow/manifest.jsonl").symlink_to("manifest.jsonl")
    (tmp_path / "data/dangling").mkdir()
    (tmp_path / "data/dangling/plan.json").symlink_to("nowhere")
    lab.spec["run_name"] = "another"
    asked = lab.run("--dry-run", "--json")
    assert asked.code == 0, asked.err
    assert asked.json()["forecast"]["source"].endswith("data/r")


@pytest.mark.parametrize("count", ["0", "-1", "x", "1.5"])
def test_a_pilot_of_no_rollouts_is_a_mistake(server: ModelServer, tmp_path: Path, count: str) -> None:
    lab = lab_at(server, tmp_path)
    refused = lab.run(f"--pilot={count}")
    assert (refused.code, server.requests) == (2, [])
    assert "--pilot takes a number of rollouts" in refused.err
