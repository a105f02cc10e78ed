"""`hermes-run init`: what it writes is valid, runs, and is never written over."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.servers import ModelServer, says

if TYPE_CHECKING:
    from tests.cli.calling import Cli


@pytest.mark.parametrize(
    ("words", "spec"),
    [
        ((), "run.yaml"),
        (("new/place",), "new/place/run.yaml"),
        (("a b.yml",), "a b.yml"),
        (("ü $x/it's.yaml",), "ü $x/it's.yaml"),
    ],
)
def test_the_starter_is_valid_and_says_what_comes_next(
    cli: Cli, tmp_path: Path, words: tuple[str, ...], spec: str
) -> None:
    done = cli("init", *words)
    assert (done.returncode, done.stderr) == (0, "")
    told = [shlex.split(line, comments=True) for line in done.stdout.splitlines() if "hermes-run" in line]
    assert told == [
        ["hermes-run", "validate", spec],
        ["hermes-run", spec, "--dry-run"],
        ["hermes-run", spec],
    ]
    dataset = (tmp_path / spec).parent / "prompts.jsonl"
    assert all(json.loads(line)["prompt"] for line in dataset.read_text().splitlines())
    checked = cli("validate", spec)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "3 rows" in checked.stdout
    first, second = (tmp_path / spec).read_text().splitlines()[:2]
    assert shlex.split(first.split("`")[1]) == ["hermes-run", Path(spec).name]
    name = yaml.safe_load(second)["run_name"]
    assert second.endswith(f"# its directory: data/{name}")


def test_every_commented_key_of_the_starter_is_valid_too(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    path = tmp_path / "run.yaml"
    path.write_text(re.sub(r"^( *)# ([a-z_]+: )", r"\1\2", path.read_text(), flags=re.MULTILINE))
    assert path.read_text().count("\n  system_prompt:") == 1
    checked = cli("validate", "run.yaml")
    assert checked.returncode == 0, checked.stderr


def test_nothing_is_written_over(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "mine"}\n')
    assert cli("init").returncode == 0
    before = (tmp_path / "run.yaml").read_text()
    again = cli("init")
    assert (again.returncode, "exists already" in again.stderr) == (2, True)
    assert (tmp_path / "run.yaml").read_text() == before
    assert (tmp_path / "prompts.jsonl").read_text() == '{"prompt": "mine"}\n'
    assert cli("init", "prompts.jsonl").returncode == 2
    assert cli("init", "run.yaml").returncode == 2


def test_the_only_dataset_of_the_folder_is_taken(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "1 odd.jsonl").write_text('{"prompt": "mine"}\n')
    done = cli("init", "--json")
    assert json.loads(done.stdout) == {"spec": "run.yaml", "dataset": "1 odd.jsonl", "written": ["run.yaml"]}
    assert "1 row" in cli("validate", "run.yaml").stdout


@pytest.mark.bubblewrap
def test_the_starter_runs_against_an_endpoint(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    with ModelServer() as server:
        server.respond = lambda _: says("done", reasoning="because")
        done = cli("run.yaml", "--model", "m", "--base-url", server.url, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcomes"]["completed"] == 3
    assert (tmp_path / "data/first/trajectories.jsonl").read_text().count("\n") == 3
