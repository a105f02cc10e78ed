"""Two runs side by side: which entries differ and in what, what both come to, their tools, rows and specs."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from hermes_run.core.keys import unpack_key
from hermes_run.errors import UsageError
from hermes_run.quality.statistics import Statistics, glance, tool_table
from hermes_run.store import layout
from hermes_run.store.batches import BatchReader
from hermes_run.store.entry import Entry
from hermes_run.store.planfile import PlanFile, read_plan
from hermes_run.store.rawlines import entry_of, open_view, opened_lines
from hermes_run.store.sums import Counted, Sums, paired, side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_encode = msgspec.json.Encoder().encode
_count_all = msgspec.json.Decoder(list[Counted]).decode
_decode_all = msgspec.json.Decoder(list[Entry]).decode
_COMPARED = tuple(name for name in Entry.__struct_fields__ if name not in ("key", "work"))
_values = attrgetter(*_COMPARED)
_Some = TypeVar("_Some", Counted, Entry)
_AT_ONCE = 512
"""Entries are decoded and summed so many together: half the cost of one by one, and they stay in cache."""

_END: tuple[bytes, bytes] = (b"\xff" * 21, b"")


class Comparison:
    """What `compare` found.

    Attributes:
        only_a, only_b: keys that only one of them has.
        same: how many entries are equal; another `work` alone changes none.
        differing: the changed entries, each as the JSON of `{key, fields: {name: [in a, in b]}}`: a
            million of them fit into memory as bytes, and would not as objects.
        about: the other keys of `diff --json`, from `spec` on.
    """

    def __init__(self) -> None:
        self.only_a: list[str] = []
        self.only_b: list[str] = []
        self.same = 0
        self.differing: list[bytes] = []
        self.about: dict[str, Any] = {}
        self._patterns: Counter[tuple[str, ...]] = Counter()
        self._moves: Counter[tuple[str, str]] = Counter()
        self._both, self._mine, self._theirs = Sums(), Sums(), Sums()

    @property
    def is_equal(self) -> bool:
        """Whether no entry differs."""
        return not (self.only_a or self.only_b or self.differing)

    def changed(self) -> Iterator[dict[str, Any]]:
        """The changed entries, decoded one by one."""
        return map(msgspec.json.decode, self.differing)

    def read(self, a: Iterator[tuple[bytes, bytes]], b: Iterator[tuple[bytes, bytes]]) -> None:
        """Compare two sorted manifests in one pass. Raises UsageError for a line that is no entry."""
        waiting: tuple[list[bytes], ...] = ([], [], [], [], [])
        equal, left, right, gone, come = waiting
        count = 0
        (mine, line), (theirs, other) = next(a, _END), next(b, _END)
        while line or other:
            if mine == theirs:
                if line == other:
                    equal.append(line)
                else:
                    left.append(line)
                    right.append(other)
                (mine, line), (theirs, other) = next(a, _END), next(b, _END)
            elif mine < theirs:
                self.only_a.append(unpack_key(mine))
                gone.append(line)
                mine, line = next(a, _END)
            else:
                self.only_b.append(unpack_key(theirs))
                come.append(other)
                theirs, other = next(b, _END)
            count += 1
            if count % _AT_ONCE == 0:
                self._take(*waiting)
        self._take(*waiting)

    def sums(self) -> dict[str, Any]:
        """What both come to, which fields changed how often, and from which outcome to which."""
        fields: Counter[str] = Counter()
        for names, count in self._patterns.items():
            fields.update(dict.fromkeys(names, count))
        return {
            **side_by_side(self._both + self._mine, self._both + self._theirs),
            "fields": dict(fields.most_common()),
            "moves": [{"from": a, "to": b, "count": n} for (a, b), n in self._moves.most_common()],
        }

    def _take(self, *waiting: list[bytes]) -> None:
        """Take in lines that both have, those in pairs that differ, those of one alone; empty the lists."""
        equal, left, right, gone, come = waiting
        self._both.take(_decoded(equal, _count_all))
        self.same += len(equal)
        self._take_pairs(left, right)
        self._mine.take(_decoded(gone, _count_all))
        self._theirs.take(_decoded(come, _count_all))
        for lines in waiting:
            lines.clear()

    def _take_pairs(self, left: list[bytes], right: list[bytes]) -> None:
        mine, theirs = _decoded(left, _decode_all), _decoded(right, _decode_all)
        self._mine.take(mine)
        self._theirs.take(theirs)
        for a, b in zip(mine, theirs, strict=True):
            fields = {
                name: (one, other)
                for name, one, other in zip(_COMPARED, _values(a), _values(b), strict=True)
                if one != other
            }
            if not fields:
                self.same += 1
                continue
            self._patterns[tuple(fields)] += 1
            if "status" in fields or "reason" in fields:
                self._moves[f"{a.status}/{a.reason}", f"{b.status}/{b.reason}"] += 1
            self.differing.append(_encode({"key": a.key, "fields": fields}))


def _decoded(lines: list[bytes], decode_all: Callable[[bytes], list[_Some]]) -> list[_Some]:
    """The entries of some lines. Raises UsageError naming the one that is none."""
    try:
        found = decode_all(b"[" + b",".join(lines) + b"]")
        if len(found) == len(lines):
            return found
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    for line in lines:
        entry_of(line, f"the manifest line {os.fsdecode(line[:60])!r}")
    raise UsageError("a manifest holds lines that are entries only together with the next: none of ours")


def compare(a: Path, b: Path) -> Comparison:
    """Compare two runs or manifest files (`/dev/null`, as git names what is not there, has no entries).

    Raises UsageError when one of them is neither, JournalDamaged when its journal has to be mended.
    """
    found = Comparison()
    with _opened(a) as mine, _opened(b) as theirs:
        found.read(mine, theirs)
    are_runs = all((run / layout.JOURNAL).is_file() for run in (a, b))
    found.about = {
        "spec": spec_changes(layout.read_spec(a), layout.read_spec(b)),
        **found.sums(),
        "tools": _tools(a, b) if are_runs else None,
        "dataset": _datasets(a, b),
    }
    return found


@contextmanager
def _opened(run: Path) -> Iterator[Iterator[tuple[bytes, bytes]]]:
    if run == Path(os.devnull):
        yield iter(())
        return
    with opened_lines(run) as lines:
        yield lines


def _tools(a: Path, b: Path) -> dict[str, dict[str, list[Any]]]:
    """Tool -> `{calls, success, success_rate}`, each [in a, in b]; a rate without calls is None."""
    return {
        name: {
            "calls": [mine.get("count", 0), theirs.get("count", 0)],
            "success": [mine.get("success", 0), theirs.get("success", 0)],
            "success_rate": [mine.get("success_rate"), theirs.get("success_rate")],
        }
        for name, (mine, theirs) in paired(_tools_of(a), _tools_of(b), {}).items()
    }


def _tools_of(run: Path) -> dict[str, dict[str, float]]:
    """`tool_statistics` of a run: its statistics.json's, or, where a run has not ended, its records'."""
    told = layout.read_json(run / layout.STATISTICS).get("tool_statistics")
    if isinstance(told, dict) and not layout.is_locked(run):
        return told
    counted = Statistics()
    view = open_view(run)
    try:
        with BatchReader(run) as reader:
            for line in view.entries():
                text = reader.read(line) if line.length else None
                if text is not None:
                    counted.count_record(glance(text))
    finally:
        view.close()
    return tool_table(counted.tools)


def _datasets(a: Path, b: Path) -> dict[str, list[Any]] | None:
    """`{name, hash, rows, samples}`, each [of a, of b], from plan.json; None without any plan."""
    plans = [_plan_of(run) for run in (a, b)]
    if plans == [None, None]:
        return None
    return {
        "name": [plan and plan.dataset for plan in plans],
        "hash": [plan and plan.dataset_hash for plan in plans],
        "rows": [plan and plan.rows for plan in plans],
        "samples": [plan and plan.selection.samples for plan in plans],
    }


def _plan_of(run: Path) -> PlanFile | None:
    try:
        return read_plan(run)[0] if run.is_dir() else None
    except UsageError:  # a clone with the manifest alone, or a plan that the next run writes anew
        return None


def spec_changes(a: dict[str, Any], b: dict[str, Any]) -> dict[str, list[Any]]:
    """Dotted path -> [in a, in b] of two specs; keys beginning with x- are the user's own."""
    mine, theirs = dict(_flat(a)), dict(_flat(b))
    if not mine or not theirs:
        return {}
    return {name: pair for name, pair in paired(mine, theirs, None).items() if pair[0] != pair[1]}


def _flat(value: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if not str(name).startswith("x-"):
            if isinstance(inner, dict) and inner:
                yield from _flat(inner, f"{path}{name}.")
            else:
                yield f"{path}{name}", inner
