"""After the rollouts: merge, manifest, statistics, card; and what the run came to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from hermes_run.core.registry import TOOLS, load
from hermes_run.core.trajectory import Status
from hermes_run.formats.card import card
from hermes_run.quality.statistics import describe, spent
from hermes_run.runner.observe import Observer, RunReport
from hermes_run.store import layout
from hermes_run.store.disk import replace_file
from hermes_run.store.entry import Entry
from hermes_run.store.manifest import write_manifest
from hermes_run.store.merge import Planned, merge, statistics_json
from hermes_run.store.recovery import write_off
from hermes_run.store.verify import hash_file
from hermes_run.store.writer import Checkpoint
from hermes_run.tools.toolkit import offered_tools

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_run.dataset.plan import Plan
    from hermes_run.runner.opening import OpenRun


def finish(
    opened: OpenRun,
    observer: Observer,
    ending: tuple[int, str, int],
    duration_s: float,
) -> RunReport:
    """Write everything that is derived, and sum up."""
    exit_code, stopped, ran = ending
    spec, plan, journal, folder = opened.spec, opened.plan, opened.journal, opened.folder
    observer.phase("merging")
    extra = tuple(opened.extra)
    merged = merge(folder, journal, planned(plan), extra)
    for entry in merged.lost:
        write_off(folder, journal, entry)
    journal.begin_sync()()
    for text in merged.warnings:
        observer.warn(text)
    write_manifest(folder / layout.MANIFEST, journal.entries())
    invalid = len(plan.invalid) * spec.samples
    content = {
        "run_name": spec.run_name,
        "distribution": spec.distribution.name,
        "total_prompts": plan.total,
        "total_batches": len(journal.batches),
        "batch_size": spec.batch_size,
        "model": spec.model.name,
        "completed_at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()),
        "duration_seconds": round(duration_s, 2),
        **describe(merged.statistics, total=plan.total, invalid=invalid),
        "removed_duplicates": plan.removed,
        "spent": spent(journal.fold.spent),
    }
    replace_file(folder / layout.STATISTICS, statistics_json(content))
    write_tools(opened)
    replace_file(folder / layout.CARD, card(content, Entry, extra).encode())
    leave_checkpoint(opened)
    outcomes = content["outcomes"]
    return RunReport(
        run_dir=folder,
        statistics=content,
        exit_code=code_of(exit_code, outcomes),
        pending=outcomes["pending"],
        stopped=stopped,
        ran=ran,
    )


def code_of(exit_code: int, outcomes: dict[str, int]) -> int:
    """What stopped the run before all was done that was to do; else whether anything failed."""
    if exit_code:
        return exit_code
    return 1 if outcomes[Status.FAILED.value] or outcomes["pending"] else 0


def planned(plan: Plan) -> Iterator[Planned]:
    """The plan with what the current dataset says of each row, in one pass over both."""
    rows = plan.read_rows()
    position, row = -1, None
    for rollout in plan.rollouts():
        while position < rollout.position:
            position, row = next(rows)
        if row is not None:
            yield Planned(rollout.key, plan.prompt_index(position), row.rest)


def write_tools(opened: OpenRun) -> None:
    """tools.json: the schema of every tool that can be offered, what is drawn first."""
    folder, spec = opened.folder, opened.spec
    drawable = [name for name, percent in spec.distribution.toolsets.items() if percent > 0]
    specs = [load("tool", TOOLS, name).spec for name in offered_tools(drawable, spec.toolsets)]
    specs += opened.extra.values()
    tools = [{"type": "function", "function": msgspec.to_builtins(each)} for each in specs]
    replace_file(folder / layout.TOOLS, msgspec.json.format(msgspec.json.encode(tools), indent=2) + b"\n")


def leave_checkpoint(opened: OpenRun) -> None:
    """checkpoint.json of the finished run, with the hashes of what was derived."""
    folder, journal, plan = opened.folder, opened.journal, opened.plan
    checkpoint = Checkpoint(folder, opened.spec.run_name, opened.spec.samples)
    for rollout in plan.rollouts():
        entry = journal.find(rollout.key)
        if entry is not None:
            checkpoint.add(plan.prompt_index(rollout.position), entry.batch, entry.status)
    hashes = {name: hash_file(folder / name) for name in layout.DERIVED}
    checkpoint.files = {"journal_bytes": journal.size} | hashes
    checkpoint.begin(final=True)()
