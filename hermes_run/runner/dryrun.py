"""`--dry-run`: what a run would do, from the plan and the run directory alone."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hermes_run.core.keys import unpack_key
from hermes_run.core.toolsets import drawing
from hermes_run.core.trajectory import Status
from hermes_run.runner.backends import backend_name
from hermes_run.runner.forecast import experience_of
from hermes_run.runner.snapshot import Snapshot
from hermes_run.store import layout
from hermes_run.store.journal import JournalView
from hermes_run.store.reusing import count_reusable

if TYPE_CHECKING:
    from hermes_run.dataset.plan import Plan
    from hermes_run.runner.options import RunOptions
    from hermes_run.spec.model import Settings, Spec


def describe_plan(spec: Spec, settings: Settings, plan: Plan, options: RunOptions) -> dict[str, Any]:
    """The plan as the contract's `--dry-run` object, with the backends beside it.

    `toolsets` counts in how many planned rollouts each is drawn. `reused` says how many of the pending ones
    are taken over from the runs that `reuse` names, and are no part of the forecast. `forecast`
    (`runner.forecast`) is None when there are no rollouts to forecast from. Raises SpecChanged and
    JournalDamaged as the run would.
    """
    folder = spec.output.dir / spec.run_name
    view = JournalView(folder / layout.JOURNAL)
    toolsets = spec.distribution.toolsets
    toolsets_of = drawing(toolsets, spec.seed)
    drawn: Counter[tuple[str, ...]] = Counter()
    done = pending = reused = 0
    snapshot, untried = Snapshot(spec, settings), []
    try:
        if not options.fresh:
            view.refuse_damage()
            accept = options.accept_spec_change
            snapshot.check(folder, view, has_entries=view.lines > 0, accept=accept)
        for rollout in plan.rollouts():
            status = None if options.fresh else view.fold.status(rollout.key)
            is_elsewhere = view.fold.is_line_elsewhere(rollout.key)
            is_pending = status is None or status in options.retry or is_elsewhere
            pending += is_pending
            done += not is_pending
            drawn[toolsets_of(unpack_key(rollout.key))] += 1
            if spec.reuse and status in (None, Status.FAILED.value):
                untried.append(rollout.key)
        reused = count_reusable(spec.reuse, snapshot.work, untried)
        experience = experience_of(spec, plan, view) if pending > reused else None
    finally:
        view.close()
    names = {backend_name(spec, settings, image) for image in plan.images}
    if plan.without_image or not plan.images:
        names.add(backend_name(spec, settings, ""))
    return {
        "rows": plan.rows,
        "invalid": len(plan.invalid),
        "removed_duplicates": plan.removed,
        "planned": plan.planned,
        "done": done,
        "pending": pending,
        "reused": reused,
        "toolsets": {name: sum(n for names, n in drawn.items() if name in names) for name in toolsets},
        "backends": sorted(names),
        "forecast": experience.forecast(pending - reused, spec.workers) if experience else None,
    }
