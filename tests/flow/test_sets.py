"""Real runs put together and taken apart: shards, machines, samples, selections, and what goes wrong."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.flow.lab import Lab, comparable, read_lines

if TYPE_CHECKING:
    from pathlib import Path

TAPE: dict[str, Any] = {
    "conversations": [
        {"match": "breaks", "turns": [{"error": "provider_error"}]},
        {
            "match": "long",
            "turns": [
                {"reasoning": "r", "calls": [{"tool": "todo", "arguments": {}}]},
                {"reasoning": "r", "calls": [{"tool": "todo", "arguments": {}}]},
                {"reasoning": "r", "text": "{{prompt}} is done"},
            ],
        },
        {"match": "mute", "turns": [{"text": "no word of why"}]},
        {
            "turns": [
                {
                    "reasoning": "r",
                    "text": "{{prompt}} is done",
                    "usage": {"prompt_tokens": 7, "completion_tokens": 3, "cost": 0.01},
                }
            ]
        },
    ]
}
WELL = {"conversations": [{"turns": [{"reasoning": "r", "text": "{{prompt}} is done"}]}]}
SPEC = {"batch_size": 3, "distribution": {"todo": 100}, "sandbox": {"backend": "bubblewrap"}}
ROWS = [
    {"prompt": "one", "level": 1},
    {"prompt": "two is long", "level": 2},
    {"prompt": "three breaks", "level": 3},
    {"prompt": "four is mute", "level": 4},
    {"prompt": "five", "level": 5, "files": {"a.txt": "in a file"}},
    {"prompt": "six breaks", "level": 6},
]


def ran(folder: Path, rows: list[Any], *, tape: dict[str, Any] | None = None, code: int = 0) -> Lab:
    lab = Lab(folder, dict(SPEC))
    lab.write_tape(tape or TAPE)
    lab.write_rows(rows)
    result = lab.run("-q")
    assert result.code == code, result.err
    return lab


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A run with every outcome."""
    return ran(tmp_path_factory.mktemp("finished") / "lab", ROWS, code=1)


@pytest.fixture
def lab(finished: Lab, tmp_path: Path) -> Lab:
    shutil.copytree(finished.folder, tmp_path / "lab")
    return Lab(tmp_path / "lab", dict(finished.spec))


def done(lab: Lab, *words: str, code: int = 0) -> Any:
    """What a command says as JSON."""
    result = lab.call(*words, "--json")
    assert result.code == code, result.err
    return result.json() if not code else result.err


def resumed(lab: Lab, name: str, *words: str, code: int = 0) -> str:
    """Run the spec in the run directory of another name."""
    lab.spec["run_name"] = name
    result = lab.run(*words)
    assert result.code == code, result.err
    return result.err


def lines_in_batches(run: Path) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in run.glob("batch_*.jsonl"))


def test_two_shards_come_to_what_one_run_comes_to(tmp_path: Path) -> None:
    rows = [{"prompt": f"task {n}", "n": n} for n in range(9)] + [{"prompt": "task 3", "n": 9}]
    whole = ran(tmp_path / "lab", rows)
    for shard in ("1/2", "2/2"):
        assert whole.run("-q", "--shard", shard).code == 0
    done(whole, "merge", "data/r.1-of-2", "data/r.2-of-2", "-o", "data/both")
    merged, one = comparable(whole.folder / "data/both"), comparable(whole.run_dir)
    for each in (merged, one):
        del each["statistics"]["run_name"]
        del each["plan"]["dataset"]
    assert merged == one
    before = (whole.folder / "data/both/trajectories.jsonl").read_bytes()
    spent = json.loads((whole.folder / "data/both/statistics.json").read_text())["spent"]
    resumed(whole, "both", "-q")
    whole.assert_sound()
    assert whole.statistics()["spent"] == spent
    assert (whole.run_dir / "trajectories.jsonl").read_bytes() == before
    assert lines_in_batches(whole.run_dir) == len(rows), "something was run again"


def test_the_better_outcome_is_taken_and_what_had_failed_stays_retriable(lab: Lab, tmp_path: Path) -> None:
    other = ran(tmp_path / "other", [ROWS[2], {"prompt": "of the other alone"}], tape=WELL)
    found = done(lab, "merge", "data/r", str(other.run_dir), "-o", "data/both")
    assert found["outcomes"] == {
        "completed": 5, "partial": 0, "discarded": 1, "failed": 1, "invalid": 0, "pending": 0
    }  # fmt: skip
    assert (found["overlaps"], found["conflicts"]) == (1, 1)
    assert any("different datasets" in text for text in found["warnings"])
    both = lab.folder / "data/both"
    assert [line["prompt_index"] for line in read_lines(both / "trajectories.jsonl")] == [0, 1, 2, 4, 6]
    lab.write_rows([*ROWS, {"prompt": "of the other alone"}])
    resumed(lab, "both", "-q", "--accept-spec-change", code=1)
    lab.assert_sound()
    assert lab.statuses() == {"completed": 5, "discarded": 1, "failed": 1}
    assert lines_in_batches(both) == 6


def test_other_datasets_are_warned_of_only_where_they_have_rows_that_the_first_has_not(lab: Lab) -> None:
    done(lab, "select", "data/r", "--status", "failed", "--rows", "again.jsonl", "-o", "data/none")
    assert lab.run("-q", "--run-name", "again", "--dataset-file", "again.jsonl").code == 1
    more = done(lab, "merge", "data/again", "data/r", "-o", "data/x")["warnings"]
    assert any("made of different datasets" in text for text in more)
    assert done(lab, "merge", "data/r", "data/again", "-o", "data/y")["warnings"] == []
    resumed(lab, "y", code=1)


def test_merging_the_other_way_round_gives_the_same_manifest(lab: Lab, tmp_path: Path) -> None:
    other = ran(tmp_path / "other", ROWS[1:4], tape=WELL, code=0)
    for out, parts in (("ab", ("data/r", str(other.run_dir))), ("ba", (str(other.run_dir), "data/r"))):
        done(lab, "merge", *parts, "-o", f"data/{out}")
    ab, ba = ((lab.folder / "data" / out / "manifest.jsonl").read_bytes() for out in ("ab", "ba"))
    assert ab == ba


def test_independent_runs_become_samples_of_each_prompt(tmp_path: Path) -> None:
    lab = ran(tmp_path / "lab", ["a", "b", "a"] and [{"prompt": p} for p in ("a", "b", "a")])
    shutil.copytree(lab.run_dir, lab.folder / "data/again")
    done(lab, "merge", "data/r", "data/again", "--renumber", "-o", "data/both")
    both = lab.folder / "data/both"
    plan = json.loads((both / "plan.json").read_text())
    assert (plan["rows"], plan["selection"]["samples"], plan["total"]) == (3, 2, 6)
    keys = [line["key"] for line in read_lines(both / "trajectories.jsonl")]
    assert sorted(key.partition("#")[2] for key in keys) == ["0", "0", "1", "1", "2", "3"]
    lab.spec["samples"] = 2
    resumed(lab, "both", "-q")
    lab.assert_sound()
    assert lines_in_batches(both) == 6


def test_results_that_differ_are_refused_and_listed_under_error(lab: Lab, tmp_path: Path) -> None:
    other = ran(tmp_path / "other", ROWS[1:3], tape=WELL)
    err = done(lab, "merge", "data/r", str(other.run_dir), "-o", "data/both", "--policy", "error", code=2)
    assert "2 of 2 rollouts" in err
    assert "status" in err or "turns" in err
    assert sorted(path.name for path in (lab.folder / "data").iterdir()) == ["r"]
    done(lab, "merge", "data/r", "data/r", "-o", "data/both", "--policy", "error")


def test_manifests_alone_make_a_run_that_says_what_it_lacks(lab: Lab) -> None:
    shutil.copy(lab.run_dir / "manifest.jsonl", lab.folder / "kept.jsonl")
    found = done(lab, "merge", "kept.jsonl", "kept.jsonl", "-o", "data/bare")
    assert found["without_trajectory"] == 4
    assert any("without their trajectories" in text for text in found["warnings"])
    assert done(lab, "status", "data/bare")["without_trajectory"] == 4
    assert lab.call("verify", "data/bare").code == 0
    assert lab.call("diff", "data/bare", "data/r").code == 0
    lab.spec["run_name"] = "bare"
    dry = lab.run("--dry-run", "--json").json()
    assert (dry["planned"], dry["pending"]) == (6, 6)
    bare, real = (json.loads((lab.folder / f"data/{n}/statistics.json").read_text()) for n in ("bare", "r"))
    assert bare["spent"] == real["spent"]
    assert bare["cost"] == real["cost"] == 0.02
    assert "4 entries came from manifests alone" in resumed(lab, "bare", code=1)
    lab.assert_sound()
    assert lab.call("diff", "data/bare", "data/r").code == 0


def test_a_run_made_of_manifests_of_two_specs_says_why_it_remembers_no_fields(lab: Lab) -> None:
    lab.spec |= {"run_name": "other", "agent": {"max_turns": 4}}
    assert lab.run("-q").code == 1
    done(lab, "merge", "data/r/manifest.jsonl", "data/other/manifest.jsonl", "-o", "data/both", "--renumber")
    refused = lab.run("-q", "--run-name", "both", "--set", "samples=2")
    assert refused.code == 2
    assert "does not remember its fields: it was made of manifests alone" in refused.err


def test_a_bare_run_merged_with_the_real_one_has_its_trajectories_again(lab: Lab) -> None:
    done(lab, "merge", "data/r/manifest.jsonl", "-o", "data/bare")
    assert done(lab, "merge", "data/bare", "data/r", "-o", "data/both")["without_trajectory"] == 0
    both = lab.folder / "data/both"
    assert comparable(both)["trajectories"] == comparable(lab.run_dir)["trajectories"]
    assert "the filters changed" not in resumed(lab, "both", code=1)


@pytest.mark.parametrize(
    ("words", "prompts"),
    [
        (["--status", "failed"], {"three breaks", "six breaks"}),
        (["--status", "discarded,failed"], {"three breaks", "six breaks", "four is mute"}),
        (["--reason", "no_reasoning"], {"four is mute"}),
        (["--where", "turns>=3 and status=completed"], {"two is long"}),
        (
            ["--where", 'turns < 3 and status != "failed"', "--toolset", "todo"],
            {"one", "four is mute", "five"},
        ),
        (["--toolset", "browser"], set()),
        ([], {row["prompt"] for row in ROWS}),
    ],
)
def test_what_is_asked_for_is_chosen(lab: Lab, words: list[str], prompts: set[str]) -> None:
    found = done(lab, "select", "data/r", *words, "-o", "data/some", "--rows", "some.jsonl")
    assert found["chosen"] == found["rows"] == len(prompts)
    rows = read_lines(lab.folder / "some.jsonl")
    assert rows == [row for row in ROWS if row["prompt"] in prompts]
    some = lab.folder / "data/some"
    assert lab.call("verify", str(some)).code == 0
    assert json.loads((some / "plan.json").read_text())["total"] == len(prompts)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--toolset", "tdoo"], ['no rollout there was offered a toolset "tdoo"; did you mean "todo"?']),
        (["--toolset", "todo,fiel"], ['no rollout there was offered a toolset "fiel"; did you mean "file"?']),
        (["--where", "turns>0 and toolsets=mine"], ['no rollout there was offered a toolset "mine"']),
        (["--toolset", "web"], ['no rollout there was offered a toolset "web"']),
        (["--where", "toolsets=todo and toolsets!=null"], []),
    ],
)  # fmt: skip
def test_a_toolset_that_no_rollout_had_is_told(lab: Lab, words: list[str], told: list[str]) -> None:
    assert done(lab, "select", "data/r", *words, "-o", "data/some")["warnings"] == told
    plain = lab.call("select", "data/r", *words, "--rows", "some.jsonl")
    assert [line.removeprefix("warning: ") for line in plain.err.splitlines()] == told


def test_the_failed_ones_are_a_dataset_that_runs(lab: Lab) -> None:
    done(lab, "select", "data/r", "--status", "failed", "--rows", "failed.jsonl")
    lab.spec["dataset"] = {"path": "failed.jsonl"}
    lab.write_tape(WELL)
    resumed(lab, "mended", "-q")
    assert lab.statuses() == {"completed": 2}
    assert set(lab.entries()) < {line["key"] for line in read_lines(lab.folder / "data/r/manifest.jsonl")}


def test_rows_are_made_again_from_records_where_these_hold_all_of_them(lab: Lab, tmp_path: Path) -> None:
    shutil.move(lab.folder / "data.jsonl", tmp_path / "moved.jsonl")
    spec = lab.run_dir / "spec.yaml"
    spec.write_text(spec.read_text().replace("data.jsonl", "gone.jsonl"))
    words = ["select", "data/r", "--rows", "rows.jsonl", "--where"]
    assert done(lab, *words, "turns>1")["made_again"] == 1
    assert read_lines(lab.folder / "rows.jsonl") == [ROWS[1]]
    (lab.folder / "rows.jsonl").unlink()
    for lacking in ("status=failed", "status=completed"):  # no record; a record without its files
        assert "--dataset FILE" in done(lab, *words, lacking, code=2)
        assert not (lab.folder / "rows.jsonl").exists()
    done(lab, *words, "status=completed", "--dataset", str(tmp_path / "moved.jsonl"))
    assert read_lines(lab.folder / "rows.jsonl") == [ROWS[0], ROWS[1], ROWS[4]]


def test_rows_that_cannot_be_had_again_are_told_with_the_cure(lab: Lab) -> None:
    words = ("select", "data/r/manifest.jsonl", "--status", "failed", "--rows", "x.jsonl")
    told = done(lab, *words, code=2)
    assert "2 rows of what was chosen neither can be found (no spec here names the dataset)" in told
    assert "--dataset FILE" in told
    assert not (lab.folder / "x.jsonl").exists()
    assert done(lab, *words, "--dataset", "data.jsonl")["rows"] == 2


def test_subtract_and_intersect_part_a_run_in_two(lab: Lab) -> None:
    done(lab, "select", "data/r", "--status", "completed", "-o", "data/good")
    done(lab, "subtract", "data/r", "data/good", "-o", "data/rest", "--rows", "rest.jsonl")
    done(lab, "intersect", "data/r", "data/good", "-o", "data/shared")
    assert read_lines(lab.folder / "rest.jsonl") == [ROWS[2], ROWS[3], ROWS[5]]
    assert lab.call("diff", "data/shared", "data/good").code == 0
    done(lab, "merge", "data/rest", "data/shared", "-o", "data/all")
    everything = comparable(lab.folder / "data/all"), comparable(lab.run_dir)
    assert everything[0]["trajectories"] == everything[1]["trajectories"]
    assert everything[0]["manifest"] == everything[1]["manifest"]


WRONG = [
    (["merge", "data/r", "-o", "data/r"], "exists already"),
    (["merge", "data/r", "-o", "data/.hidden"], "is no run name"),
    (["merge", "data", "-o", "data/x"], "is it a run directory?"),
    (["merge", "nothing", "-o", "data/x"], "no run directory or manifest file"),
    (["merge", "data/r", "-o", "data/x", "--policy", "bset"], 'did you mean "best"'),
    (["select", "data/r"], "-o OUT"),
    (["select", "data/r", "-o", "data/x", "--status", "complete"], 'did you mean "completed"'),
    (["select", "data/r", "-o", "data/x", "--status", "pending"], "has no entry"),
    (["select", "data/r", "-o", "data/x", "--where", "turn>3"], 'did you mean "turns"'),
    (["select", "data/r", "--rows", "data.jsonl"], "exists already"),
    (["select", "data/r", "--rows", "data/r/batch_7.jsonl"], "lies in data/r, which is only read"),
    (["subtract", "data/r", "data/r", "--rows", "data/r/x.jsonl"], "name another file for --rows"),
]


@pytest.mark.parametrize(("words", "told"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_wrong_usage_says_what_and_leaves_nothing(lab: Lab, words: list[str], told: str) -> None:
    before = sorted(lab.folder.rglob("*"))
    assert told in done(lab, *words, code=2)
    assert sorted(lab.folder.rglob("*")) == before


def test_a_part_with_a_damaged_line_is_refused_and_nothing_is_half_written(lab: Lab) -> None:
    batch = lab.run_dir / "batch_0.jsonl"
    data = bytearray(batch.read_bytes())
    data[200] ^= 1
    batch.write_bytes(bytes(data))
    err = done(lab, "merge", "data/r", "-o", "data/x", code=2)
    assert "batch_0.jsonl" in err
    assert "hermes-run repair" in err
    assert sorted(path.name for path in (lab.folder / "data").iterdir()) == ["r"]


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "damaged"])
def test_a_part_without_a_sound_journal_is_refused_naming_repair(lab: Lab, is_gone: bool) -> None:
    journal = lab.run_dir / "journal.jsonl"
    if is_gone:
        journal.unlink()
    else:
        journal.write_bytes(journal.read_bytes().replace(b'"status"', b'"statuS"', 1))
    assert "hermes-run repair" in done(lab, "merge", "data/r", "-o", "data/x", code=2)


def test_a_manifest_of_another_key_version_is_refused(lab: Lab) -> None:
    plan = lab.run_dir / "plan.json"
    plan.write_text(plan.read_text().replace('"key_version": 1', '"key_version": 2'))
    assert "version 2" in done(lab, "merge", "data/r", "-o", "data/x", code=2)
    assert "version 2" in done(lab, "diff", "data/r", "data/r", code=2)
    manifest = lab.folder / "other.jsonl"
    manifest.write_bytes((lab.run_dir / "manifest.jsonl").read_bytes().replace(b'{"key":"', b'{"key":"v2-'))
    assert "no rollout key" in done(lab, "merge", "other.jsonl", "-o", "data/x", code=2)


@pytest.mark.parametrize("words", [(), ("data/r",), ("data/r", "--renumber")])
def test_an_ordinal_that_no_plan_can_hold_is_refused_by_its_key(lab: Lab, words: tuple[str, ...]) -> None:
    first, *others = lab.lines("manifest.jsonl")
    content = first["key"].partition("#")[0]
    entries = [first | {"key": f"{content}#4294967295"}, *others]
    (lab.folder / "odd.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    told = done(lab, "merge", "odd.jsonl", *words, "-o", "data/x", code=2)
    assert f"{content}#4294967295: no run has 4,294,967,296 rollouts of one prompt" in told
    assert not (lab.folder / "data/x").exists()


@pytest.mark.parametrize("command", [["merge", "data/r"], ["select", "data/r", "--status", "failed"]])
def test_nothing_is_made_inside_of_a_run_that_is_only_read(lab: Lab, command: list[str]) -> None:
    before = sorted(lab.run_dir.iterdir())
    for place in ("data/r/x", "data/r/deeper/x"):
        assert "lies in data/r" in done(lab, *command, "-o", place, code=2)
    assert sorted(lab.run_dir.iterdir()) == before


def test_a_part_in_which_a_run_is_working_is_refused(lab: Lab) -> None:
    lock = os.open(lab.run_dir / ".lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "is working in this run directory" in done(lab, "merge", "data/r", "-o", "data/x", code=4)
    finally:
        os.close(lock)
    done(lab, "merge", "data/r", "-o", "data/x")


def test_a_manifest_cut_at_any_byte_is_refused_or_a_shorter_one(lab: Lab) -> None:
    data = (lab.run_dir / "manifest.jsonl").read_bytes()
    first = data.index(b"\n") + 1
    for number, cut in enumerate((0, 1, 50, first - 2, first - 1, first, first + 60, len(data) - 2)):
        (lab.folder / "cut.jsonl").write_bytes(data[:cut])
        result = lab.call("merge", "cut.jsonl", "-o", f"data/x{number}")
        is_whole = cut == 0 or data[cut - 1 : cut + 1].strip() in (b"}", b"{")
        assert result.code == (0 if is_whole else 2), result.err
        assert (lab.folder / f"data/x{number}").exists() == is_whole
        assert is_whole or "cut.jsonl" in result.err


def test_what_a_killed_merge_left_is_no_run_and_in_nobodys_way(lab: Lab) -> None:
    left = lab.folder / "data/.x.assembling"
    left.mkdir()
    (left / "journal.jsonl").write_text("half of a line")
    done(lab, "merge", "data/r", "-o", "data/x")
    assert lab.call("verify", "data/x").code == 0
    assert not left.exists()


def test_the_ledger_holds_whatever_the_parts_plan(tmp_path: Path) -> None:
    """Other samples, bad rows, duplicates, and rollouts that no plan names any more."""
    lab = Lab(tmp_path / "lab", SPEC | {"dataset": {"path": "data.jsonl", "on_bad_row": "skip"}})
    lab.write_tape(WELL)
    lab.write_rows([{"prompt": "a"}, {"prompt": "b"}, "no row", {"prompt": "a"}, {"prompt": "gone"}])
    assert lab.run("-q").code == 0
    lab.write_rows([{"prompt": "a"}, {"prompt": "b"}, "no row", {"prompt": "a"}])
    assert lab.run("-q").code == 0
    shutil.copytree(lab.run_dir, lab.folder / "data/first")
    lab.write_rows([{"prompt": "b"}, {"prompt": "c"}])
    lab.spec |= {"run_name": "second", "samples": 3}
    assert lab.run("-q").code == 0
    for out, parts in (("x", ("first", "second")), ("y", ("second", "first"))):
        found = done(lab, "merge", *(f"data/{part}" for part in parts), "-o", f"data/{out}")
        assert found["outcomes"]["completed"] == 8  # a twice, b and c three times
        assert (found["outcomes"]["invalid"], found["outcomes"]["pending"]) == (1, 0)
        lab.spec["run_name"] = out
        lab.assert_sound()
        assert done(lab, "status", f"data/{out}")["outside_plan"] == 1
    again = done(lab, "merge", "data/x", "data/y", "-o", "data/z")
    assert again["outcomes"] == found["outcomes"]
    whole = done(lab, "merge", "data/first", "-o", "data/alone")
    assert whole["outcomes"] == done(lab, "status", "data/first")["outcomes"] | {"pending": 0}
    trajectories = [
        (lab.folder / f"data/{run}/trajectories.jsonl").read_bytes() for run in ("alone", "first")
    ]
    assert trajectories[0] == trajectories[1]


def test_a_folder_whose_name_is_no_utf8_is_read_and_not_written_into(lab: Lab) -> None:
    odd = lab.folder / os.fsdecode(b"caf\xe9")
    shutil.copytree(lab.folder / "data", odd)
    for words in (
        ("merge", f"{odd}/r", "data/r"),
        ("select", f"{odd}/r"),
        ("merge", f"{odd}/r/manifest.jsonl"),
    ):
        done(lab, *words, "-o", "data/x")
        assert lab.call("verify", "data/x").code == 0
        shutil.rmtree(lab.folder / "data/x")
        assert "name another OUT" in done(lab, *words, "-o", f"{odd}/x", code=2)
        assert [path.name for path in odd.iterdir()] == ["r"]
