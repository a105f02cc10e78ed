"""Manifests in git: `hermes-run diff` as a difftool, `hermes-run status --lines` as a textconv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flow.lab import Lab

TAPE = {
    "conversations": [
        {"match": "bad", "turns": [{"error": "provider_error"}]},
        {"turns": [{"reasoning": "r", "text": "{{prompt}} done"}]},
    ]
}
MANIFEST = "data/r/manifest.jsonl"


@pytest.fixture
def repository(lab: Lab) -> Lab:
    """A run whose manifest is committed, and which has changed since: a row went, another came."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    lab.write_tape(TAPE)
    lab.write_prompts("a", "bad", "c")
    assert lab.run("-q").code == 1
    program = lab.folder / "bin/hermes-run"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hermes_run "$@"\n')
    program.chmod(0o755)
    git(lab, "init", "-q")
    git(lab, "config", "difftool.hermes-run.cmd", 'hermes-run diff "$LOCAL" "$REMOTE"')
    git(lab, "config", "diff.hermes-run.textconv", "hermes-run status --lines")
    (lab.folder / ".gitattributes").write_text("manifest.jsonl diff=hermes-run\n")
    git(lab, "add", ".gitattributes", MANIFEST)
    git(lab, "commit", "-q", "-m", "first")
    lab.write_prompts("a", "c", "d")
    assert lab.run("-q", "--fresh").code == 0
    return lab


def git(lab: Lab, *words: str) -> str:
    environment = lab.environment() | {
        "PATH": f"{lab.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    done = subprocess.run(
        ["git", *words], cwd=lab.folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_git_difftool_compares_a_manifest_with_the_committed_one(repository: Lab) -> None:
    text = git(repository, "difftool", "-y", "-t", "hermes-run", "HEAD", "--", MANIFEST)
    assert "2 the same,\n0 changed,\n1 only in /" in text or "2 the same, 0 changed, 1 only in " in text
    assert text.count("\n- ") == 1
    assert text.count("\n+ ") == 1


def test_git_difftool_compares_a_new_manifest_with_nothing(repository: Lab) -> None:
    shutil.copytree(repository.folder / "data/r", repository.folder / "data/other")
    git(repository, "add", "data/other/manifest.jsonl")
    text = git(
        repository, "difftool", "-y", "-t", "hermes-run", "--cached", "--", "data/other/manifest.jsonl"
    )
    assert "0 the same" in text
    assert text.count("\n+ ") == 3


def test_git_diff_shows_a_readable_line_for_each_entry(repository: Lab) -> None:
    text = git(repository, "diff", "--", MANIFEST)
    gone = [line for line in text.splitlines() if line.startswith("-") and not line.startswith("---")]
    came = [line for line in text.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert (len(gone), len(came)) == (1, 1)
    assert "failed/provider_error" in gone[0]
    assert "completed/finished" in came[0]
    assert "{" not in text


def test_git_shows_a_manifest_with_conflict_markers_too(repository: Lab) -> None:
    path = Path(repository.folder / MANIFEST)
    path.write_text("<<<<<<< ours\n" + path.read_text())
    assert "\n+<<<<<<< ours\n" in git(repository, "diff", "--", MANIFEST)


def test_a_clone_has_no_trajectories_and_no_repair_is_promised_there(repository: Lab) -> None:
    git(repository, "clone", "-q", ".", "clone")
    clone = Lab(repository.folder / "clone", dict(repository.spec))
    assert clone.call("status", "data/r", "--json").json()["pending"] is None
    told = clone.call("verify", "data/r")
    assert told.code == 1
    assert "missing, without batch files to rebuild it from (a clone has none)" in told.err
    assert "repair" not in told.err
