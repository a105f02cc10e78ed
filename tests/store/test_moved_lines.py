"""Batch files that something else has written: lines moved, doubled, spelled otherwise, or with others."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.flow.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

TAPE = {
    "conversations": [
        {"match": "b", "turns": [{"text": "without reasoning: {{prompt}}"}]},
        {"turns": [{"reasoning": "r", "text": "naïve {{prompt}} € done" + " and more" * 9}]},
    ]
}
SPEC = {"batch_size": 2, "workers": 1, "distribution": {"todo": 100}, "sandbox": {"backend": "bubblewrap"}}
PROMPTS = ("a", "b", "c", "d and some more")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(tmp_path_factory.mktemp("finished") / "lab", dict(SPEC))
    lab.write_tape(TAPE)
    lab.write_prompts(*PROMPTS)
    assert lab.run("-q").code == 0
    return lab


@pytest.fixture
def lab(finished: Lab, tmp_path: Path) -> Lab:
    shutil.copytree(finished.folder, tmp_path / "lab")
    return Lab(tmp_path / "lab", dict(finished.spec))


def respelled(line: bytes) -> bytes:
    return json.dumps(json.loads(line)).encode() + b"\n"


Files = tuple[list[bytes], list[bytes]]
"""The lines of both batch files."""

DISTURBED: dict[str, Callable[[list[bytes], list[bytes]], Files]] = {
    "swapped": lambda one, two: (one[::-1], two),
    "the first doubled": lambda one, two: ([one[0], *one], two),
    "all doubled": lambda one, two: (one * 2, two * 2),
    "in each other's files": lambda one, two: (two, one),
    "all in one file": lambda one, two: ([*two, *one], []),
    "other line ends": lambda one, two: ([line[:-1] + b"\r\n" for line in one], two),
    "a mark in front": lambda one, two: ([b"\xef\xbb\xbf", *one], two),
    "glued": lambda one, two: ([one[0][:-1], one[1]], [two[0][:-1], two[1][:-1]]),
    "words between": lambda one, two: ([b"<<<<<<< ours\n", one[0], b"=======\n", one[1]], two),
    "blank lines": lambda one, two: ([b"\n\n", one[0], b" \n", one[1], b"\n"], two),
    "bytes of a torn block": lambda one, two: ([one[0], b"\0" * 100, one[1]], two),
    "spelled otherwise": lambda one, two: ([*map(respelled, one)], [*map(respelled, two)]),
}


@pytest.mark.parametrize("is_journal_gone", [False, True], ids=["", "journal gone"])
@pytest.mark.parametrize("how", DISTURBED)
def test_every_line_is_found_again_and_none_is_paid_twice(
    lab: Lab, how: str, *, is_journal_gone: bool
) -> None:
    paths = [lab.run_dir / f"batch_{number}.jsonl" for number in (0, 1)]
    one, two = (path.read_bytes().splitlines(keepends=True) for path in paths)
    manifest = (lab.run_dir / "manifest.jsonl").read_bytes()
    spent = lab.statistics()["spent"]
    for path, lines in zip(paths, DISTURBED[how](one, two), strict=True):
        path.write_bytes(b"".join(lines))
    if is_journal_gone:
        (lab.run_dir / "journal.jsonl").unlink()
    assert lab.call("verify", str(lab.run_dir)).code == 1
    repaired = lab.call("repair", str(lab.run_dir))
    assert (repaired.code, repaired.err) == (0, ""), repaired.out
    assert "pending again" not in repaired.out or is_journal_gone
    assert lab.call("verify", str(lab.run_dir)).code == 0
    assert (lab.run_dir / "manifest.jsonl").read_bytes() == manifest
    for path in paths:
        assert all(json.loads(line)["key"] for line in path.read_bytes().split(b"\n") if line.strip())
    again = lab.run("-q")
    assert again.code == 0, again.err
    assert not list(lab.run_dir.glob("batch_[2-9].jsonl"))
    assert (lab.run_dir / "manifest.jsonl").read_bytes() == manifest
    if not is_journal_gone:
        assert lab.statistics()["spent"] == spent
    lab.assert_sound()
    assert lab.call("repair", str(lab.run_dir)).out.endswith("nothing to mend\n")


def test_what_is_no_line_is_kept_beside(lab: Lab) -> None:
    batch = lab.run_dir / "batch_0.jsonl"
    one, two = batch.read_bytes().splitlines(keepends=True)
    batch.write_bytes(b"before\n" + one + b"between\n" + two + b"after")
    assert lab.call("repair", str(lab.run_dir)).code == 0
    kept = (lab.run_dir / "batch_0.jsonl.bad").read_bytes()
    assert kept.split() == [b"before", b"between", b"after"]


def test_a_line_that_was_moved_and_changed_is_not_taken_for_the_one_that_was_written(lab: Lab) -> None:
    batch = lab.run_dir / "batch_0.jsonl"
    one, two = batch.read_bytes().splitlines(keepends=True)
    batch.write_bytes(two + one.replace(b"done", b"gone", 1))
    repaired = lab.call("repair", str(lab.run_dir))
    assert repaired.code == 0, repaired.err
    assert "missing or damaged: 1 trajectory" in repaired.out
    assert b"gone" in (lab.run_dir / "batch_0.jsonl.bad").read_bytes()
    assert lab.run("-q").code == 0
    assert "gone" not in (lab.run_dir / "trajectories.jsonl").read_text()
    assert len(list(lab.run_dir.glob("batch_*.jsonl"))) == 3
    lab.assert_sound()


def test_a_line_that_comes_back_counts_again(lab: Lab) -> None:
    """A batch file that was away while somebody repaired the run."""
    batch, manifest = lab.run_dir / "batch_1.jsonl", lab.run_dir / "manifest.jsonl"
    before, spent = manifest.read_bytes(), lab.statistics()["spent"]
    batch.rename(lab.folder / "away")
    assert "pending again" in lab.call("repair", str(lab.run_dir)).out
    assert len(manifest.read_bytes()) < len(before)
    (lab.folder / "away").rename(batch)
    assert lab.call("repair", str(lab.run_dir)).code == 0
    assert manifest.read_bytes() == before
    assert lab.run("-q").code == 0
    assert not list(lab.run_dir.glob("batch_2.jsonl"))
    assert lab.statistics()["spent"] == spent
    lab.assert_sound()
