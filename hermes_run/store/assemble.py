"""A new run directory out of entries and their lines: merge, select, subtract, intersect and import make one.

It is written into a hidden folder beside OUT and renamed at the end: OUT is there whole or not at all.
What stands in it is what a run would have left there, so it can be resumed, verified, compared and
merged like any other. Nothing but packed keys is held in memory.

Entries may come without their line (from a manifest alone). They count in manifest, status, statistics
and every comparison; `verify` knows that their trajectories are elsewhere, and a run treats their
prompts as pending and says so, since it has nothing to put into trajectories.jsonl.
"""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import yaml
from xxhash import xxh3_64_intdigest

from hermes_run.core.keys import pack_key
from hermes_run.core.messages import Usage
from hermes_run.core.registry import TOOLS
from hermes_run.core.text import clean
from hermes_run.core.trajectory import Status
from hermes_run.errors import UsageError
from hermes_run.formats.card import card
from hermes_run.quality.statistics import Statistics, describe, glance, spent
from hermes_run.store import layout
from hermes_run.store.artifacts import copy_artifacts
from hermes_run.store.batches import batch_path, line_hash
from hermes_run.store.checkpoint import sealed
from hermes_run.store.disk import Appender, replace_file, replacing, sync_folder
from hermes_run.store.entry import (
    JUDGED,
    ROLLOUT,
    UNPAID,
    Entry,
    JournalLine,
    encode,
    encode_lines,
    seal,
    to_entry,
)
from hermes_run.store.journal import JournalView
from hermes_run.store.manifest import write_manifest
from hermes_run.store.merge import MERGED, statistics_json
from hermes_run.store.placing import placed
from hermes_run.store.planfile import write_plan_file
from hermes_run.store.tally import Tally
from hermes_run.store.verify import hash_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from hermes_run.store.planfile import PlanFile

MEMORY = "x-hermes-run"
"""Where a run's own words stand in spec.yaml (`runner.snapshot`)."""

_CURE = "name another OUT"

_SYNCED_ONE_BY_ONE = 64
"""So many batch files are synced one by one; of more, the whole machine at once is quicker."""

_BARE_PLACE = (
    b',"batch":0,"offset":0,"length":0,"line_hash":"","finished_at":"","duration_s":null,"source":"'
    + ROLLOUT.encode()
    + b'"'
)
"""What follows an entry's fields in the journal line of an entry without a line."""


class About(msgspec.Struct):
    """What a new run directory says of itself.

    Attributes:
        spec: contents of spec.yaml as it was in the run that this comes from; {} when there is none.
            `run_name` and `output.dir` are put right here.
        batch_size: prompts per batch file.
        distribution, model: names, for statistics and card.
        tools: contents of tools.json.
    """

    spec: dict[str, Any] = {}
    batch_size: int = 1000
    distribution: str = ""
    model: str = ""
    tools: list[dict[str, Any]] = []


@contextmanager
def assembling(out: Path, about: About) -> Iterator[Assembly]:
    """A new run directory that stands at `out` when the block ends well (`Assembly.finish` called).

    Raises UsageError when `out` exists or cannot be a run directory, RunLocked when another process is
    making it, DiskFull.
    """
    refuse_out(out)
    layout.create_run_dir(out.parent, _CURE)
    beside = out.with_name(f".{out.name}.assembling")
    layout.create_run_dir(beside, _CURE, name=out)
    with layout.locked(beside):
        for left in beside.iterdir():  # of one that was killed
            if left.is_dir():
                shutil.rmtree(left)
            elif left.name != layout.LOCK:
                left.unlink()
        try:
            with Assembly(beside, out, about).opened() as new:
                yield new
            sync_folder(beside)
            refuse_out(out)
            beside.rename(out)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
    sync_folder(out.parent)


def refuse_out(out: Path, sources: Sequence[Path] = ()) -> None:
    """Raises UsageError unless a run directory can be made there, outside of what it is made of."""
    refuse_inside(out, sources, "another OUT")
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out}: exists already; name another OUT, or move that away")
    if clean(str(out.parent)) != str(out.parent):
        raise UsageError(f"{out}: the name of its folder is no UTF-8, and cannot stand in spec.yaml; {_CURE}")
    if not layout.is_run_name(out.name):
        raise UsageError(
            f'{out}: "{out.name}" is no run name (letters, digits, ".", "_" and "-", at most 128, not '
            'beginning with "."); OUT is a run directory, and its name is the run\'s'
        )


def refuse_inside(path: Path, sources: Sequence[Path], cure: str) -> None:
    """Raises UsageError when a new file would lie in a run directory that is only read."""
    place = path.resolve()
    for source in sources:
        if layout.is_run_dir(source) and source.resolve() in place.parents:
            raise UsageError(f"{path}: lies in {source}, which is only read; name {cure}")


class Assembly:
    """Takes in entries, in the order in which their lines are to stand; `set_plan` before the end.

    Attributes:
        lines_elsewhere: entries so far that have a trajectory, and came without its line.
        content: of statistics.json, once the run directory is there.
    """

    def __init__(self, folder: Path, out: Path, about: About) -> None:
        self.folder = folder
        self._out = out
        self._about = about
        self._extra = tuple(name for name in tool_names(about.tools) if name not in TOOLS)
        self._started = time.monotonic()
        self._planned, self._outside = Tally(), Tally()
        self._records = Statistics()
        self._paid = Usage()
        self._sum = ""
        self._journal_bytes = 0
        self._last_key = b""
        self._is_sorted = True
        self._batch = self._in_batch = 0
        self._file: Appender | None = None
        self._batches: dict[int, Counter[str]] = {}
        self._done: dict[int, int] = {}
        self._completed: Iterable[int] | None = None
        self._plan: tuple[PlanFile, bytes] | None = None
        self.lines_elsewhere = 0
        self.content: dict[str, Any] = {}

    @contextmanager
    def opened(self) -> Iterator[Assembly]:
        """Open while entries come in; the derived files are written when the block ends well."""
        with (
            replacing(self.folder / layout.JOURNAL) as self._write_journal,
            replacing(self.folder / layout.TRAJECTORIES) as self._write_merged,
            replacing(self.folder / layout.MANIFEST) as self._write_manifest,
        ):
            try:
                yield self
            finally:
                self._close_batch()
        if not self._is_sorted:
            view = JournalView(self.folder / layout.JOURNAL)
            try:
                write_manifest(self.folder / layout.MANIFEST, view.entries())
            finally:
                view.close()
        self._write_derived()

    def set_plan(self, plan: PlanFile, keys: bytes, completed: Iterable[int] | None = None) -> None:
        """The plan, its packed content keys, and which rows are done where `add` was not told of rows."""
        self._plan, self._completed = (plan, keys), completed

    def add(
        self, entry: JournalLine, text: bytes, prompt_index: int | None, origin: Path | None = None
    ) -> None:
        """Take in an entry with its line (b"" for a failed one, or one whose line is elsewhere).

        `prompt_index` is its row's place in the dataset, None when it is outside the plan. `text` is
        written with that place, the entry's key and its new batch number; all else of it stays. The
        artifacts that it names are copied from the run directory `origin`.
        """
        batch, offset = self._next_batch(), 0
        if text:
            if origin is not None:
                copy_artifacts(origin, self.folder, text)
            text = placed(text, (prompt_index, entry.key, batch), self._extra)
            if self._file is None:
                self._file = Appender(batch_path(self.folder, batch))
            offset = self._file.append(text)
            if prompt_index is not None:
                self._records.count_record(glance(text))
                if entry.status in MERGED:
                    self._write_merged(text + b"\n")
        line = msgspec.structs.replace(
            entry,
            batch=batch,
            offset=offset,
            length=len(text),
            line_hash=line_hash(text) if text else "",
            source=ROLLOUT if entry.source == JUDGED else entry.source,  # its attempt was paid, once
            sum="",
        )
        raw, self._sum = seal(line, self._sum)
        self._write(pack_key(entry.key), raw, encode(to_entry(line)))
        if line.source not in UNPAID:
            self._paid += entry.usage
        self.lines_elsewhere += not text and entry.status != Status.FAILED.value
        (self._outside if prompt_index is None else self._planned).add(entry)
        if prompt_index is not None:
            self._count(batch, entry.status)
            if entry.status != Status.FAILED.value:
                self._done[prompt_index] = self._done.get(prompt_index, 0) + 1

    def add_bare(
        self, keys: Sequence[bytes], lines: Sequence[bytes], joined: bytes, entries: Sequence[Entry]
    ) -> None:
        """Take in planned entries without their lines, in order of their packed keys.

        `lines` are their manifest lines as they were found, `joined` these in one piece; in the new
        manifest they stand in our spelling.
        """
        listed = encode_lines(entries)
        if listed != joined:
            lines = listed.splitlines(keepends=True)
        sealed: list[bytes] = []
        total = int(self._sum or "0", 16)
        for line in lines:
            body = line[:-2] + _BARE_PLACE
            total = xxh3_64_intdigest(body, total)
            sealed += body, b',"sum":"%016x"}\n' % total
        self._sum = f"{total:016x}"
        data = b"".join(sealed)
        self._write_journal(data)
        self._journal_bytes += len(data)
        self._is_sorted = self._is_sorted and keys[0] > self._last_key
        if self._is_sorted:
            self._last_key = keys[-1]
            self._write_manifest(listed)
        self._planned.add_all(entries)

    def count_bare(self) -> None:
        """Nothing but entries without their lines came in: they are all in batch 0."""
        self._batches[0] = counts = self._planned.outcomes()
        self._paid = self._planned.usage()
        self.lines_elsewhere = counts.total() - counts[Status.FAILED.value]

    def works(self) -> set[str]:
        """The work fingerprints of all entries so far."""
        return self._planned.works() | self._outside.works()

    def _write(self, packed: bytes, raw: bytes, listed: bytes) -> None:
        self._write_journal(raw + b"\n")
        self._journal_bytes += len(raw) + 1
        self._is_sorted = self._is_sorted and packed > self._last_key
        if self._is_sorted:
            self._last_key = packed
            self._write_manifest(listed + b"\n")

    def _count(self, batch: int, status: str) -> None:
        self._batches.setdefault(batch, Counter())[status] += 1

    def _next_batch(self) -> int:
        if self._in_batch == self._about.batch_size:
            self._close_batch()
            self._batch += 1
            self._in_batch = 0
        self._in_batch += 1
        return self._batch

    def _close_batch(self) -> None:
        if self._file is not None:
            if self._batch < _SYNCED_ONE_BY_ONE:
                self._file.begin_sync()()
            self._file.close()
            self._file = None

    def _write_derived(self) -> None:
        if self._plan is None:
            raise TypeError("a new run directory needs its plan: set_plan")
        if self._batch >= _SYNCED_ONE_BY_ONE:
            os.sync()
        plan, keys = self._plan
        write_plan_file(self.folder, plan, keys)
        content = self.content = self._statistics(plan)
        replace_file(self.folder / layout.STATISTICS, statistics_json(content))
        tools = msgspec.json.format(msgspec.json.encode(self._about.tools), indent=2) + b"\n"
        replace_file(self.folder / layout.TOOLS, tools)
        replace_file(self.folder / layout.CARD, card(content, Entry, self._extra).encode())
        if self._about.spec:
            replace_file(self.folder / layout.SPEC, self._spec(plan))
        self._write_checkpoint(plan)

    def _statistics(self, plan: PlanFile) -> dict[str, Any]:
        invalid = len(plan.invalid) * plan.selection.samples
        found = self._planned.statistics() + self._records
        return {
            "run_name": self._out.name,
            "distribution": self._about.distribution,
            "total_prompts": plan.total,
            "total_batches": len(self._batches),
            "batch_size": self._about.batch_size,
            "model": self._about.model,
            "completed_at": _now(),
            "duration_seconds": round(time.monotonic() - self._started, 2),
            **describe(found, total=plan.total, invalid=invalid),
            "removed_duplicates": plan.removed,
            "spent": spent(self._paid),
        }

    def _spec(self, plan: PlanFile) -> bytes:
        spec, says = self._about.spec, "What is known of this run; it was put together without a spec."
        if spec.keys() - {MEMORY}:
            says = "The effective spec of this run. It can be run as it is."
            output = spec.get("output")
            output = output if isinstance(output, dict) else {}
            spec = spec | {
                "run_name": self._out.name,
                "samples": plan.selection.samples,
                "output": output | {"dir": str(self._out.parent)},
            }
        text = yaml.dump(spec, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=110)
        return f"# {says}\n{text}".encode()

    def _write_checkpoint(self, plan: PlanFile) -> None:
        samples, completed = plan.selection.samples, self._completed
        if completed is None:
            completed = sorted(index for index, done in self._done.items() if done >= samples)
        content = {
            "run_name": self._out.name,
            "completed_prompts": list(completed),
            "batch_stats": {str(n): dict(sorted(c.items())) for n, c in sorted(self._batches.items())},
            "last_updated": _now(),
            "files": {"journal_bytes": self._journal_bytes}
            | {
                name: hash_file(self.folder / name)
                for name in layout.DERIVED
                if (self.folder / name).is_file()
            },
        }
        replace_file(self.folder / layout.CHECKPOINT, sealed(content))


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())


def tool_names(tools: list[dict[str, Any]]) -> list[str]:
    """The names in tools.json."""
    return [str(each.get("function", {}).get("name", "")) for each in tools if isinstance(each, dict)]
