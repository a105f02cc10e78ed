"""A run directory of the predecessor, read piece by piece: every byte is a record's or set aside.

A killed worker there leaves a torn line, and the next one is glued to it; so a line is searched for the
records in it. Files are read twice, records one at a time: what is kept of each is where it is and what
matching needs.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import xxhash
from msgspec import Struct

from hermes_run.core.messages import Assistant, User
from hermes_run.core.registry import TOOLS
from hermes_run.core.text import clean
from hermes_run.core.trajectory import ToolCount, Trajectory
from hermes_run.errors import UsageError
from hermes_run.formats import signatures
from hermes_run.formats.hermes import Hermes, stats_of, turns_of
from hermes_run.quality.filters import NoReasoning, judge
from hermes_run.store import layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

_RECORD = re.compile(r'\{\s*"(?:prompt_index|conversations|metadata|completed|partial|api_calls)"\s*:')
_BATCH = re.compile(r"batch_([0-9]+)\.jsonl")
_SPACE = re.compile(r"[ \t\r\n]*")
_scan = json.JSONDecoder().raw_decode


class Piece(Struct, frozen=True):
    """A stretch of a line: a record's value, or bytes that are none and why."""

    offset: int
    data: bytes
    record: Any = None
    why: str = ""


class Sighting(Struct, frozen=True):
    """A record that was found, as far as matching needs it.

    Attributes:
        file, offset, length: where it stands.
        prompt: digest of its first human turn.
        stripped: the same of that text without white space around it, which is how the predecessor
            compared prompts.
        content: content key of the prompt alone.
        prompt_index: what it says of its place.
        status: completed, partial or discarded, as far as no tool was invented.
        unknown: tools it called that are not ours.
    """

    file: str
    offset: int
    length: int
    prompt: bytes
    stripped: bytes
    content: str
    prompt_index: int
    status: str
    unknown: tuple[str, ...]


class SetAside(Struct, frozen=True):
    """Bytes that no record could be made of."""

    file: str
    line: int
    length: int
    why: str


class FileAccount(Struct):
    """What a file holds; `lines` counts those that are not blank."""

    lines: int = 0
    records: int = 0
    duplicates: int = 0
    set_aside: int = 0


class Predecessor:
    """A run directory of the predecessor, read. A context manager that keeps its files open.

    Attributes:
        sightings: its records, each once, in the order of its batch files, then its merged file.
        accounts: file name -> what it holds.
        aside: what no record could be made of; `bad` has the bytes, by file.
        other_tools: tools that are not ours and that it knew, with what their calls came to.
        invented: names that no tool had -> how many records called them.
        signatures: name -> what a model was told of that tool.
        system_turns: text of a system turn -> how many records have it.
        batch_size: as its statistics have it, or 0.
        done: how many prompts its checkpoint calls completed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sightings: list[Sighting] = []
        self.accounts: dict[str, FileAccount] = {}
        self.aside: list[SetAside] = []
        self.bad: dict[str, bytearray] = {}
        self.other_tools: dict[str, ToolCount] = {}
        self.invented: dict[str, int] = {}
        self.signatures: dict[str, dict[str, Any]] = {}
        self.system_turns: Counter[str] = Counter()
        self._callers: Counter[str] = Counter()
        self._seen: set[bytes] = set()
        self._named: Counter[str] = Counter()
        self._known: set[str] = set()
        self._files: dict[str, int] = {}
        if not folder.is_dir():
            raise UsageError(
                f"{folder}: no folder; DIR is a run directory of hermes-agent, such as data/NAME"
            )
        statistics = layout.read_json(folder / layout.STATISTICS)
        size = statistics.get("batch_size")
        self.batch_size = size if type(size) is int and 0 < size < 1_000_000 else 0
        completed = layout.read_json(folder / layout.CHECKPOINT).get("completed_prompts")
        self.done = len(set(map(str, completed))) if isinstance(completed, list) else 0

    def __enter__(self) -> Self:
        for path in files_of(self.folder):
            self._files[path.name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for name in self._files:
                self._read_file(name)
        except BaseException:
            self._close()
            raise
        self._settle_tools()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def trajectory(self, sighting: Sighting) -> Trajectory:
        """The trajectory of a record, read again."""
        data = os.pread(self._files[sighting.file], sighting.length, sighting.offset)
        record = json.loads(data.decode("utf-8", "surrogateescape"))
        return Hermes(other_tools=self.other_tools).from_record(record)

    def _read_file(self, name: str) -> None:
        account = self.accounts[name] = FileAccount()
        offset = 0
        with os.fdopen(os.dup(self._files[name]), "rb") as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    account.lines += 1
                    for piece in pieces_of(line):
                        self._take(name, number, offset, piece)
                offset += len(line)

    def _take(self, name: str, number: int, start: int, piece: Piece) -> None:
        account, why = self.accounts[name], piece.why
        if not why:
            account.records += 1
            identity = _identity(piece)
            if identity in self._seen:
                account.duplicates += 1
                return
            self._seen.add(identity)
            try:
                trajectory = Hermes().from_record(piece.record)
            except ValueError as error:
                why = str(error)
            else:
                why = "" if _has_answer(trajectory) else "no assistant turn: it came to nothing there"
            if not why:
                self._count_tools(piece.record, trajectory)
                self.sightings.append(_sighting(name, start + piece.offset, len(piece.data), trajectory))
                return
            account.records -= 1
        account.set_aside += 1
        self.aside.append(SetAside(name, number, len(piece.data), why))
        self.bad.setdefault(name, bytearray()).extend(piece.data + b"\n")

    def _count_tools(self, record: dict[str, Any], trajectory: Trajectory) -> None:
        """What is called or named there. A name that stands in a record uncalled is no invention."""
        stats, called = record.get("tool_stats"), stats_of(record)
        names = {clean(name) for name in stats} if isinstance(stats, dict) else set()
        self._named.update(names)
        self._known |= names - called.keys()
        for name, count in called.items():
            self.other_tools[name] = self.other_tools.get(name, ToolCount()) + count
        for speaker, text in turns_of(record):
            if speaker == "system":
                if text not in self.system_turns:
                    self.signatures |= signatures.read(text)
                self.system_turns[text] += 1
        for name in trajectory.unknown_tools:
            self._callers[name] += 1

    def _settle_tools(self) -> None:
        """Which tools were no invention: ours, those offered, those that records name without a call."""
        everywhere = {name for name, count in self._named.items() if count == len(self.sightings) > 1}
        known = (self._known | everywhere | self.signatures.keys()) - TOOLS.keys()
        counts = self.other_tools
        self.invented = {name: count for name, count in self._callers.items() if name not in known}
        self.other_tools = {name: counts.get(name, ToolCount()) for name in sorted(known)}


def files_of(folder: Path) -> list[Path]:
    """The files with records: batch files by number, then the merged one.

    Raises UsageError when the folder is none of the predecessor's.
    """
    if (folder / layout.JOURNAL).exists() or (folder / layout.PLAN_KEYS).exists():
        raise UsageError(f"{folder}: is a run directory of hermes-run already; there is nothing to import")
    batches = [(int(name[1]), path) for path in folder.iterdir() if (name := _BATCH.fullmatch(path.name))]
    found = [path for _, path in sorted(batches)] + [folder / layout.TRAJECTORIES]
    found = [path for path in found if path.is_file()]
    checkpoint = layout.read_json(folder / layout.CHECKPOINT)
    if not found and "completed_prompts" not in checkpoint:
        raise UsageError(
            f"{folder}: holds neither batch_N.jsonl nor {layout.TRAJECTORIES}; DIR is a run directory of "
            "hermes-agent's batch runner, such as data/NAME"
        )
    return found


def pieces_of(line: bytes) -> Iterator[Piece]:
    """The records of a line, and what stands between them. Nothing but white space is left out."""
    text = line.decode("utf-8", "surrogateescape")
    at = 0
    while (at := _skip_space(text, at)) < len(text):
        end = at
        try:
            value, end = _scan(text, at)
            is_record = isinstance(value, dict) and isinstance(value.get("conversations"), list)
            if is_record:
                yield _piece(text, at, end, record=value)
            else:
                yield _piece(text, at, end, why="no record: it has no conversations")
        except (ValueError, RecursionError):
            following = _RECORD.search(text, at + 1)
            end = following.start() if following else len(text)
            yield _piece(text, at, end, why="torn: no whole JSON object")
        at = end


def _piece(text: str, start: int, end: int, record: Any = None, why: str = "") -> Piece:
    part = text[start:end] if record is not None else text[start:end].rstrip("\r\n")
    offset = len(text[:start].encode("utf-8", "surrogateescape"))
    return Piece(offset, part.encode("utf-8", "surrogateescape"), record, why)


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _identity(piece: Piece) -> bytes:
    """What two copies of a record have in common, however they are spelled."""
    try:
        return digest_of(json.dumps(piece.record, sort_keys=True))
    except RecursionError:
        return xxhash.xxh3_128_digest(piece.data)


def _has_answer(trajectory: Trajectory) -> bool:
    return any(isinstance(message, Assistant) for message in trajectory.messages)


def _sighting(name: str, offset: int, length: int, trajectory: Trajectory) -> Sighting:
    prompt = next(message.text for message in trajectory.messages if isinstance(message, User))
    return Sighting(
        file=name,
        offset=offset,
        length=length,
        prompt=digest_of(prompt),
        stripped=digest_of(prompt.strip()),
        content=trajectory.key.partition("#")[0],
        prompt_index=trajectory.prompt_index,
        status=judge(trajectory, (NoReasoning(),))[0].value,
        unknown=trajectory.unknown_tools,
    )


def digest_of(text: str) -> bytes:
    """What stands for a text where many are compared."""
    return xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass"))
