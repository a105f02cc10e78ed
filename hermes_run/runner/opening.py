"""Opening a run directory: locked, in step with its journal, of the same spec."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from hermes_run.core.text import command_line
from hermes_run.core.trajectory import Status
from hermes_run.errors import JournalDamaged, UsageError
from hermes_run.runner.extra_tools import remembered as remembered_tools
from hermes_run.runner.resources import make_filters
from hermes_run.runner.snapshot import Snapshot, remembered
from hermes_run.store import layout
from hermes_run.store.batches import batch_numbers
from hermes_run.store.checkpoint import forget_hashes
from hermes_run.store.disk import remove_stale
from hermes_run.store.journal import Journal
from hermes_run.store.judging import judge_again
from hermes_run.store.planfile import write_plan
from hermes_run.store.recovery import recover
from hermes_run.store.reusing import Reuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hermes_run.core.contracts import Filter, ToolSpec
    from hermes_run.dataset.plan import Plan
    from hermes_run.runner.observe import Observer
    from hermes_run.runner.options import RunOptions
    from hermes_run.runner.pilot import Confirm
    from hermes_run.spec.model import Settings, Spec


@dataclass(slots=True, kw_only=True)
class OpenRun:
    """An open run directory, in step with its journal."""

    folder: Path
    spec: Spec
    settings: Settings
    plan: Plan
    journal: Journal
    snapshot: Snapshot
    filters: tuple[Filter, ...]
    retry: frozenset[str]
    pilot: int = 0
    confirm: Confirm | None = None
    warnings: list[str] = field(default_factory=list)
    extra: dict[str, ToolSpec] = field(default_factory=dict)
    """The run's own tools and those of MCP servers, of earlier runs in this directory too."""

    def is_pending(self, key: bytes) -> bool:
        """Whether a planned rollout is to be run: plan minus done."""
        status = self.journal.fold.status(key)
        return status is None or status in self.retry


@contextmanager
def open_run(
    spec: Spec, settings: Settings, plan: Plan, options: RunOptions, observer: Observer
) -> Iterator[OpenRun]:
    """Lock the run directory, mend what a kill left, refuse another spec."""
    folder = spec.output.dir / spec.run_name
    if options.fresh:
        refuse_if_locked(folder)
        aside = layout.set_old_aside(folder)
        if aside is not None:
            observer.warn(f"the old run directory is now {aside}")
    layout.create_run_dir(folder)
    with layout.locked(folder):
        if not options.resume and layout.has_entries(folder):
            raise UsageError(
                f"{folder}: there is a run already. Leave out --no-resume to continue it, set it aside with "
                "--fresh, or give this run another run_name"
            )
        opened = open_store(spec, settings, plan, options)
        try:
            for text in opened.warnings:
                observer.warn(text)
            yield opened
        finally:
            opened.journal.close()


def untried(plan: Plan, journal: Journal) -> Iterator[bytes]:
    """The planned rollouts without an outcome that has a trajectory, in dataset order."""
    tried = (None, Status.FAILED.value)
    return (each.key for each in plan.rollouts() if journal.fold.status(each.key) in tried)


def refuse_if_locked(folder: Path) -> None:
    """Raises RunLocked when a living process works in the run directory."""
    if folder.exists():
        with layout.locked(folder):
            pass


def _is_planned(plan: Plan) -> Callable[[bytes], bool]:
    """Whether a packed key is planned. All of them are gathered when it is first asked: it seldom is."""

    @cache
    def planned() -> frozenset[bytes]:
        return frozenset(each.key for each in plan.rollouts())

    return lambda key: key in planned()


def open_store(spec: Spec, settings: Settings, plan: Plan, options: RunOptions) -> OpenRun:
    """Journal, batch files and spec of a locked run directory, brought into step."""
    folder = spec.output.dir / spec.run_name
    remove_stale(folder)
    snapshot, filters = Snapshot(spec, settings), make_filters(spec)
    journal_path = folder / layout.JOURNAL
    numbers = batch_numbers(folder)
    if numbers and not journal_path.exists():
        raise JournalDamaged(
            f"{journal_path}: missing, and there are batch files. Rebuild it: "
            f"{command_line('repair', folder)}"
        )
    journal = Journal(journal_path)
    try:
        has_entries = journal.lines > 0 or bool(numbers)
        warnings = snapshot.check(folder, journal, has_entries=has_entries, accept=options.accept_spec_change)
        warnings += recover(folder, journal, filters, _is_planned(plan)).warnings
        if journal.lines and snapshot.is_judged_otherwise(folder):
            changed = judge_again(folder, journal, filters)
            journal.begin_sync()()  # spec.yaml, which remembers these filters, must not be safe before it
            if changed or remembered(folder).get("judgement"):
                warnings.append(f"the filters changed: {changed} kept trajectories are judged otherwise now")
        forget_hashes(folder)
        snapshot.write(folder)
        write_plan(folder, plan)
        reuse = Reuse(folder, journal, snapshot.work, filters, spec.batch_size)
        for other in spec.reuse:
            taken = reuse.take_over(other, untried(plan, journal))
            if taken or not has_entries:
                rollouts = "1 rollout was" if taken == 1 else f"{taken} rollouts were"
                warnings.append(f"{rollouts} taken over from {other} (reuse)")
    except BaseException:  # a signal, too, closes what was opened
        journal.close()
        raise
    return OpenRun(
        folder=folder,
        spec=spec,
        settings=settings,
        plan=plan,
        journal=journal,
        snapshot=snapshot,
        filters=filters,
        retry=options.retry,
        extra=remembered_tools(folder),
        pilot=options.pilot,
        confirm=options.confirm,
        warnings=warnings,
    )
