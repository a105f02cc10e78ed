"""`hermes-run convert`: an old command line in, a spec out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.calling import Cli

OLD = ("--dataset_file=data.jsonl", "--batch_size=10", "--run_name=my_run")


@pytest.mark.parametrize("front", [("--",), ("--", "python", "batch_runner.py"), ()])
def test_the_spec_goes_to_stdout_and_nothing_else(cli: Cli, front: tuple[str, ...]) -> None:
    done = cli("convert", *front, *OLD, "--num_workers=4", "--resume")
    assert (done.returncode, done.stderr) == (0, "")
    assert yaml.safe_load(done.stdout) == {
        "run_name": "my_run",
        "dataset": {"path": "data.jsonl"},
        "batch_size": 10,
        "workers": 4,
    }


def test_what_has_no_equal_is_told_on_stderr_too(cli: Cli) -> None:
    done = cli("convert", "--json", "--", *OLD, "--shiny=1")
    assert done.returncode == 0
    assert done.stderr == "warning: without an equal here: --shiny=1\n"
    found = yaml.safe_load(done.stdout)
    assert found["spec"]["batch_size"] == 10
    assert found["no_equal"] == ["--shiny=1"]


def test_a_command_line_without_a_run_is_refused_by_what_it_lacks(cli: Cli) -> None:
    done = cli("convert", "--", "--batch_size=10")
    assert (done.returncode, done.stdout) == (2, "")
    assert "lacks --dataset-file, --run-name" in done.stderr
    assert cli("convert").returncode == 2


def test_a_value_that_no_run_would_take_is_refused_by_its_option(cli: Cli, tmp_path: Path) -> None:
    wrong = ("--batch_size=0", "--provider_sort=speed", "--reasoning_effort=hihg", "--run_name=../x")
    done = cli("convert", "-o", "new.yaml", "--", "--dataset_file=d.jsonl", *wrong, "--batch_size=0")
    assert (done.returncode, done.stdout) == (2, "")
    for option in ("--batch-size", "--provider-sort", "--reasoning-effort", "--run-name"):
        assert option in done.stderr
    assert 'did you mean "high"' in done.stderr
    assert not (tmp_path / "new.yaml").exists()


def test_a_mistyped_option_is_told_where_one_is_lacking(cli: Cli) -> None:
    done = cli("convert", "--", "--dataset_fil=data.jsonl", *OLD[1:])
    assert done.returncode == 2
    assert 'not known: --dataset_fil=data.jsonl; did you mean "dataset_file"' in done.stderr


def test_the_list_of_distributions_has_a_command_of_its_own(cli: Cli) -> None:
    done = cli("convert", "--", "python", "batch_runner.py", "--list_distributions")
    assert done.returncode == 0
    assert "hermes-run distributions" in done.stdout


def test_help_is_its_own(cli: Cli) -> None:
    assert "convert [-o FILE] -- [python batch_runner.py]" in cli("convert", "--help").stdout


@pytest.mark.parametrize("words", [("-o", "{}", "--"), ("-o", "{}"), ("--out={}",)])
def test_the_spec_can_go_into_a_file_that_is_new(cli: Cli, tmp_path: Path, words: tuple[str, ...]) -> None:
    out = tmp_path / "new.yaml"
    command = ("convert", *(word.format(out) for word in words), *OLD)
    done = cli(*command)
    assert (done.returncode, done.stderr) == (0, "")
    written = out.read_bytes()
    assert yaml.safe_load(written)["run_name"] == "my_run"
    again = cli(*command)
    assert again.returncode == 2
    assert "new.yaml: exists already" in again.stderr
    assert out.read_bytes() == written


def test_in_a_file_elsewhere_relative_paths_still_name_the_same_files(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    odd = ("--prefill_messages_file=/abs/p.json", "--distribution=mine/d.yaml")
    done = cli("convert", "-o", "specs/new.yaml", "--", *OLD, *odd)
    assert (done.returncode, done.stderr) == (0, "")
    spec = yaml.safe_load((tmp_path / "specs/new.yaml").read_text())
    assert spec["dataset"]["path"] == "../data.jsonl"
    assert spec["agent"]["prefill_messages_file"] == "/abs/p.json"
    assert spec["distribution"] == "../mine/d.yaml"
    named = cli("convert", "--json", "-o", "specs/named.json", "--", *OLD, "--distribution=image_gen")
    assert (named.returncode, named.stderr) == (0, "")
    assert yaml.safe_load((tmp_path / "specs/named.json").read_text())["spec"]["distribution"] == "image_gen"


def test_a_folder_that_is_not_there_is_told_by_its_name(cli: Cli) -> None:
    done = cli("convert", "-o", "nowhere/new.yaml", "--", *OLD)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hermes-run: nowhere/new.yaml: there is no folder nowhere\n"
