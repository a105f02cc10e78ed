"""merge, select, import, repair and the like, killed after each of their writes, renames and syncs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flow.lab import Lab
from tests.predecessor import Old, prompts

TAPE = {
    "conversations": [
        {"match": "breaks", "turns": [{"error": "provider_error"}]},
        {"turns": [{"reasoning": "r", "text": "{{prompt}} is done"}]},
    ]
}
SPEC = {"batch_size": 2, "distribution": {"todo": 100}, "sandbox": {"backend": "bubblewrap"}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one dataset, one with a failure, and a directory of the predecessor's."""
    lab = Lab(tmp_path_factory.mktemp("kills") / "lab", dict(SPEC))
    lab.write_tape(TAPE)
    lab.write_prompts("one", "two", "three breaks", "four")
    assert lab.run("-q").code == 1
    lab.write_tape({"conversations": TAPE["conversations"][1:]})
    lab.spec["run_name"] = "other"
    assert lab.run("-q").code == 0
    old = Old(lab.folder)
    old.write(prompts(100)[:9])
    return lab.folder


def killed_everywhere(folder: Path, step: int, outs: tuple[str, ...], *words: str) -> None:
    program = Path(__file__).with_name("set_kill_points.py")
    done = subprocess.run(
        [sys.executable, str(program), str(folder), str(step), *outs, "--", *words],
        env=Lab(folder).environment(),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["operations"] > 2


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "lab")
    return tmp_path / "lab"


@pytest.mark.parametrize(
    ("outs", "words"),
    [
        (("data/x",), "merge data/r data/other -o data/x"),
        (("data/x",), "merge data/r/manifest.jsonl data/other/manifest.jsonl -o data/x"),
        (("data/x", "rows.jsonl"), "select data/r --status failed -o data/x --rows rows.jsonl"),
        (("rows.jsonl",), "subtract data/other data/r --rows rows.jsonl"),
        (("data/x",), "import old/my_run --dataset prompts.jsonl -o data/x"),
        (("new/run.yaml",), "init new"),
    ],
)
@pytest.mark.slow
def test_a_killed_operation_leaves_its_output_whole_or_not_at_all(
    folder: Path, outs: tuple[str, ...], words: str
) -> None:
    killed_everywhere(folder, 2, outs, *words.split())


@pytest.mark.parametrize("damage", ["moved", "lost"])
@pytest.mark.slow
def test_a_killed_repair_is_mended_by_the_next(folder: Path, damage: str) -> None:
    batch = folder / "data/r/batch_0.jsonl"
    lines = batch.read_bytes().splitlines(keepends=True)
    kept = lines[::-1] if damage == "moved" else lines[1:]
    batch.write_bytes(b"no line\n" + b"".join(kept)[:-1])
    killed_everywhere(folder, 1, (), "repair", "data/r")
