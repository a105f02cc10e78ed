"""`hermes-run status RUN…`: how far a run is, or all the runs under a folder."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hermes_run.cli.parser import Parser
from hermes_run.cli.places import run_path
from hermes_run.cli.plain import as_json, columns, money, number, printable, table
from hermes_run.cli.report import say, say_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hermes_run.cli.report import Trouble
    from hermes_run.store.entry import Entry

_COLUMNS = ("completed", "partial", "discarded", "failed", "invalid", "pending")
_ALWAYS = ("completed", "failed", "pending")
_SHORT_HASH = 12
_SHORT_WORK = 8

_EPILOG = """\
A folder that is no run directory stands for all runs under it:
  hermes-run status data

--lines is also what lets `git diff` and `git log -p` show manifests readably:
  git config diff.hermes-run.textconv 'hermes-run status --lines'
  echo 'manifest.jsonl diff=hermes-run' >> .gitattributes"""


def main(words: Sequence[str], _trouble: Trouble) -> int:
    """Say how far runs are."""
    parser = Parser(
        "status", "How far a run is: outcomes, what is pending, what lies outside its plan.", _EPILOG
    )
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="a run directory, a manifest file, or a folder of runs"
    )
    parser.add_argument("--lines", action="store_true", help="a short line for each entry")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    arguments = parser.parse(words)
    paths = [run_path(text) for text in arguments.runs]

    from hermes_run.store import inspect, survey

    if arguments.lines:
        if arguments.json:
            parser.error("--lines is for people; the entries as JSON are in manifest.jsonl")
        for path in paths:
            say_all(_line(entry) for entry in survey.entries_or_lines(path))
        return 0
    runs = [run for path in paths for run in survey.find_runs(path)]
    if runs == paths and len(paths) == 1:
        status = inspect.status(paths[0])
        say(as_json(status) if arguments.json else f"{printable(str(paths[0]))}\n{_table(status)}")
        return 0
    found = list(survey.survey(dict.fromkeys(runs)))
    say(as_json({"runs": found}) if arguments.json else _many(found))
    return 0


def _table(status: dict[str, Any]) -> str:
    rows: list[tuple[str, str]] = [(name, number(count)) for name, count in status["outcomes"].items()]
    rows.append(("pending", "unknown" if status["pending"] is None else number(status["pending"])))
    if status["outside_plan"]:
        rows.append(("outside the plan", number(status["outside_plan"])))
    if "without_trajectory" in status:
        rows.append(("without trajectory, pending for a run", number(status["without_trajectory"])))
    rows.append(("running", "yes" if status["running"] else "no"))
    return columns(rows)


def _many(found: Sequence[dict[str, Any]]) -> str:
    """A line for each run; outcomes that none of them has are left out."""
    sound = [run for run in found if "error" not in run]
    names = [name for name in _COLUMNS if name in _ALWAYS or any(run["outcomes"][name] for run in sound)]
    rows = [("run", *names, "last change")]
    for run in sound:
        counts = run["outcomes"] | {"pending": run["pending"]}
        cells = ["?" if counts[name] is None else number(counts[name]) for name in names]
        change = "running" if run["running"] else _when(run["last_change"])
        rows.append((printable(run["run"]), *cells, change))
    lines = [table(rows, indent="")] if sound else []
    lines += [printable(f"{run['run']}: cannot be read: {run['error']}") for run in found if "error" in run]
    return "\n".join(lines)


def _when(moment: float | None) -> str:
    return "" if moment is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def _line(entry: Entry | bytes) -> str:
    """An entry in a line: what `git diff` shows of a manifest."""
    if isinstance(entry, bytes):
        return printable(entry.decode("utf-8", "replace"))
    content, _, ordinal = entry.key.partition("#")
    parts = [
        f"{content[:_SHORT_HASH]}#{ordinal:<2} {f'{entry.status}/{entry.reason}':<23}",
        f"{_counted(entry.turns, 'turn', 3)}  {_tokens(entry)}",
        f"{money(entry.cost):>8}",
        f"content {entry.hash[:_SHORT_HASH] or 'none'}",
        *_named(("model", entry.model), ("tools", ",".join(entry.toolsets))),
        *_named(("image", entry.image_digest), ("work", entry.work[:_SHORT_WORK]), ("error", entry.error)),
    ]
    return printable("  ".join(parts))


def _counted(count: int, noun: str, width: int) -> str:
    """1 turn, 2 turns, one below the other."""
    return f"{number(count):>{width}} {noun}{' ' if count == 1 else 's'}"


def _tokens(entry: Entry) -> str:
    used = entry.usage
    is_unknown = not used.total_tokens and used.calls_without_usage
    return f"{'unknown':>9} tokens" if is_unknown else _counted(used.total_tokens, "token", 9)


def _named(*pairs: tuple[str, str]) -> Iterator[str]:
    yield from (f"{name} {value}" for name, value in pairs if value)
