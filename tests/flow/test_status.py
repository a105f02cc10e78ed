"""`status`: one run, all runs under a folder, and one line for each entry."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.flow.lab import read_lines

if TYPE_CHECKING:
    from tests.flow.lab import Lab

pytestmark = pytest.mark.slow

TAPE = {
    "conversations": [
        {"match": "bad", "turns": [{"error": "provider_error"}]},
        {"turns": [{"reasoning": "r", "text": "{{prompt}} done"}]},
    ]
}


@pytest.fixture
def many(lab: Lab) -> Lab:
    """Runs `good`, `mixed` (one failed, one more row than it knows of) and, deeper, `inner`."""
    lab.write_tape(TAPE)
    lab.write_prompts("a", "b")
    assert lab.run("-q", "--run-name", "good").code == 0
    assert lab.run("-q", "--run-name", "inner", "--set", "output.dir=data/deeper").code == 0
    lab.write_prompts("a", "bad", "c")
    assert lab.run("-q", "--run-name", "mixed").code == 1
    return lab


def test_a_run_that_cannot_be_read_has_its_line_and_the_others_theirs(lab: Lab) -> None:
    lab.write_tape({"conversations": [{"turns": [{"reasoning": "r", "text": "done"}]}]})
    lab.write_prompts("a")
    assert lab.run("-q", "--run-name", "one").code == 0
    assert lab.run("-q", "--run-name", "two").code == 0
    plan = lab.folder / "data/one/plan.json"
    plan.unlink()
    plan.mkdir()
    result = lab.call("status", "data")
    assert result.code == 0, result.err
    assert "data/one: cannot be read: data/one/plan.json: " in result.out
    assert "data/two" in result.out


def test_all_runs_under_a_folder_are_one_table(many: Lab) -> None:
    result = many.call("status", "data")
    assert result.code == 0, result.err
    head, *rows = result.out.splitlines()
    assert head.split() == ["run", "completed", "failed", "pending", "last", "change"]
    assert [row.split()[:4] for row in rows] == [
        ["data/deeper/inner", "2", "0", "0"],
        ["data/good", "2", "0", "0"],
        ["data/mixed", "2", "1", "0"],
    ]
    assert all(re.search(r" \d{4}-\d\d-\d\d \d\d:\d\d$", row) for row in rows)
    assert all(len(line) <= 80 for line in result.out.splitlines())


def test_the_table_as_json_has_each_run_s_own_status(many: Lab) -> None:
    found = many.call("status", "data", "--json").json()["runs"]
    assert [run.pop("run") for run in found] == ["data/deeper/inner", "data/good", "data/mixed"]
    for run, name in zip(found, ("deeper/inner", "good", "mixed"), strict=True):
        journal = many.folder / "data" / name / "journal.jsonl"
        assert run.pop("last_change") == journal.stat().st_mtime
        alone = many.call("status", f"data/{name}", "--json").json()
        assert alone.keys() == {"outcomes", "pending", "outside_plan", "running"}
        assert run == alone


def test_a_run_that_cannot_be_read_hides_none_of_the_others(many: Lab) -> None:
    journal = many.folder / "data/good/journal.jsonl"
    journal.write_bytes(b"nonsense\n" + journal.read_bytes())
    result = many.call("status", "data")
    assert result.code == 0
    assert "data/mixed" in result.out
    assert "data/good: cannot be read: " in result.out
    assert "hermes-run repair data/good" in result.out
    assert "error" in many.call("status", "data", "--json").json()["runs"][1]


def test_several_runs_and_folders_can_be_named_each_shown_once(many: Lab) -> None:
    found = many.call("status", "data/mixed", "data", "--json").json()["runs"]
    assert [run["run"] for run in found] == ["data/mixed", "data/deeper/inner", "data/good"]


def test_a_manifest_from_git_has_outcomes_and_nothing_is_known_of_what_is_pending(many: Lab) -> None:
    clone = many.folder / "clone/mixed"
    clone.mkdir(parents=True)
    shutil.copy(many.folder / "data/mixed/manifest.jsonl", clone)
    alone = many.call("status", "clone/mixed", "--json").json()
    assert (alone["outcomes"]["completed"], alone["outcomes"]["failed"], alone["pending"]) == (2, 1, None)
    assert many.call("status", "clone/mixed/manifest.jsonl", "--json").json() == alone
    assert many.call("status", "clone").out.splitlines()[1].split()[:4] == ["clone/mixed", "2", "1", "?"]


def test_a_folder_without_runs_is_refused(many: Lab) -> None:
    (many.folder / "empty").mkdir()
    result = many.call("status", "data", "empty")
    assert (result.code, result.out) == (2, "")
    assert "empty: neither a run directory" in result.err


def test_each_entry_is_a_short_line(many: Lab) -> None:
    result = many.call("status", "--lines", "data/mixed")
    assert result.code == 0
    entries = read_lines(many.folder / "data/mixed/manifest.jsonl")
    lines = result.out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [f"{entry['key'][:12]}#0", f"{entry['status']}/{entry['reason']}"] for entry in entries
    ]
    assert all(entry["hash"][:12] in line for entry, line in zip(entries, lines, strict=True))
    told = [" ".join(line.split()[2:4]) for line in lines]
    assert told == [f"{entry['turns']} turn{'' if entry['turns'] == 1 else 's'}" for entry in entries]
    assert len({line.index("tokens") for line in lines}) == 1
    assert many.call("status", "--lines", "data/mixed/manifest.jsonl").out == result.out


def test_a_line_that_is_no_entry_is_shown_as_it_stands(many: Lab) -> None:
    path = many.folder / "data/mixed/manifest.jsonl"
    path.write_bytes(b"<<<<<<< HEAD\n" + path.read_bytes() + b'{"key": "\xff\x1b[31m')
    result = many.call("status", "--lines", str(path))
    assert result.code == 0
    first, *_, last = result.out.splitlines()
    assert first == "<<<<<<< HEAD"
    assert "\x1b" not in last
    assert last.startswith('{"key": "')


def test_a_run_is_a_line_of_the_table_whatever_its_folder_is_called(many: Lab) -> None:
    (many.folder / "data/good").rename(many.folder / "data/fi\nrst\x1b[31m")
    table = many.call("status", "data").out
    assert "data/fi\\nrst\\x1b[31m " in table
    assert "\x1b" not in table
