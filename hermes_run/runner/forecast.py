"""What the rest of a run will come to: from rollouts that are over, of this run or of an earlier one.

Each figure is a mean times the rollouts that are left, with the interval in which it falls in 19 of 20
cases if those that are left are like those that are over (the prediction interval of a sum, by Student's
distribution: m N ± t s sqrt(N + N²/n)). A single one says nothing of how much they differ: it is taken to
be as much as it came to.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from hermes_run.errors import UsageError
from hermes_run.store import layout
from hermes_run.store.journal import JournalView
from hermes_run.store.manifest import read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hermes_run.core.messages import Usage
    from hermes_run.dataset.plan import Plan
    from hermes_run.spec.model import Spec

_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Of 1, 2, … degrees of freedom; then two steps to the normal distribution's."""
_T_UP_TO_40, _Z = 2.09, 1.96
_MOST_READ = 20_000
"""Entries: more would change nothing that the interval does not hide."""
_ENOUGH = 3
"""Rollouts: a run that has fewer is forecast from only where no other one has more."""


@dataclass(slots=True)
class Sample:
    """One measure over some rollouts."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        """Take in one rollout's."""
        self.count += 1
        self.total += value
        self.squares += value * value

    def rest(self, left: int) -> dict[str, float] | None:
        """`{expected, low, high}` of the sum over `left` more; None of nothing."""
        if not self.count:
            return None
        mean = self.total / self.count
        freedom = max(1, self.count - 1)
        spread = max(0.0, self.squares - self.count * mean * mean) if self.count > 1 else mean * mean
        variance = spread / freedom
        margin = _student(freedom) * math.sqrt(variance * (left + left * left / self.count))
        expected = mean * left
        return {"expected": expected, "low": max(0.0, expected - margin), "high": expected + margin}


def _student(freedom: int) -> float:
    if freedom <= len(_T):
        return _T[freedom - 1]
    return _T_UP_TO_40 if freedom <= 40 else _Z


@dataclass(slots=True)
class Experience:
    """What rollouts that are over came to.

    Attributes:
        cost: only of rollouts whose cost is known.
    """

    source: str
    rollouts: int = 0
    calls: Sample = field(default_factory=Sample)
    tokens: Sample = field(default_factory=Sample)
    cost: Sample = field(default_factory=Sample)
    seconds: Sample = field(default_factory=Sample)

    def add(self, usage: Usage, calls: int, seconds: float | None) -> None:
        """Take in one rollout, unless nothing was answered: that it came to nothing says nothing."""
        calls = calls or usage.calls
        if not calls:
            return
        self.rollouts += 1
        self.calls.add(calls)
        if not usage.calls_without_usage:
            self.tokens.add(usage.total_tokens)
        if usage.known_cost is not None:
            self.cost.add(usage.known_cost)
        if seconds is not None:
            self.seconds.add(seconds)

    def forecast(self, left: int, workers: int) -> dict[str, Any] | None:
        """What `left` more rollouts will come to; None when none is over.

        `calls`, `tokens`, `cost` (USD) and `seconds` (of wall clock, with `workers` at a time), each
        `{expected, low, high}`, or None where nothing is known.
        """
        if not self.rollouts:
            return None
        seconds = self.seconds.rest(left)
        at_a_time = max(1, min(workers, left))
        return {
            "source": self.source,
            "from_rollouts": self.rollouts,
            "rollouts": left,
            "calls": _rounded(self.calls.rest(left), 0),
            "tokens": _rounded(self.tokens.rest(left), 0),
            "cost": _rounded(self.cost.rest(left), 6),
            "seconds": _rounded(
                {name: value / at_a_time for name, value in seconds.items()} if seconds else None, 1
            ),
        }


def _rounded(figures: dict[str, float] | None, digits: int) -> dict[str, float] | None:
    return figures and {name: round(value, digits) for name, value in figures.items()}


def experience_of(spec: Spec, plan: Plan, view: JournalView) -> Experience | None:
    """Of the run itself, whose journal is open already, else of an earlier one; None without.

    An earlier one has the same dataset, and stands under `output.dir`.
    """
    own = spec.output.dir / spec.run_name
    of_own = (_of_journal(str(own), view),) if view.lines else ()
    best: Experience | None = None
    for found in chain(of_own, map(_read, _others(own, plan))):
        if found.rollouts >= _ENOUGH:
            return found
        if found.rollouts and (best is None or found.rollouts > best.rollouts):
            best = found
    return best


def _others(own: Path, plan: Plan) -> Iterator[Path]:
    """Run directories of the same dataset, the youngest first; those that cannot be read are none."""
    found = []
    for path in own.parent.glob(f"*/{layout.PLAN}") if own.parent.is_dir() else ():
        with suppress(OSError):
            found.append((-path.stat().st_mtime, path))
    for _, path in sorted(found):
        hashed = None
        with suppress(OSError):
            hashed = layout.read_json(path).get("dataset_hash")
        if path.parent != own and hashed == plan.dataset_hash:
            yield path.parent


def _read(folder: Path) -> Experience:
    """Of a run directory: its journal, else its manifest, which knows no times."""
    found = Experience(str(folder))
    journal, manifest = folder / layout.JOURNAL, folder / layout.MANIFEST
    with suppress(OSError, UsageError):  # a stranger's, or damaged: no reason for this run to stop
        if journal.is_file():
            view = JournalView(journal)
            try:
                return _of_journal(str(folder), view)
            finally:
                view.close()
        if manifest.is_file():
            for entry in islice(read_manifest(manifest), _MOST_READ):
                found.add(entry.usage, entry.api_calls, None)
    return found


def _of_journal(source: str, view: JournalView) -> Experience:
    found = Experience(source)
    for entry in map(view.at, view.fold.offsets(_MOST_READ)):
        found.add(entry.usage, entry.api_calls, entry.duration_s)
    return found
