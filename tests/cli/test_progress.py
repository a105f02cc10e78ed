from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from hermes_run.cli.display import LivePicture
from hermes_run.cli.progress import PlainLines, Quiet, Tally
from hermes_run.core.messages import Usage
from hermes_run.core.task import PromptTask
from hermes_run.core.trajectory import Outcome, Status

if TYPE_CHECKING:
    import pytest

TASK = PromptTask(key="0" * 32 + "#0", prompt_index=0, prompt="p")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def outcome(status: Status = Status.COMPLETED, reason: str = "finished") -> Outcome:
    return Outcome(TASK.key, 0, 0, status, reason, 1.0, "", "", usage=Usage(total_tokens=100))


def test_the_rate_and_the_eta_come_from_what_was_finished_lately() -> None:
    clock = Clock()
    tally = Tally(clock)
    tally.plan(total=20, done=5, pending=15)
    for _ in range(5):
        tally.start()
        clock.now += 2
        tally.finish(outcome())
    assert tally.rate == 0.5
    assert tally.eta_s == 20
    assert (tally.done, tally.in_flight, tally.tokens) == (10, 0, 500)


def test_nothing_is_foretold_before_the_first_is_finished() -> None:
    tally = Tally(Clock())
    tally.plan(total=3, done=0, pending=3)
    assert tally.eta_s is None
    assert tally.details() == []


def test_failures_are_told_by_reason_the_most_frequent_first() -> None:
    tally = Tally(Clock())
    for reason in ("image", "provider_error", "provider_error"):
        tally.finish(outcome(Status.FAILED, reason))
    assert tally.failed() == "3 failed (provider_error 2, image 1)"


def test_plain_lines_come_every_five_percent_or_ten_seconds_and_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    seen: list[Path] = []
    lines = PlainLines(seen.append, clock)
    lines.planned(total=1000, done=0, pending=1000, run_dir=Path("data/x"))
    for _ in range(1000):
        clock.now += 0.1
        lines.started(TASK)
        lines.finished(outcome())
    said = capsys.readouterr().err.splitlines()
    assert seen == [Path("data/x")]
    assert said[0] == "data/x: 1,000 planned, 0 done, 1,000 to run"
    assert said[1] == "50/1,000 (5 %)  10.0/s  ETA 1 min 35 s  5,000 tokens"
    assert len(said) == 21
    assert said[-1].startswith("1,000/1,000 (100 %)")


def test_a_slow_run_says_something_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = PlainLines(lambda _: None, clock)
    lines.planned(total=100_000, done=0, pending=100_000, run_dir=Path("x"))
    for _ in range(30):
        clock.now += 1
        lines.finished(outcome())
    assert len(capsys.readouterr().err.splitlines()) == 1 + 3


def test_a_fast_run_does_not_flood_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    lines = PlainLines(lambda _: None, clock)
    lines.planned(total=20, done=0, pending=20, run_dir=Path("x"))
    for _ in range(20):
        clock.now += 0.01
        lines.finished(outcome())
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_quiet_says_nothing_but_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = Quiet(lambda _: None)
    quiet.planned(total=1, done=0, pending=1, run_dir=Path("x"))
    quiet.started(TASK)
    quiet.finished(outcome())
    quiet.phase("merging")
    quiet.warn("mind this")
    assert capsys.readouterr() == ("", "warning: mind this\n")


def test_the_picture_shows_the_counts_and_leaves_the_cursor_visible() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    picture = LivePicture(lambda _: None, console)
    picture.planned(total=12, done=3, pending=9, run_dir=Path("data/demo"))
    picture.started(TASK)
    picture.finished(outcome(Status.FAILED, "sandbox_lost"))
    picture.warn("mind this")
    picture._live.refresh()
    shown = screen.getvalue()
    picture.close()
    assert "demo" in shown
    assert "4/12" in shown
    assert "1 failed (sandbox_lost 1)" in shown
    assert "warning: mind this" in shown
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")


def test_a_picture_of_a_run_that_never_began_can_be_closed() -> None:
    LivePicture(lambda _: None, Console(file=io.StringIO(), force_terminal=True)).close()
