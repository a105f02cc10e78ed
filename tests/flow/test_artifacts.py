"""Files of a workspace that outlive it: by globs, and as a diff against its start."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.runner import artifacts as bounds
from tests.flow.lab import Lab

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.bubblewrap]


def lab_with(folder: Path, *commands: str, row: dict[str, Any] | None = None, **sandbox: Any) -> Lab:
    """A run whose model gives `commands`, one a turn, and then answers."""
    lab = Lab(folder, {"sandbox": {"backend": "bubblewrap", **sandbox}, "agent": {"max_turns": 20}})
    lab.write_rows([{"prompt": "work", **(row or {})}])
    turns: list[dict[str, Any]] = [
        {"reasoning": "r", "calls": [{"tool": "terminal", "arguments": {"command": command}}]}
        for command in commands
    ]
    lab.write_tape({"conversations": [{"turns": [*turns, {"reasoning": "r", "text": "done"}]}]})
    return lab


def kept(lab: Lab) -> dict[str, bytes]:
    """What the one record names, by its path below the rollout's folder, with its bytes."""
    (record,) = lab.lines()
    names = record["metadata"]["artifacts"]
    return {name.split("/", 2)[2]: (lab.run_dir / name).read_bytes() for name in names}


def test_files_that_match_a_glob_are_kept_and_named_in_the_record(tmp_path: Path) -> None:
    lab = lab_with(
        tmp_path,
        "mkdir -p out/deep .git; echo a >out/a.csv; printf 'b\\0\\377' >out/deep/b.csv; echo c >c.txt",
        "echo no >out/no.txt; ln -s /etc/passwd out/link.csv; echo g >.git/g.csv; echo u >'ü b.txt'",
        artifacts=["out/**/*.csv", "*b.txt"],
    )
    assert lab.run().code == 0
    assert kept(lab) == {
        "workspace/out/a.csv": b"a\n",
        "workspace/out/deep/b.csv": b"b\0\xff",
        "workspace/ü b.txt": b"u\n",
    }
    assert lab.lines()[0]["metadata"]["artifacts_left_out"] == ""
    lab.assert_sound()


def test_a_run_that_asks_for_none_has_none(tmp_path: Path) -> None:
    lab = lab_with(tmp_path, "echo a >a.csv")
    assert lab.run().code == 0
    assert kept(lab) == {}
    assert not (lab.run_dir / "artifacts").exists()


def test_the_diff_is_what_git_apply_takes(tmp_path: Path) -> None:
    files = {
        "changed.txt": "one\ntwo\nthree\n",
        "same.txt": "same\n",
        "gone.txt": "gone\n",
        "no end.txt": "a\nb",
        "ü\tx.txt": "old\n",
    }
    lab = lab_with(
        tmp_path,
        "sed -i s/two/2/ changed.txt; rm gone.txt; printf 'a\\nB' >'no end.txt'; mkdir new; echo n >new/n",
        "printf 'new\\n' >'ü\tx.txt'; : >empty; mkdir 'end '; : >'end /empty'",
        row={"files": files, "setup": ["echo before >set-up.txt"]},
        diff=True,
    )
    assert lab.run().code == 0
    text = kept(lab)["workspace.diff"]
    work = tmp_path / "work"
    work.mkdir()
    for name, content in files.items():
        (work / name).write_text(content)
    subprocess.run(["git", "apply", "-"], cwd=work, input=text, check=True)
    assert {
        path.relative_to(work).as_posix(): path.read_text() for path in work.rglob("*") if path.is_file()
    } == {
        "changed.txt": "one\n2\nthree\n",
        "same.txt": "same\n",
        "no end.txt": "a\nB",
        "ü\tx.txt": "new\n",
        "new/n": "n\n",
        "empty": "",
        "end /empty": "",
    }
    assert b"set-up.txt" not in text
    lab.assert_sound()


def test_a_workspace_that_did_not_change_has_an_empty_diff(tmp_path: Path) -> None:
    lab = lab_with(tmp_path, "ls", row={"files": {"a": "a\n"}}, diff=True)
    assert lab.run().code == 0
    assert kept(lab) == {"workspace.diff": b""}


def test_binary_and_long_files_are_in_the_diff_and_what_is_too_long_is_said_to_be_left_out(
    tmp_path: Path,
) -> None:
    lab = lab_with(
        tmp_path,
        "printf '\\0' >bin; head -c 700000 /dev/zero | tr '\\0' x >long; head -c 5000000 /dev/zero >huge",
        "rm was; printf 'now\\0' >is",
        row={
            "files": {"text": "a\n"},
            "setup": ["printf '\\0\\1\\2' >was; head -c 3000 /dev/urandom >is; cp is .is"],
        },
        diff=True,
        artifacts=[".is"],
    )
    assert lab.run().code == 0
    files = kept(lab)
    text = files["workspace.diff"]
    assert len(text) < 20_000
    assert b"b/huge" not in text
    assert lab.lines()[0]["metadata"]["artifacts_left_out"] == "of the diff: unreadable, or over 4 MiB"
    before = {"text": b"a\n", "was": b"\0\1\2", "is": files["workspace/.is"]}
    after = {"text": b"a\n", "bin": b"\0", "long": b"x" * 700_000, "is": b"now\0"}
    assert applied(text, before, tmp_path / "there") == after
    assert applied(text, after, tmp_path / "back", "-R") == before


def test_a_file_that_is_too_long_to_be_read_costs_neither_the_diff_nor_the_files(tmp_path: Path) -> None:
    lab = lab_with(
        tmp_path,
        "truncate -s 1T new.bin; echo 2 >>a.txt; printf x >>grown.bin",
        row={"files": {"a.txt": "1\n"}, "setup": ["truncate -s 5M same.bin; cp same.bin grown.bin"]},
        diff=True,
        artifacts=["*.txt"],
    )
    assert lab.run().code == 0
    files = kept(lab)
    assert files["workspace/a.txt"] == b"1\n2\n"
    assert re.findall(rb"(?m)^diff --git a/(\S+)", files["workspace.diff"]) == [b"a.txt"]
    said = lab.lines()[0]["metadata"]["artifacts_left_out"]
    assert said == "2 x of the diff: unreadable, or over 4 MiB"


@pytest.mark.parametrize("folder", ["/none", "relative", "/etc/hostname"])
def test_the_diff_needs_no_folder_of_the_images_or_the_set_up_for_temporary_files(
    tmp_path: Path, folder: str
) -> None:
    lab = lab_with(tmp_path, "echo a >a", row={"setup": [f"export TMPDIR={folder}"]}, diff=True)
    assert lab.run().code == 0
    assert lab.lines()[0]["metadata"]["artifacts_left_out"] == ""
    assert b"+a\n" in kept(lab)["workspace.diff"]


@pytest.mark.parametrize("has_df", [True, False])
def test_a_workspace_that_there_is_no_room_to_copy_leaves_the_room_to_the_commands(
    tmp_path: Path, *, has_df: bool
) -> None:
    """Where nobody knows how much room there is, what was begun is removed."""
    hide = "mkdir bin; printf 'exit 1' >bin/df; chmod +x bin/df; export PATH=$PWD/bin:$PATH"
    lab = lab_with(
        tmp_path,
        "head -c 1000000 /dev/zero >/tmp/file && rm /tmp/file && echo is there",
        row={"setup": ["head -c 60000000 /dev/zero >big", *([] if has_df else [hide])]},
        memory_mb=160,
        diff=True,
    )
    assert lab.run().code == 0
    (record,) = lab.lines()
    assert "is there" in next(turn["value"] for turn in record["conversations"] if turn["from"] == "tool")
    why = (
        "the workspace would have taken over half of the room for temporary files at its start"
        if has_df
        else "the workspace could not be copied at its start"
    )
    assert record["metadata"]["artifacts_left_out"] == f"the diff: {why}"


def applied(patch: bytes, files: dict[str, bytes], folder: Path, *options: str) -> dict[str, bytes]:
    """What `git apply` makes of some files."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    subprocess.run(["git", "apply", *options, "-"], cwd=folder, input=patch, check=True)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_too_much_is_left_out_and_said_so(tmp_path: Path) -> None:
    lab = lab_with(
        tmp_path,
        "for i in $(seq 205); do echo $i >$(printf %03d.txt $i); done",
        f"head -c {bounds.MOST_BYTES + 1} /dev/zero >000.txt",
        artifacts=["*.txt"],
    )
    assert lab.run().code == 0
    files = kept(lab)
    assert len(files) == bounds.MOST_FILES
    assert "workspace/000.txt" not in files
    said = lab.lines()[0]["metadata"]["artifacts_left_out"]
    assert said == "unreadable, or over 16 MiB in all; 5 x over 200 files"


def test_a_name_that_is_too_long_here_is_left_out_and_stops_no_run(tmp_path: Path) -> None:
    """Bytes that are no text take four here; a path may be as long in the sandbox as here without its run."""
    lab = lab_with(
        tmp_path,
        "echo a >a; echo b >$(printf '\\377%.0s' $(seq 100)); n=$(printf 'd%.0s' $(seq 250)); n=$n/$n/$n/$n;"
        " mkdir -p $n/$n/$n && echo c >$n/c && echo d >$n/$n/$n/d",
        artifacts=["**/*"],
        diff=True,
    )
    assert lab.run().code == 0
    files = kept(lab)
    assert set(files) == {"workspace/a", "workspace.diff"}
    assert lab.lines()[0]["metadata"]["artifacts_left_out"] == "3 x of too long a name"
    lab.assert_sound()


def test_a_rollout_that_runs_out_of_time_keeps_its_artifacts(tmp_path: Path) -> None:
    lab = lab_with(tmp_path, "echo a >a.txt", "sleep 60", artifacts=["*.txt"])
    lab.spec["agent"] = {"prompt_timeout_s": 3}
    assert lab.run().code == 0
    assert lab.lines()[0]["partial"] is True
    assert kept(lab) == {"workspace/a.txt": b"a\n"}


def test_a_model_cannot_name_files_outside_its_workspace(tmp_path: Path) -> None:
    lab = lab_with(
        tmp_path,
        "mkdir -p d; echo x >/tmp/out.txt; ln -s /tmp d/link; ln -s /etc e; echo y >'d/..txt'",
        artifacts=["**/*", "../tmp/*", "/etc/*"],
    )
    assert lab.run().code == 0
    assert kept(lab) == {"workspace/d/..txt": b"y\n"}


def test_equal_work_has_equal_manifests_and_artifacts_go_with_a_merge(tmp_path: Path) -> None:
    labs = [lab_with(tmp_path / name, "echo a >a.txt", artifacts=["*.txt"], diff=True) for name in "ab"]
    for lab in labs:
        assert lab.run().code == 0
    a, b = labs
    assert (a.run_dir / "manifest.jsonl").read_bytes() == (b.run_dir / "manifest.jsonl").read_bytes()
    out = tmp_path / "merged"
    assert a.call("merge", str(a.run_dir), str(b.run_dir), "-o", str(out)).code == 0
    assert a.call("verify", str(out)).code == 0
    chosen = tmp_path / "chosen"
    assert a.call("select", str(out), "-o", str(chosen), "--status", "completed").code == 0
    names = [
        path.relative_to(chosen).as_posix() for path in chosen.glob("artifacts/*/**/*") if path.is_file()
    ]
    assert sorted(names) == a.lines()[0]["metadata"]["artifacts"]


def test_verify_misses_an_artifact_that_was_changed_or_removed(tmp_path: Path) -> None:
    lab = lab_with(tmp_path, "echo a >a.txt; echo b >b.txt", artifacts=["*.txt"])
    assert lab.run().code == 0
    a, b = sorted(path for path in lab.run_dir.glob("artifacts/*/**/*") if path.is_file())
    a.write_text("other\n")
    found = lab.call("verify", str(lab.run_dir))
    assert (found.code, "its files are not those that were kept" in found.out + found.err) == (1, True)
    b.unlink()
    found = lab.call("verify", str(lab.run_dir))
    assert found.code == 1
    assert f"{b}: missing; a trajectory names it" in found.out + found.err


def test_a_glob_that_is_none_is_refused_before_the_run(tmp_path: Path) -> None:
    lab = lab_with(tmp_path, "ls", artifacts=["{a,b}" * 8])
    result = lab.run()
    assert result.code == 2
    assert "sandbox.artifacts: the glob" in result.err
    assert not lab.run_dir.exists()
