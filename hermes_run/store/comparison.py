"""Two runs side by side: which entries differ and in what, what both come to, their tools, rows and specs."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from contextlib import contextmanager
from itertools import compress, repeat
from operator import ne, not_
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET

from hermes_run.errors import UsageError
from hermes_run.quality.statistics import Statistics, glance, tool_table
from hermes_run.store import layout
from hermes_run.store.assemble import MEMORY
from hermes_run.store.batches import BatchReader
from hermes_run.store.entry import Entry, decode_entry, encode_lines
from hermes_run.store.manifest import STATUSES, manifest_of, read_manifest
from hermes_run.store.planfile import PlanFile, read_plan, refuse_other_keys
from hermes_run.store.rawlines import Block, entry_of, open_view, opened_blocks
from hermes_run.store.sums import Columns, Counted, Sums, columns_of, paired, side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_COMPARED = tuple(name for name in Entry.__struct_fields__ if name not in ("key", "work"))
_decode_counted = msgspec.json.Decoder(Counted).decode
_Some = TypeVar("_Some", bound=msgspec.Struct)
_CONTENT = "xxh3:"
"""Before the digest of a file's content, in what a run remembers of its spec (`spec.fingerprint`)."""
_IN_MEMORY_BYTES = 1 << 25
"""What of the changed entries is kept in memory, if there is a stream for the others."""
_AHEAD = 64
"""So many lines of each side are compared together, if there are as many: what they hold stays in the
processor's cache, which is half of the cost."""


_Fields = msgspec.defstruct(
    "_Fields", [(name, tuple[Any, Any] | msgspec.UnsetType, msgspec.UNSET) for name in _COMPARED], gc=False
)
"""[in a, in b] of the fields that differ: half of what a dict and its JSON cost."""


class _Change(msgspec.Struct, gc=False):
    """An element of `changed` in `diff --json`."""

    key: str
    fields: msgspec.Struct


class Comparison:
    """What `compare` found.

    `kept`: at least so many changed entries are kept; None: all of them. Of very many, what is beyond
    goes to `stream`, if there is one, at once and as `changed_json` gives it.

    Attributes:
        only_a, only_b: keys that only one of them has.
        same: how many entries are equal; another `work` alone changes none.
        different: how many are changed.
        about: the other keys of `diff --json`, from `spec` on.
    """

    def __init__(self, kept: int | None = None, stream: Callable[[bytes], None] | None = None) -> None:
        self.only_a: list[str] = []
        self.only_b: list[str] = []
        self.same = self.different = 0
        self._kept = kept
        self._stream = stream
        self._room = _IN_MEMORY_BYTES
        self._separator = b"    "
        self._chunks: list[bytes] = []
        self.about: dict[str, Any] = {}
        self._fields: Counter[str] = Counter()
        self._moves: Counter[tuple[str, str]] = Counter()
        self._both, self._mine, self._theirs = Sums(), Sums(), Sums()

    @property
    def is_equal(self) -> bool:
        """Whether no entry differs."""
        return not (self.only_a or self.only_b or self.different)

    def changed(self) -> Iterator[dict[str, Any]]:
        """The changed entries that were kept, decoded one by one."""
        lines = (line.strip(b", ") for chunk in self._chunks for line in chunk.split(b"\n"))
        return (msgspec.json.decode(line) for line in lines if line)

    def changed_json(self) -> Iterator[bytes]:
        """The same as JSON: what stands between the brackets of the list, a line each.

        With a `stream`, what has not gone there.
        """
        return iter(self._chunks)

    def read(self, a: Iterator[Block], b: Iterator[Block]) -> None:
        """Compare two sorted manifests in one pass. Raises UsageError for a line that is no entry."""
        for (keys, lines), (others, other_lines) in _abreast(a, b):
            if keys == others:
                self._take_pairs(lines, other_lines)
                continue
            mine = dict(zip(keys, lines, strict=True))
            theirs = dict(zip(others, other_lines, strict=True))
            shared = [key for key in keys if key in theirs]
            self._take_pairs([mine.pop(key) for key in shared], [theirs.pop(key) for key in shared])
            self.only_a += _counted([*mine.values()], self._mine)
            self.only_b += _counted([*theirs.values()], self._theirs)
        unknown = (self._both + self._mine + self._theirs).outcomes().keys() - STATUSES
        if unknown:
            raise UsageError(f'no manifest entry: there is no status "{min(unknown)}"')

    def sums(self) -> dict[str, Any]:
        """What both come to, which fields changed how often, and from which outcome to which."""
        return {
            **side_by_side(self._both + self._mine, self._both + self._theirs),
            "fields": {name: count for name, count in self._fields.most_common() if count},
            "moves": [{"from": a, "to": b, "count": n} for (a, b), n in self._moves.most_common()],
        }

    def _take_pairs(self, left: list[bytes], right: list[bytes]) -> None:
        if left != right:
            differ = [*map(ne, left, right)]
            mine = _decoded([*compress(left, differ)], decode_entry)
            theirs = _decoded([*compress(right, differ)], decode_entry)
            self._compare(columns_of(mine), columns_of(theirs))
            left = [*compress(left, map(not_, differ))]
        self.same += len(left)
        _counted(left, self._both)

    def _compare(self, mine: Columns, theirs: Columns) -> None:
        """Take in pairs whose lines differ: column by column, at half of the cost of pair by pair."""
        self._mine.take(mine)
        self._theirs.take(theirs)
        count, differ = len(mine["key"]), 0
        flags: dict[str, bytes] = {}  # of each field, a byte for each pair, 1 where they differ
        for name in _COMPARED:
            flags[name] = each = bytes(map(ne, mine[name], theirs[name]))
            self._fields[name] += each.count(1)
            differ |= int.from_bytes(each, "big")
        self.same += count - differ.bit_count()
        if self._kept is None or self.different < self._kept:
            pairs = (_pairs(mine[name], theirs[name], flags[name]) for name in _COMPARED)
            changes = map(_Change, mine["key"], map(_Fields, *pairs))
            self._keep([*compress(changes, differ.to_bytes(count, "big"))])
        self.different += differ.bit_count()
        outcomes = (zip(side["status"], side["reason"], strict=True) for side in (mine, theirs))
        moves = zip(*outcomes, strict=True)
        self._moves.update(("/".join(a), "/".join(b)) for a, b in moves if a != b)

    def _keep(self, changes: list[_Change]) -> None:
        if changes:
            items = encode_lines(changes)[:-1].replace(b"\n", b",\n    ")
            self._chunks.append(self._separator + items)
            self._separator = b",\n    "
            self._room -= len(items)
            if self._stream is not None and self._room < 0:
                for chunk in self._chunks:
                    self._stream(chunk)
                self._chunks.clear()


def _pairs(a: Sequence[Any], b: Sequence[Any], flags: bytes) -> Iterable[Any]:
    """Where two columns differ, both values; where they do not, UNSET."""
    if 0 not in flags:
        return zip(a, b, strict=True)
    if 1 not in flags:
        return repeat(UNSET, len(a))
    return [(one, other) if differs else UNSET for one, other, differs in zip(a, b, flags, strict=True)]


def _counted(lines: list[bytes], sums: Sums) -> list[str]:
    """Take the entries of some lines into sums; their keys."""
    entries = _decoded(lines, _decode_counted)
    if entries:
        sums.take(columns_of(entries))
    return [entry.key for entry in entries]


def _decoded(lines: list[bytes], decode: Callable[[bytes], _Some]) -> list[_Some]:
    """The entries of some lines. Raises UsageError naming the one that is none."""
    try:
        return [*map(decode, lines)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        for line in lines:
            entry_of(line, f"the manifest line {os.fsdecode(line[:60])!r}")
        raise


def _abreast(a: Iterator[Block], b: Iterator[Block]) -> Iterator[tuple[Block, Block]]:
    """Blocks of two manifests, those of a pair over the same range of keys."""
    mine, theirs = _filled(([], []), a), _filled(([], []), b)
    while mine[0] or theirs[0]:
        bound = min(keys[-1] for keys, _ in (mine, theirs) if keys)
        cut, other_cut = bisect_right(mine[0], bound), bisect_right(theirs[0], bound)
        yield (mine[0][:cut], mine[1][:cut]), (theirs[0][:other_cut], theirs[1][:other_cut])
        mine = _filled((mine[0][cut:], mine[1][cut:]), a)
        theirs = _filled((theirs[0][other_cut:], theirs[1][other_cut:]), b)


def _filled(block: Block, further: Iterator[Block]) -> Block:
    keys, lines = block
    while len(keys) < _AHEAD and (more := next(further, None)):
        keys += more[0]
        lines += more[1]
    return keys, lines


def compare(
    a: Path, b: Path, kept: int | None = None, stream: Callable[[bytes], None] | None = None
) -> Comparison:
    """Compare two runs or manifest files (`/dev/null`, as git names what is not there, has no entries).

    Raises UsageError when one of them is neither, JournalDamaged when its journal has to be mended.
    """
    plans = [_plan_of(run) for run in (a, b)]
    for run, plan in zip((a, b), plans, strict=True):
        if plan is not None:
            refuse_other_keys(run, plan)
    found = Comparison(kept, stream)
    with _opened(a) as mine, _opened(b) as theirs:
        try:
            found.read(mine, theirs)
        except UsageError:
            _refuse_by_number(a, b)
            raise
    are_runs = all((run / layout.JOURNAL).is_file() for run in (a, b))
    found.about = {
        "spec": spec_changes(layout.read_spec(a), layout.read_spec(b)),
        **found.sums(),
        **(_of_records(a, b) if are_runs else {"tools": None, "served_providers": None}),
        "dataset": _datasets(plans),
    }
    return found


def _refuse_by_number(*runs: Path) -> None:
    """Raises UsageError for the first line that is no entry, with its file and number."""
    for run in runs:
        path = manifest_of(run) if run.is_dir() else run
        if path.is_file():
            for _ in read_manifest(path):
                pass


@contextmanager
def _opened(run: Path) -> Iterator[Iterator[Block]]:
    if run == Path(os.devnull):
        yield iter(())
        return
    with opened_blocks(run) as blocks:
        yield blocks


def _of_records(a: Path, b: Path) -> dict[str, Any]:
    """What entries do not tell. `served_providers`: name -> kept lines, [in a, in b].

    `tools`: name -> `{calls, success, success_rate}`, each [in a, in b]; a rate without calls is None.
    """
    (tools, providers), (their_tools, their_providers) = map(_told_by_records, (a, b))
    return {
        "tools": {
            name: {
                "calls": [mine.get("count", 0), theirs.get("count", 0)],
                "success": [mine.get("success", 0), theirs.get("success", 0)],
                "success_rate": [mine.get("success_rate"), theirs.get("success_rate")],
            }
            for name, (mine, theirs) in paired(tools, their_tools, {}).items()
        },
        "served_providers": paired(providers, their_providers),
    }


def _told_by_records(run: Path) -> tuple[dict[str, dict[str, float]], dict[str, int]]:
    """`tool_statistics` and `served_providers`, of statistics.json; of the records in a run that goes on."""
    told = layout.read_json(run / layout.STATISTICS)
    tools, providers = told.get("tool_statistics"), told.get("served_providers")
    if isinstance(tools, dict) and isinstance(providers, dict) and not layout.is_locked(run):
        return tools, providers
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
    return tool_table(counted.tools), counted.providers


def _datasets(plans: Sequence[PlanFile | None]) -> dict[str, list[Any]] | None:
    """`{name, hash, rows, samples}`, each [of a, of b], from plan.json; None without any plan."""
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
    """Dotted path -> [in a, in b] of two specs; keys beginning with x- are the user's own.

    What a spec only names, such as a tape, own tools or prefill messages, is compared by the content that the
    runs remember, too: a file that was edited is a difference.
    """
    mine, theirs = dict(_flat(a)), dict(_flat(b))
    if not mine or not theirs:
        return {}
    found = {name: pair for name, pair in paired(mine, theirs, None).items() if pair[0] != pair[1]}
    works = [_work_fields(spec) for spec in (a, b)]
    if not all(works):
        return found
    for name, pair in paired(works[0], works[1], None).items():
        is_content = any(isinstance(value, str) and value.startswith(_CONTENT) for value in pair)
        is_told = name in found or name == "drawn_when_none_is"  # the latter: by the distribution
        if pair[0] != pair[1] and (is_content or not is_told):
            found[f"{name} (content)" if is_content else name] = pair
    return found


def _work_fields(spec: dict[str, Any]) -> dict[str, Any]:
    memory = spec.get(MEMORY)
    fields = memory.get("work_fields") if isinstance(memory, dict) else None
    return fields if isinstance(fields, dict) else {}


def _flat(value: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if not str(name).startswith("x-"):
            if isinstance(inner, dict) and inner:
                yield from _flat(inner, f"{path}{name}.")
            else:
                yield f"{path}{name}", inner
