"""`--shard K/N`: the parts of a run, on as many machines."""

from __future__ import annotations

import json

from tests.flow.lab import Lab, read_lines

TAPE = {"conversations": [{"turns": [{"reasoning": "r", "text": "{{prompt}} done"}]}]}


def sharded(lab: Lab) -> Lab:
    lab.write_tape(TAPE)
    lab.spec |= {"samples": 2, "workers": 4, "distribution": {"terminal": 50, "todo": 50}, "seed": 4}
    rows = [{"prompt": f"task {n % 25}"} for n in range(30)]
    lab.write_rows([*rows, {"prompt": 1}, "nope"])
    lab.spec["dataset"] = {"path": "data.jsonl", "on_bad_row": "skip"}
    return lab


def test_the_shards_partition_the_run_and_their_entries_are_those_of_the_whole(lab: Lab) -> None:
    sharded(lab)
    assert lab.run("-q").code == 0
    whole = lab.lines("manifest.jsonl")
    parts = []
    total = invalid = 0
    for number in (1, 2, 3):
        result = lab.run("-q", "--shard", f"{number}/3")
        assert result.code == 0, result.err
        folder = lab.run_dir.with_name(f"r.{number}-of-3")
        parts += read_lines(folder / "manifest.jsonl")
        plan = json.loads((folder / "plan.json").read_text())
        total += plan["total"]
        invalid += len(plan["invalid"])
        assert plan["selection"]["shard"] == f"{number}/3"
        assert bool(plan["invalid"]) == (number == 1)
        assert lab.call("verify", str(folder)).code == 0
        indexes = [line["prompt_index"] for line in read_lines(folder / "trajectories.jsonl")]
        assert indexes == sorted(indexes)
    assert sorted(parts, key=lambda entry: str(entry["key"])) == sorted(whole, key=lambda e: str(e["key"]))
    assert (total, invalid) == (64, 2)


def test_a_shard_resumes_by_the_same_command(lab: Lab) -> None:
    sharded(lab)
    assert lab.run("-q", "--shard", "1/2").code == 0
    folder = lab.run_dir.with_name("r.1-of-2")
    before = (folder / "journal.jsonl").read_bytes()
    again = lab.run("-q", "--shard", "1/2")
    assert again.code == 0, again.err
    assert (folder / "journal.jsonl").read_bytes() == before
    planned = lab.run("--dry-run", "--json", "--shard", "2/2").json()
    assert planned["pending"] == planned["planned"] > 0
    assert planned["invalid"] == 0


def test_the_spec_of_a_part_is_not_run_as_the_whole_in_its_place(lab: Lab) -> None:
    sharded(lab)
    assert lab.run("-q", "--shard", "1/2").code == 0
    folder = lab.run_dir.with_name("r.1-of-2")
    before = (folder / "journal.jsonl").read_bytes()
    for more in ((), ("--dry-run",)):
        refused = lab.call(str(folder / "spec.yaml"), "-q", *more)
        assert refused.code == 2
        assert "holds part 1/2 of the dataset" in refused.err
        assert "run_name r and --shard 1/2" in refused.err
    assert (folder / "journal.jsonl").read_bytes() == before
    assert lab.call(str(folder / "spec.yaml"), "-q", "--run-name", "r", "--shard", "1/2").code == 0
    assert (folder / "journal.jsonl").read_bytes() == before
