"""CPU of the plan, the journal, the manifest and the merge per million lines, beside a floor.

    python benchmarks/store.py [-n 100000]

The floor is the least that reading a manifest can cost: decoding key, status and hash of the same
entries with a typed decoder. Everything is measured in this process, in one call, and printed as
seconds per million lines and as a multiple of that floor.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_run.core.messages import Assistant, ToolCall, ToolResult, Usage, User
from hermes_run.core.trajectory import Outcome, Status, StopReason, ToolCount, Trajectory
from hermes_run.dataset.plan import Plan, Selection, make_plan
from hermes_run.formats.sharegpt import ShareGPT
from hermes_run.runner.finish import planned
from hermes_run.store import layout
from hermes_run.store.disk import Appender
from hermes_run.store.inspect import diff
from hermes_run.store.journal import Journal, JournalView
from hermes_run.store.lines import kept_line
from hermes_run.store.manifest import write_manifest
from hermes_run.store.merge import merge

if TYPE_CHECKING:
    from collections.abc import Callable


class Floor(msgspec.Struct):
    key: str
    status: str
    hash: str


def rollout(key: str, index: int) -> tuple[Outcome, Trajectory]:
    """A rollout of one tool call."""
    trajectory = Trajectory(
        key=key,
        prompt_index=index,
        messages=(
            User(f"task number {index}: say hello"),
            Assistant("", "I look first", (ToolCall("c0", "terminal", '{"command": "ls"}'),)),
            ToolResult("c0", "terminal", json.dumps({"output": "a\nb\n", "exit_code": 0, "error": None})),
            Assistant("done", "that was all"),
        ),
        stop_reason=StopReason.FINISHED,
        api_calls=2,
        toolsets=("terminal",),
        tool_counts={"terminal": ToolCount(1, 1, 0)},
        unknown_tools=(),
        usage=Usage(200, 20, 220, calls=2, calls_without_cost=2),
        model="m",
        served_model="m",
        draw={"terminal": 100.0},
        work="w" * 32,
        backend="bubblewrap",
        row=json.dumps({"n": index}),
        timestamp="2026-01-01T00:00:00",
    )
    when = trajectory.timestamp
    return Outcome(key, index, 0, Status.COMPLETED, "finished", 1.0, when, "w" * 32, trajectory), trajectory


class Table:
    def __init__(self, lines: int) -> None:
        self.lines = lines
        self.floor = 0.0

    def measure(self, name: str, job: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = job()
        cost = (time.process_time() - start) / self.lines * 1e6
        self.floor = self.floor or cost
        print(f"{name:44} {cost:8.2f} s per million   {cost / self.floor:6.1f} x floor")
        return result


def write_store(folder: Path, plan: Plan) -> None:
    journal = Journal(folder / layout.JOURNAL)
    batch, form = Appender(folder / "batch_0.jsonl"), ShareGPT()
    for task in plan.read_tasks(plan.rollouts()):
        line, entry = kept_line(*rollout(task.key, task.prompt_index), form)
        journal.append(msgspec.structs.replace(entry, offset=batch.append(line)))
    batch.close()
    journal.close()


def read_floor(path: Path) -> int:
    decode = msgspec.json.Decoder(Floor).decode
    with path.open("rb") as stream:
        return sum(decode(line).status == "completed" for line in stream)


def run(folder: Path, lines: int) -> None:
    dataset = folder / "data.jsonl"
    with dataset.open("w") as stream:
        for n in range(lines):
            stream.write(json.dumps({"prompt": f"task number {n}: say hello", "n": n}) + "\n")
    write_store(folder, make_plan(dataset, Selection()))
    view = JournalView(folder / layout.JOURNAL)
    write_manifest(folder / layout.MANIFEST, view.entries())

    table = Table(lines)
    table.measure("floor: key, status, hash of a manifest", lambda: read_floor(folder / layout.MANIFEST))
    plan = table.measure("plan: rows to keys", lambda: make_plan(dataset, Selection()))
    view = table.measure("journal: read, checked and folded", lambda: JournalView(folder / layout.JOURNAL))
    table.measure(
        "pending: plan minus done", lambda: sum(view.fold.status(r.key) is None for r in plan.rollouts())
    )
    table.measure(
        "manifest: folded and written", lambda: write_manifest(folder / layout.MANIFEST, view.entries())
    )
    table.measure("merge: every line verified, with statistics", lambda: merge(folder, view, planned(plan)))
    table.measure("diff of two (journals)", lambda: diff(folder, folder))
    form = ShareGPT()
    kept = [rollout("0" * 32 + "#0", n) for n in range(min(lines, 10_000))]
    part = Table(len(kept))
    part.floor = table.floor
    part.measure("write: record, line, hashes, entry", lambda: [kept_line(d, t, form) for d, t in kept])
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=100_000, help="lines")
    with tempfile.TemporaryDirectory() as folder:
        run(Path(folder), parser.parse_args().n)
