from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hermes_run import __version__
from hermes_run.cli.main import COMMANDS
from hermes_run.core.registry import TOOLS

if TYPE_CHECKING:
    from tests.cli.calling import Cli


def test_alone_it_says_how_to_call_it(cli: Cli) -> None:
    done = cli()
    assert done.returncode == 2
    assert done.stdout == ""
    assert "hermes-run SPEC.yaml" in done.stderr
    assert all(name in done.stderr for name, command in COMMANDS.items() if command.module)


def test_help_goes_to_stdout(cli: Cli) -> None:
    done = cli("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "hermes-run COMMAND" in done.stdout


def test_the_version_is_told(cli: Cli) -> None:
    assert cli("--version").stdout == f"hermes-run {__version__}\n"


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if command.module])
def test_every_command_has_help(name: str, cli: Cli) -> None:
    done = cli(name, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("usage: hermes-run")


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if not command.module])
def test_a_command_of_a_later_version_is_refused_by_name(name: str, cli: Cli) -> None:
    done = cli(name, "anything", "--strange")
    assert done.returncode == 2
    assert done.stderr.startswith(f'hermes-run: "{name}" is not available yet in this version')


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["vaildate", "a.yaml"], 'no command and no spec file "vaildate"; did you mean "validate"'),
        (["runs/missing.yaml"], "missing.yaml"),
        (["a.yaml", "--wrokers", "3"], 'there is no option "--wrokers"; did you mean "--workers"'),
        (["a.yaml", "b.yaml"], 'unexpected argument "b.yaml"'),
        (["a.yaml", "--workers"], "--workers: expected one argument"),
        (["status"], "RUN"),
        (["status", "data/none"], "there is no run directory or manifest file data/none"),
        (["status", "a.yaml"], "is a spec; RUN is a run directory"),
        (["schema", "run-spce"], 'did you mean "run-spec"'),
        (["distributions", "sience"], 'did you mean "science"'),
        (["a.yaml", "--retry", "partail"], 'did you mean "partial"'),
        (["a.yaml", "--shard", "3/2"], "--shard: K goes from 1 to N"),
        (["a.yaml", "--shard", "half"], '"half" is no part; it takes K/N'),
        (["--dataset-file", "x.jsonl"], "--batch-size"),
    ],
)
def test_wrong_usage_is_told_in_a_few_lines_and_ends_with_2(
    words: list[str], complaint: str, cli: Cli
) -> None:
    done = cli(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 4


def test_a_run_that_is_named_without_its_folder_is_recognised(cli: Cli, tmp_path: object) -> None:
    os.makedirs(f"{tmp_path}/data/coding")  # noqa: PTH103
    done = cli("status", "coding")
    assert done.returncode == 2
    assert "did you mean data/coding?" in done.stderr


@pytest.mark.parametrize(
    "name", ["run-spec", "settings", "dataset-row", "manifest-entry", "trajectory", "statistics"]
)
def test_every_schema_of_the_contract_is_printed(name: str, cli: Cli) -> None:
    done = cli("schema", name)
    assert done.returncode == 0
    assert json.loads(done.stdout)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_distributions_are_told_in_the_form_of_the_contract(cli: Cli) -> None:
    found = json.loads(cli("distributions", "--json").stdout)
    assert len(found) == 17
    assert found["terminal_only"]["toolsets"] == {"terminal": 100, "file": 100}
    assert found["science"]["description"]
    assert json.loads(cli("distributions", "science", "--json").stdout) == {"science": found["science"]}


def test_the_old_option_lists_the_distributions_too(cli: Cli) -> None:
    assert cli("--list_distributions").stdout == cli("distributions").stdout
    assert "browser_only" in cli("distributions").stdout


def test_the_tools_are_told_in_the_form_of_the_contract(cli: Cli) -> None:
    tools = json.loads(cli("tools", "--json").stdout)
    assert set(tools) == set(TOOLS)
    assert tools["terminal"]["available"] is True
    assert "terminal" in tools["process"]["toolsets"]
    assert set(tools["vision_analyze"]) == {"toolsets", "available", "needs"}
    assert "terminal" in cli("tools").stdout


def test_a_reader_that_goes_away_early_is_no_error() -> None:
    reader, writer = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "hermes_run", "schema"], stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(reader)
    os.close(writer)
    _, complaint = child.communicate(timeout=60)
    assert (child.returncode, complaint) == (0, "")


def test_a_full_disk_behind_stdout_is_the_environment() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "hermes_run", "distributions"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 4
    assert "the disk is full" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_encoding_that_cannot_show_everything_is_no_error(cli: Cli) -> None:
    done = cli("run", "--help", env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
