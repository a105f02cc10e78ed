"""What is told while a run goes on: the counts, and plain lines for logs and pipes.

The moving picture for terminals is in `display.py`; both show one `Tally`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from hermes_run.cli.logs import log_outcome
from hermes_run.cli.plain import duration, money, number
from hermes_run.cli.report import complain
from hermes_run.core.trajectory import Status

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hermes_run.core.task import PromptTask
    from hermes_run.core.trajectory import Outcome

_log = logging.getLogger(__name__)
LINE_EVERY_S = 10.0
LINE_EVERY_PERCENT = 5
_LINES_APART_S = 1.0  # a fast run does not flood a log
_FORECAST_FROM = 3  # rollouts; of fewer nothing is said of the rest
_RATE_OVER = 200  # finished rollouts that the rate is taken from


class Tally:
    """Counts of a run in progress. All times are of `clock`, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_at = clock()
        self._finished_at: deque[float] = deque(maxlen=_RATE_OVER)
        self.total = 0
        self.done_before = 0
        self.pending = 0
        self.ran = 0
        self.in_flight = 0
        self.tokens = 0
        self.cost = 0.0
        self.costs_known = 0
        self.statuses: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.phase = ""

    @property
    def done(self) -> int:
        """Rollouts with an outcome, from earlier runs too."""
        return self.done_before + self.ran

    def plan(self, total: int, done: int, pending: int) -> None:
        """The plan stands."""
        self.total, self.done_before, self.pending = total, done, pending
        self._started_at = self._clock()

    def start(self) -> None:
        """A rollout began."""
        self.in_flight += 1

    def finish(self, outcome: Outcome) -> None:
        """A rollout has its outcome."""
        self.in_flight = max(0, self.in_flight - 1)
        self.ran += 1
        usage = outcome.trajectory.usage if outcome.trajectory else outcome.usage
        self.tokens += usage.total_tokens
        if usage.known_cost is not None:
            self.cost += usage.known_cost
            self.costs_known += 1
        self.statuses[outcome.status.value] += 1
        if outcome.status is Status.FAILED:
            self.failures[outcome.reason] += 1
        self._finished_at.append(self._clock())

    @property
    def elapsed_s(self) -> float:
        """Since the plan stood."""
        return self._clock() - self._started_at

    @property
    def rate(self) -> float:
        """Rollouts finished a second, lately; 0.0 when nothing can be said."""
        if len(self._finished_at) == self._finished_at.maxlen:
            span = self._clock() - self._finished_at[0]
        else:
            span = self.elapsed_s
        return len(self._finished_at) / span if span > 0 else 0.0

    @property
    def eta_s(self) -> float | None:
        """Seconds until the last one, at the present rate; None when nothing can be said."""
        return (self.pending - self.ran) / self.rate if self.rate else None

    def details(self) -> list[str]:
        """What stands beside the bar, each a few words."""
        words = []
        if self.rate:
            words.append(f"{self.rate:.1f}/s" if self.rate >= 1 else f"{self.rate * 60:.1f}/min")
        if self.pending > self.ran and self.eta_s is not None:
            words.append(f"ETA {duration(self.eta_s)}")
        if self.in_flight:
            words.append(f"{number(self.in_flight)} in flight")
        if self.tokens:
            words.append(f"{number(self.tokens)} tokens")
        if self.cost:
            words.append(self._money())
        others = [
            (self.statuses[status.value], status.value) for status in (Status.PARTIAL, Status.DISCARDED)
        ]
        return words + [f"{number(count)} {name}" for count, name in others if count]

    def _money(self) -> str:
        """`$1.20 of about $14`: what it took so far, and what all that is pending will at this rate."""
        if self.costs_known < _FORECAST_FROM or self.ran >= self.pending:
            return money(self.cost)
        return f"{money(self.cost)} of about {money(self.cost / self.costs_known * self.pending)}"

    def failed(self) -> str:
        """`3 failed (provider_error 2, sandbox_lost 1)`, or ""."""
        if not self.failures:
            return ""
        reasons = ", ".join(f"{reason} {number(count)}" for reason, count in self.failures.most_common())
        return f"{number(self.failures.total())} failed ({reasons})"


class Quiet:
    """An observer that only passes warnings on, to stderr."""

    def __init__(self, on_planned: Callable[[Path], None]) -> None:
        self.tally = Tally()
        self._on_planned = on_planned

    def planned(self, *, total: int, done: int, pending: int, run_dir: Path) -> None:
        """The plan stands."""
        self.tally.plan(total, done, pending)
        self._on_planned(run_dir)

    def started(self, task: PromptTask) -> None:  # noqa: ARG002 - the Observer's signature
        """A rollout begins."""
        self.tally.start()

    def finished(self, outcome: Outcome) -> None:
        """Its outcome is written down."""
        self.tally.finish(outcome)
        log_outcome(outcome)

    def phase(self, text: str) -> None:
        """Something longer begins that is no rollout."""
        self.tally.phase = text

    def warn(self, text: str) -> None:
        """Something that a person should know."""
        _log.warning("%s", text)
        self.show_warning(text)

    def show_warning(self, text: str) -> None:
        """Put it before the person's eyes."""
        complain(f"warning: {text}")

    def pause(self) -> None:
        """Somebody is asked something: leave the terminal alone."""

    def resume(self) -> None:
        """It has been answered."""

    def close(self) -> None:
        """Nothing more will come."""


class PlainLines(Quiet):
    """A line on stderr every ten seconds or five percent."""

    def __init__(
        self, on_planned: Callable[[Path], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(on_planned)
        self.tally = Tally(clock)
        self._clock = clock
        self._said_at = clock()
        self._said_done = 0

    def planned(self, *, total: int, done: int, pending: int, run_dir: Path) -> None:
        """The plan stands."""
        super().planned(total=total, done=done, pending=pending, run_dir=run_dir)
        self._said_at, self._said_done = self._clock(), done
        complain(f"{run_dir}: {number(total)} planned, {number(done)} done, {number(pending)} to run")

    def finished(self, outcome: Outcome) -> None:
        """Its outcome is written down."""
        super().finished(outcome)
        waited_s = self._clock() - self._said_at
        steps = (self.tally.done - self._said_done) * 100
        is_last = self.tally.ran == self.tally.pending
        is_due = steps >= LINE_EVERY_PERCENT * self.tally.total and waited_s >= _LINES_APART_S
        if is_last or is_due or waited_s >= LINE_EVERY_S:
            self._said_at, self._said_done = self._clock(), self.tally.done
            complain(self._line())

    def phase(self, text: str) -> None:
        """Something longer begins that is no rollout."""
        super().phase(text)
        complain(text)

    def _line(self) -> str:
        tally = self.tally
        percent = 100 * tally.done // max(1, tally.total)
        words = [
            f"{number(tally.done)}/{number(tally.total)} ({percent} %)",
            *tally.details(),
            tally.failed(),
        ]
        return "  ".join(word for word in words if word)
