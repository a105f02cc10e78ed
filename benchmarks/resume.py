"""CPU and memory of a resume plan: what a run does between its start and its first model call.

    python benchmarks/resume.py [-n 1000000]

A run directory of n planned rows, whose journal, manifest and batch files hold all of them, and one that
holds half: the dataset is planned, the journal read, checked and folded, what a kill left looked for, and
what is pending counted, up to the first task. Then the same without touching anything: `--dry-run`.

The floor is that of `sets.py`: decoding key, status and hash of a manifest of n entries. Each is measured
in a process of its own, beside its floor, and printed as CPU seconds, as a multiple of that floor, and with
the peak of memory.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from sets import entry, keys_of, measured, write

from hermes_run.core.keys import unpack_key
from hermes_run.runner.driver import Driver
from hermes_run.runner.dryrun import describe_plan
from hermes_run.runner.flow import plan_of
from hermes_run.runner.opening import open_run
from hermes_run.runner.options import RunOptions
from hermes_run.spec.model import (
    DatasetSpec,
    Distribution,
    ModelSpec,
    OutputSpec,
    SandboxSpec,
    Settings,
    Spec,
)
from hermes_run.store.batches import line_hash
from hermes_run.store.disk import Appender
from hermes_run.store.entry import Entry, JournalLine

if TYPE_CHECKING:
    from hermes_run.core.task import PromptTask
    from hermes_run.core.trajectory import Outcome
    from hermes_run.runner.opening import OpenRun

BOUND = 15
BATCH_SIZE = 1000
OPTIONS = RunOptions()


class Deaf:
    """An observer."""

    def planned(self, *, total: int, done: int, pending: int, run_dir: Path) -> None: ...
    def started(self, task: PromptTask) -> None: ...
    def finished(self, outcome: Outcome) -> None: ...
    def phase(self, text: str) -> None: ...
    def warn(self, text: str) -> None: ...


def spec_of(folder: Path) -> Spec:
    return Spec(
        run_name="r",
        dataset=DatasetSpec(path=folder / "rows.jsonl"),
        batch_size=BATCH_SIZE,
        distribution=Distribution(name="custom", toolsets={"terminal": 100.0, "file": 50.0}),
        model=ModelSpec(name="m", base_url="http://127.0.0.1:9/v1"),
        sandbox=SandboxSpec(backend="local"),
        output=OutputSpec(dir=folder / "data"),
    )


def fill(folder: Path, count: int, done: int) -> None:
    """A dataset, and a run that has come to `done` outcomes, as a run writes them."""
    with (folder / "rows.jsonl").open("w") as rows:
        for n in range(count):
            prompt = f"task number {n}: say hello, and count the files of the folder"
            rows.write(json.dumps({"prompt": prompt, "n": n}) + "\n")
    spec, dice = spec_of(folder), random.Random(0)
    with open_run(spec, Settings(), plan_of(spec, OPTIONS), OPTIONS, Deaf()) as opened:
        for number, rollout in enumerate(opened.plan.rollouts()):
            if number == done:
                break
            if number % BATCH_SIZE == 0:
                batch = Appender(opened.folder / f"batch_{number // BATCH_SIZE}.jsonl")
            append(opened, batch, number // BATCH_SIZE, entry(unpack_key(rollout.key), dice))
            if number % BATCH_SIZE == BATCH_SIZE - 1:
                batch.close()


def append(opened: OpenRun, batch: Appender, number: int, made: Entry) -> None:
    """An outcome: its line, then its entry. The line is short: a plan reads one of each file."""
    text = json.dumps({"key": made.key}).encode() if made.hash else b""
    fields = {name: getattr(made, name) for name in Entry.__struct_fields__} | {"work": opened.snapshot.work}
    line = JournalLine(
        **fields,
        batch=number,
        offset=batch.append(text) if text else 0,
        length=len(text),
        line_hash=line_hash(text) if text else "",
        finished_at="2026-01-01T00:00:00",
        duration_s=12.5,
    )
    opened.journal.append(line)


def resume(folder: Path) -> None:
    spec = spec_of(folder)
    with open_run(spec, Settings(), plan_of(spec, OPTIONS), OPTIONS, Deaf()) as opened:
        driver = Driver(opened, Deaf())
        first = next(driver.tasks(), None)
        print(
            f"  {driver.pending} pending, the first is row {first.prompt_index if first else None}",
            flush=True,
        )


def dry_run(folder: Path) -> None:
    spec = spec_of(folder)
    found = describe_plan(spec, Settings(), plan_of(spec, OPTIONS), OPTIONS)
    print(f"  {found['pending']} pending, drawn: {found['toolsets']}", flush=True)


def run(place: Path, count: int) -> None:
    manifest = write(place / "manifest.jsonl", keys_of(count, random.Random(1)), 0)
    for name, done in (("all done", count), ("half done", count // 2)):
        folder = place / "run"
        folder.mkdir()
        fill(folder, count, done)
        measured(f"resume plan: {name}", BOUND, (manifest,), lambda: resume(place / "run"))
        measured(f"--dry-run: {name}", BOUND, (manifest,), lambda: dry_run(place / "run"))
        shutil.rmtree(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=1_000_000, help="rows")
    with tempfile.TemporaryDirectory() as place:
        run(Path(place), parser.parse_args().n)
