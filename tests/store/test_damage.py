"""Damaged files: what opening mends by itself, what verify finds, what repair rebuilds."""

from __future__ import annotations

import json
import random
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.store import layout
from hermes_run.store.checkpoint import forget_hashes
from hermes_run.store.inspect import repair, verify
from hermes_run.store.journal import Journal
from tests.flow.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

TAPE = {"conversations": [{"turns": [{"reasoning": "r", "text": "naïve {{prompt}} € done"}]}]}
SPEC = {"batch_size": 10, "workers": 1, "distribution": {"todo": 100}, "sandbox": {"backend": "bubblewrap"}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A run of three rows that has ended."""
    lab = Lab(tmp_path_factory.mktemp("finished") / "lab", dict(SPEC))
    lab.write_tape(TAPE)
    lab.write_prompts("a", "b", "c")
    assert lab.run("-q").code == 0
    return lab


@pytest.fixture
def lab(finished: Lab, tmp_path: Path) -> Lab:
    """A copy of it, with a fourth row pending."""
    import shutil

    shutil.copytree(finished.folder, tmp_path / "lab")
    copy = Lab(tmp_path / "lab", dict(finished.spec))
    copy.write_prompts("a", "b", "c", "d")
    return copy


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def resume(lab: Lab) -> str:
    """Run it to its end; what it said."""
    result = lab.run()
    assert result.code == 0, result.err
    assert "Traceback" not in result.err
    assert [line["conversations"][0]["value"] for line in lab.lines()] == ["a", "b", "c", "d"]
    for batch in lab.run_dir.glob("batch_*.jsonl"):
        assert all(json.loads(line)["key"] for line in lines_of(batch) if line.strip()), "a merged line"
    lab.assert_sound()
    return result.out + result.err


def ran_anew(lab: Lab) -> int:
    """Lines in batch files after the first."""
    return sum(
        len(lines_of(path)) for path in lab.run_dir.glob("batch_*.jsonl") if path.name != "batch_0.jsonl"
    )


def test_a_last_line_cut_in_the_middle_of_a_string_is_run_again_and_its_bytes_are_kept(lab: Lab) -> None:
    batch = lab.run_dir / "batch_0.jsonl"
    torn = lines_of(batch)[2][:200]
    batch.write_bytes(b"".join(lines_of(batch)[:2]) + torn)
    said = resume(lab)
    assert "batch_0.jsonl" in said
    assert ran_anew(lab) == 2
    assert torn in (lab.run_dir / "batch_0.jsonl.bad").read_bytes()


def test_a_last_line_cut_in_the_middle_of_a_character_is_run_again(lab: Lab) -> None:
    batch = lab.run_dir / "batch_0.jsonl"
    data = batch.read_bytes()
    cut = data.rindex("€".encode()) + 1
    batch.write_bytes(data[:cut])
    resume(lab)
    assert ran_anew(lab) == 2


def test_a_last_line_without_its_newline_is_kept(lab: Lab) -> None:
    batch = lab.run_dir / "batch_0.jsonl"
    batch.write_bytes(batch.read_bytes()[:-1])
    resume(lab)
    assert ran_anew(lab) == 1


@pytest.mark.parametrize("remove", [False, True], ids=["empty", "gone"])
def test_an_empty_or_missing_batch_file_is_run_again_with_a_warning_that_names_it(
    lab: Lab, remove: bool
) -> None:
    batch = lab.run_dir / "batch_0.jsonl"
    if remove:
        batch.unlink()
    else:
        batch.write_bytes(b"")
    assert "batch_0.jsonl" in resume(lab)
    assert ran_anew(lab) == 4


def test_a_flipped_byte_in_the_last_line_is_noticed_on_opening(lab: Lab) -> None:
    batch = lab.run_dir / "batch_0.jsonl"
    data = bytearray(batch.read_bytes())
    data[-300] ^= 1
    batch.write_bytes(bytes(data))
    assert "batch_0.jsonl" in resume(lab)
    assert ran_anew(lab) == 2


def test_a_flipped_byte_in_a_line_before_is_noticed_by_the_merge_and_done_again_by_the_next_run(
    lab: Lab,
) -> None:
    batch = lab.run_dir / "batch_0.jsonl"
    data = bytearray(batch.read_bytes())
    data[100] ^= 1
    batch.write_bytes(bytes(data))
    result = lab.run()
    assert result.code == 1
    assert "batch_0.jsonl" in result.err
    assert lab.statistics()["outcomes"]["pending"] == 1
    resume(lab)
    assert ran_anew(lab) == 2


@pytest.mark.slow
def test_a_journal_cut_at_any_byte_reopens_by_itself(finished: Lab, tmp_path: Path) -> None:
    import shutil

    size = (finished.run_dir / "journal.jsonl").stat().st_size
    dice = random.Random(5)
    cuts = [0, 1, size - 1, size, *(dice.randrange(size) for _ in range(4))]
    for number, cut in enumerate(cuts):
        shutil.copytree(finished.folder, tmp_path / str(number))
        lab = Lab(tmp_path / str(number), dict(finished.spec))
        lab.write_prompts("a", "b", "c", "d")
        journal = lab.run_dir / "journal.jsonl"
        journal.write_bytes(journal.read_bytes()[:cut])
        resume(lab)
        assert ran_anew(lab) == 1, cut


def damage_middle(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def delete_line(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[:1] + lines[2:])


def double_line(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[:2] + lines[1:])


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "flipped byte": damage_middle,
    "deleted line": delete_line,
    "doubled line": double_line,
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "name", ["journal.jsonl", "manifest.jsonl", "batch_0.jsonl", "trajectories.jsonl", "statistics.json"]
)
def test_verify_finds_it(lab: Lab, name: str, damage: str) -> None:
    path = lab.run_dir / name
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    found = lab.call("verify", str(lab.run_dir))
    assert found.code == 1
    assert name in found.out + found.err


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_journal_damaged_in_the_middle_is_refused_and_repaired(lab: Lab, damage: str) -> None:
    journal = lab.run_dir / "journal.jsonl"
    journal.write_bytes(DAMAGES[damage](journal.read_bytes()))
    refused = lab.run()
    assert refused.code == 2
    assert "hermes-run repair" in refused.err
    repaired = lab.call("repair", str(lab.run_dir))
    assert repaired.code == 0, repaired.err
    assert lab.call("verify", str(lab.run_dir)).code == 0
    resume(lab)
    assert ran_anew(lab) == 1


def test_a_missing_journal_is_refused_and_rebuilt_from_the_batch_files(lab: Lab) -> None:
    (lab.run_dir / "journal.jsonl").unlink()
    assert lab.call("verify", str(lab.run_dir)).code == 1
    refused = lab.run()
    assert refused.code == 2
    assert "hermes-run repair" in refused.err
    assert lab.call("repair", str(lab.run_dir)).code == 0
    resume(lab)
    assert ran_anew(lab) == 1


@pytest.mark.parametrize("do", ["run", "verify"])
def test_the_repair_that_is_told_can_be_pasted_into_a_shell(lab: Lab, do: str) -> None:
    odd = lab.folder / "my data"
    (lab.folder / "data").rename(odd)
    (odd / "r/journal.jsonl").unlink()
    lab.spec["output"] = {"dir": "my data"}
    told = lab.run() if do == "run" else lab.call("verify", "my data/r")
    command = re.findall(r"hermes-run repair '.*?'", told.err)[-1]
    assert lab.call(*shlex.split(command)[1:]).code == 0


def test_a_missing_or_damaged_manifest_is_folded_anew(lab: Lab) -> None:
    manifest = lab.run_dir / "manifest.jsonl"
    before = manifest.read_bytes()
    lab.write_prompts("a", "b", "c")
    for damaged in (b"", before[: len(before) // 3], None):
        if damaged is None:
            manifest.unlink()
        else:
            manifest.write_bytes(damaged)
        assert lab.run("-q").code == 0
        assert manifest.read_bytes() == before


def test_a_foreign_line_is_set_aside_and_never_merged(lab: Lab) -> None:
    batch = lab.run_dir / "batch_0.jsonl"
    foreign = lines_of(batch)[0].replace(b'"key":"', b'"key":"ffff', 1)
    odd = json.loads(lines_of(batch)[0]) | {"key": "f" * 32 + "#0"}
    with batch.open("ab") as stream:
        stream.write(b"garbage\n" + foreign + json.dumps(odd).encode() + b"\n")
    resume(lab)
    assert ran_anew(lab) == 1
    assert b"garbage" in (lab.run_dir / "batch_0.jsonl.bad").read_bytes()


def test_a_second_line_for_a_key_that_is_done_is_set_aside(lab: Lab) -> None:
    batch = lab.run_dir / "batch_0.jsonl"
    with batch.open("ab") as stream:
        stream.write(lines_of(batch)[1])
    resume(lab)
    assert ran_anew(lab) == 1


@pytest.mark.parametrize(
    "name", ["trajectories.jsonl", "statistics.json", "manifest.jsonl", "checkpoint.json"]
)
def test_a_missing_derived_file_is_damage_and_the_next_run_writes_it_anew(lab: Lab, name: str) -> None:
    (lab.run_dir / name).unlink()
    found = lab.call("verify", str(lab.run_dir))
    assert found.code == 1
    assert name in found.out + found.err
    resume(lab)


@pytest.mark.parametrize("content", [None, b"", b"{half", b"[]"])
def test_a_lost_checkpoint_is_mended_by_repair_and_the_journal_stays_as_it_is(
    lab: Lab, content: bytes | None
) -> None:
    checkpoint, journal = lab.run_dir / "checkpoint.json", lab.run_dir / "journal.jsonl"
    before = json.loads(checkpoint.read_bytes()), journal.read_bytes()
    checkpoint.unlink()
    if content is not None:
        checkpoint.write_bytes(content)
    repaired = lab.call("repair", str(lab.run_dir))
    assert repaired.code == 0, repaired.err
    assert "checkpoint.json: written anew" in repaired.out
    assert "journal.jsonl" not in repaired.out
    assert (journal.read_bytes(), list(lab.run_dir.glob("journal.jsonl.*"))) == (before[1], [])
    after = json.loads(checkpoint.read_bytes())
    for name in ("run_name", "completed_prompts", "batch_stats"):
        assert after[name] == before[0][name]
    assert lab.call("verify", str(lab.run_dir)).code == 0
    resume(lab)


@pytest.mark.parametrize(
    "change",
    [
        {"selection": {"max_samples": -1}},
        {"selection": {"max_samples": 10**25}},
        {"selection": {"samples": 0}},
        {"selection": {"samples": 2**32}, "planned": 3 * 2**32},
        {"places": [[0, 10**12]]},
        {"places": [[-1, 3]]},
        {"places": [[2**64, 3]]},
    ],
)
def test_a_plan_that_no_dataset_can_have_is_damaged(lab: Lab, change: dict[str, Any]) -> None:
    path = lab.run_dir / "plan.json"
    plan = json.loads(path.read_bytes())
    selection = plan["selection"] | change.get("selection", {})
    path.write_text(json.dumps(plan | change | {"selection": selection}))
    for words in (("status",), ("select", "--rows", "rows.jsonl"), ("merge", "-o", "x")):
        refused = lab.call(words[0], str(lab.run_dir), *words[1:])
        assert refused.code == 2, refused.err
        assert "plan.json: damaged" in refused.err
    assert lab.call("verify", str(lab.run_dir)).code == 1
    resume(lab)


@pytest.mark.parametrize("name", ["plan.json", "plan.keys"])
def test_what_repair_cannot_mend_is_told_with_exit_code_1(lab: Lab, name: str) -> None:
    (lab.run_dir / name).unlink()
    repaired = lab.call("repair", str(lab.run_dir), "--json")
    assert repaired.code == 1
    assert "running its spec again writes the plan anew" in " ".join(repaired.json()["left"])
    said = lab.call("repair", str(lab.run_dir))
    assert said.code == 1
    assert "running its spec again writes the plan anew" in said.err
    resume(lab)
    assert lab.call("repair", str(lab.run_dir)).code == 0


def test_repair_says_that_an_old_journal_is_kept_only_where_there_was_one(lab: Lab) -> None:
    journal = lab.run_dir / "journal.jsonl"
    data = journal.read_bytes()
    journal.unlink()
    assert "journal.jsonl: written anew with 3 lines\n" in lab.call("repair", str(lab.run_dir)).out
    journal.write_bytes(damage_middle(data))
    assert "the old one is journal.jsonl.bad-1" in lab.call("repair", str(lab.run_dir)).out
    assert (lab.run_dir / "journal.jsonl.bad-1").exists()


def test_repair_writes_nothing_where_there_is_nothing_of_ours(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    theirs = lab.folder / "theirs"
    theirs.mkdir()
    (theirs / "batch_0.jsonl").write_text('{"prompt_index": 0, "conversations": [], "completed": true}\n')
    (theirs / "checkpoint.json").write_text("{}")
    before = sorted(path.name for path in theirs.iterdir())
    refused = lab.call("repair", str(theirs))
    assert refused.code == 2, refused.err
    assert "no run of hermes-run wrote what is in it" in refused.err
    assert sorted(path.name for path in theirs.iterdir()) == before


def test_a_dry_run_refuses_what_the_run_would_refuse(lab: Lab) -> None:
    lab.spec["agent"] = {"max_turns": 3}
    refused = lab.run("--dry-run")
    assert refused.code == 2
    assert "agent.max_turns" in refused.err
    assert lab.run("--dry-run", "--accept-spec-change").code == 0
    assert lab.run("--dry-run", "--fresh").code == 0
    del lab.spec["agent"]
    journal = lab.run_dir / "journal.jsonl"
    journal.write_bytes(damage_middle(journal.read_bytes()))
    damaged = lab.run("--dry-run")
    assert damaged.code == 2
    assert "hermes-run repair" in damaged.err


def test_a_batch_whose_end_was_written_off_is_looked_through_once(lab: Lab) -> None:
    batch = lab.run_dir / "batch_0.jsonl"
    batch.write_bytes(batch.read_bytes()[:-40])
    assert "1 trajectory is missing or torn" in resume(lab)
    journal = (lab.run_dir / "journal.jsonl").read_bytes()
    opened = Journal(lab.run_dir / "journal.jsonl")
    opened.close()
    assert [number for number in opened.batches if opened.is_end_lost(number)] == [0]
    assert "missing" not in resume(lab)
    assert (lab.run_dir / "journal.jsonl").read_bytes() == journal
    batch.unlink()
    assert "2 trajectories are missing or torn" in resume(lab)
    assert "missing" not in resume(lab)


def test_what_a_run_is_writing_just_now_is_no_damage(lab: Lab) -> None:
    """A line without its entry, half of another, and of an entry: the run that holds the lock goes on."""
    batch, journal = lab.run_dir / "batch_0.jsonl", lab.run_dir / "journal.jsonl"
    line = lines_of(batch)[0].replace(b'"key":"', b'"key":"ffff', 1)
    with layout.locked(lab.run_dir):
        forget_hashes(lab.run_dir)
        for path, data in ((batch, line + line[:99]), (journal, lines_of(journal)[0][:99])):
            with path.open("ab") as stream:
                stream.write(data)
        found = lab.call("verify", str(lab.run_dir))
        assert found.code == 0, found.err
        assert "a run is going on there" in found.err
        batch.write_bytes(damage_middle(batch.read_bytes()))
        assert lab.call("verify", str(lab.run_dir)).code == 1
    assert "belong to no entry" in lab.call("verify", str(lab.run_dir)).err


def test_bytes_after_the_journal_of_an_ended_run_are_damage(lab: Lab) -> None:
    with (lab.run_dir / "journal.jsonl").open("ab") as stream:
        stream.write(b"\0" * 50)
    found = lab.call("verify", str(lab.run_dir))
    assert found.code == 1
    assert "when the run ended" in found.err
    resume(lab)


def test_a_flipped_byte_in_the_checkpoint_is_found_wherever_it_is(lab: Lab) -> None:
    path = lab.run_dir / "checkpoint.json"
    data = path.read_bytes()
    assert verify(lab.run_dir) == []
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert any("checkpoint.json" in damage for damage in verify(lab.run_dir)), (at, data[at])
    resume(lab)


def test_a_flipped_byte_anywhere_in_the_journal_is_found_and_mended(
    lab: Lab,
) -> None:
    """Names of fields, too: a line that can be folded is not always one that can be read."""
    journal, manifest = lab.run_dir / "journal.jsonl", lab.run_dir / "manifest.jsonl"
    data, before = journal.read_bytes(), manifest.read_bytes()
    first = len(lines_of(journal)[0])
    dice = random.Random(1)
    for at in [*range(first + 70, first + 100), *dice.sample(range(len(data)), 60)]:
        journal.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert verify(lab.run_dir), (at, data[at])
        assert repair(lab.run_dir), at
        assert manifest.read_bytes() == before, (at, data[at])
        for aside in lab.run_dir.glob("journal.jsonl.bad*"):
            aside.unlink()
