"""Files and diff of a workspace are the same on every backend, with whatever programs its image has."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from hermes_run.runner.workspace_diff import sums_of
from tests.cases.places import NAMES, at
from tests.flow.lab import Lab

if TYPE_CHECKING:
    from pathlib import Path

BEFORE = {"kept.txt": "old\n", "gone.txt": "was\n", "same.txt": "same\n", "odd/ü name": "x\n"}
COMMAND = (
    "echo new >>kept.txt; rm gone.txt; mkdir -p out/deep; echo a,b >out/deep/x.csv; printf 'a\\0b' >bin;"
    " echo y >'odd/ü name'; ln -s /etc/passwd link.csv; echo report >report.md"
)
AFTER = {
    "kept.txt": b"old\nnew\n",
    "same.txt": b"same\n",
    "odd/ü name": b"y\n",
    "out/deep/x.csv": b"a,b\n",
    "bin": b"a\0b",
    "report.md": b"report\n",
}


@pytest.mark.parametrize("name", NAMES)
def test_files_and_diff_of_a_workspace(tmp_path: Path, name: str) -> None:
    lab = at(Lab(tmp_path / "lab"), name, artifacts=["*.csv", "report.md"], diff=True)
    lab.write_rows([{"prompt": "work", "files": BEFORE}])
    call = {"tool": "terminal", "arguments": {"command": COMMAND}}
    turns = [{"reasoning": "r", "calls": [call]}, {"reasoning": "r", "text": "done"}]
    lab.write_tape({"conversations": [{"turns": turns}]})
    assert lab.run().code == 0
    (record,) = lab.lines()
    assert record["metadata"]["artifacts_left_out"] == ""
    kept = {
        path.split("/", 2)[2]: (lab.run_dir / path).read_bytes() for path in record["metadata"]["artifacts"]
    }
    diff = kept.pop("workspace.diff")
    assert kept == {"workspace/out/deep/x.csv": b"a,b\n", "workspace/report.md": b"report\n"}
    work = tmp_path / "work"
    for path, content in BEFORE.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(content)
    subprocess.run(["git", "apply", "-"], cwd=work, input=diff, check=True)
    files = {
        path.relative_to(work).as_posix(): path.read_bytes() for path in work.rglob("*") if path.is_file()
    }
    assert files == AFTER
    lab.assert_sound()


_SPOILED = (
    "echo new >>kept.txt; echo x >hidden.txt; mkdir -p far/away; echo y >far/away/deep.txt; rm gone.txt;"
    " chmod 0 hidden.txt kept.txt far/away far; mkdir here; cd here; chmod 0 {place};"
    " export PATH=/none TMPDIR=/none LD_PRELOAD=/none.so IFS=/"
)


@pytest.mark.parametrize("place", [".", '"$OLDPWD"'])
@pytest.mark.parametrize("name", NAMES)
def test_files_and_diff_hang_on_nothing_that_the_commands_left(tmp_path: Path, name: str, place: str) -> None:
    """Neither on modes that its own user cannot read, nor on variables and folders."""
    lab = at(Lab(tmp_path / "lab"), name, artifacts=["*.txt"], diff=True)
    lab.write_rows([{"prompt": "work", "files": {"kept.txt": "old\n", "gone.txt": "was\n"}}])
    call = {"tool": "terminal", "arguments": {"command": _SPOILED.format(place=place)}}
    turns = [{"reasoning": "r", "calls": [call]}, {"reasoning": "r", "text": "done"}]
    lab.write_tape({"conversations": [{"turns": turns}]})
    assert lab.run().code == 0
    (record,) = lab.lines()
    assert record["metadata"]["artifacts_left_out"] == ""
    kept = {
        path.split("/", 2)[2]: (lab.run_dir / path).read_bytes() for path in record["metadata"]["artifacts"]
    }
    diff = kept.pop("workspace.diff")
    changed = re.findall(rb"^diff --git a/(\S+)", diff, re.MULTILINE)
    assert changed == [b"far/away/deep.txt", b"gone.txt", b"hidden.txt", b"kept.txt"]
    assert b"+++ b/kept.txt\n@@ -1 +1,2 @@\n old\n+new\n" in diff
    assert kept == {
        "workspace/far/away/deep.txt": b"y\n",
        "workspace/hidden.txt": b"x\n",
        "workspace/kept.txt": b"old\nnew\n",
    }


@pytest.mark.parametrize("program", ["cksum", "sha256sum", "md5sum"])
def test_sums_are_read_whatever_names_and_program(tmp_path: Path, program: str) -> None:
    names = {b"a", b"with  two ", b"new\nline", b"back\\slash", b"\xff", b"0 0 .", b"\n", b"a\n./b"}
    for name in names:
        path = tmp_path / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name)
    listed = subprocess.run(
        ["find", ".", "-type", "f", "-exec", program, "{}", "+"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    ).stdout
    assert set(sums_of(listed)) == names
    assert len(set(sums_of(listed).values())) == len(names)


@pytest.mark.docker
def test_a_workspace_that_cannot_be_looked_at_any_more_is_said_to_be_left_out_and_not_unchanged(
    tmp_path: Path,
) -> None:
    """The model has used up all processes: nothing can be listed, summed or copied."""
    lab = at(Lab(tmp_path / "lab"), "docker-busybox", artifacts=["*.txt"], diff=True, pids=20)
    lab.write_rows([{"prompt": "work", "files": {"a.txt": "old\n"}}])
    fill = "echo new >a.txt; i=0; while [ $i -lt 90 ]; do sleep 600 & i=$((i+1)); done"
    call = {"tool": "terminal", "arguments": {"command": fill}}
    turns = [{"reasoning": "r", "calls": [call]}, {"reasoning": "r", "text": "done"}]
    lab.write_tape({"conversations": [{"turns": turns}]})
    assert lab.run().code == 0
    (record,) = lab.lines()
    assert record["metadata"]["artifacts"] == []
    assert record["metadata"]["artifacts_left_out"] == (
        "the diff: the workspace could not be read to its end;"
        " files: the workspace could not be listed to its end"
    )
