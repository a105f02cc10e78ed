"""Whole runs as a user calls them: a scripted model, the local backend, real files."""

from __future__ import annotations

import base64
import json
import re
import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.calling import Cli

TAPE = """
conversations:
  - match: "[fails]"
    turns: [{error: provider_error}]
  - match: "[partial]"
    turns: [{reasoning: r, text: "cut", finish_reason: length}]
  - match: "[mute]"
    turns: [{text: no reasoning here}]
  - turns:
      - {reasoning: I greet., calls: [{tool: terminal, arguments: {command: echo hello}}]}
      - {reasoning: Done., text: greeted}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "tape.yaml").write_text(TAPE)
    write_rows(tmp_path, "one", "two", "three")
    path = tmp_path / "spec.yaml"
    path.write_text(
        "run_name: demo\ndataset: {path: rows.jsonl}\nbatch_size: 2\ndistribution: {terminal: 100}\n"
        "model: {name: scripted, script: tape.yaml}\nsandbox: {backend: local}\n"
    )
    return path


def write_rows(folder: Path, *prompts: str) -> None:
    (folder / "rows.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))


def statistics(tmp_path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((tmp_path / "data/demo/statistics.json").read_text())
    return content


def test_a_bare_spec_is_run_and_the_summary_says_where_everything_is(
    cli: Cli, spec: Path, tmp_path: Path
) -> None:
    done = cli(spec.name)
    assert done.returncode == 0, done.stderr
    assert re.search(r"completed +3 ", done.stdout)
    assert "terminal" in done.stdout
    assert "100.0 %" in done.stdout
    assert "data/demo/trajectories.jsonl" in done.stdout
    assert "hermes-run spec.yaml --run-name demo_real --set model.script=null" in done.stdout
    assert "3/3 (100 %)" in done.stderr
    assert len((tmp_path / "data/demo/trajectories.jsonl").read_text().splitlines()) == 3


def test_the_same_command_again_has_nothing_to_do(cli: Cli, spec: Path, tmp_path: Path) -> None:
    cli("run", spec.name)
    before = (tmp_path / "data/demo/trajectories.jsonl").read_bytes()
    done = cli("run", spec.name)
    assert done.returncode == 0
    assert "3 planned, 3 done, 0 to run" in done.stderr
    assert (tmp_path / "data/demo/trajectories.jsonl").read_bytes() == before


def test_json_is_the_statistics_and_nothing_else_is_on_stdout(cli: Cli, spec: Path, tmp_path: Path) -> None:
    done = cli(spec.name, "--json")
    assert json.loads(done.stdout) == statistics(tmp_path)


def test_quiet_shows_no_progress(cli: Cli, spec: Path) -> None:
    done = cli(spec.name, "-q")
    assert "/3" not in done.stderr
    assert re.search(r"completed +3 ", done.stdout)


def test_commands_on_the_host_are_warned_of_on_the_screen_and_in_the_log(
    cli: Cli, spec: Path, tmp_path: Path
) -> None:
    done = cli(spec.name, "-q")
    assert re.search(
        r"^warning: sandbox.backend is local: .* as you on this machine", done.stderr, re.MULTILINE
    )
    assert "network" in done.stderr
    assert "sandbox.backend is local" in (tmp_path / "data/demo/run.log").read_text()
    assert "sandbox.backend is local" not in cli(spec.name, "-q").stderr  # nothing was left to run


def test_each_warning_is_told_once(cli: Cli, spec: Path) -> None:
    spec.write_text(spec.read_text() + "reasoning: {disabled: true}\n")
    for words in ((spec.name, "--dry-run"), ("validate", spec.name)):
        told = cli(*words).stderr.splitlines()
        assert len([line for line in told if "reasoning is switched off" in line]) == 1


def test_failures_end_with_1_and_the_command_that_tries_again(cli: Cli, spec: Path, tmp_path: Path) -> None:
    write_rows(tmp_path, "one", "[fails]", "[partial]", "[mute]")
    done = cli(spec.name)
    assert done.returncode == 1
    for words in ("provider_error", "no_reasoning", "truncated", "try again", "--retry partial"):
        assert words in done.stdout
    assert statistics(tmp_path)["outcomes"]["failed"] == 1
    assert cli(spec.name, "-q").returncode == 1
    (tmp_path / "tape.yaml").write_text(
        TAPE.replace("{error: provider_error}", "{reasoning: r, text: works}")
    )
    assert cli(spec.name, "-q", "--accept-spec-change").returncode == 0


def test_old_commands_need_no_spec(cli: Cli, spec: Path) -> None:
    done = cli(
        "--dataset_file=rows.jsonl",
        "--batch_size=2",
        "--run_name",
        "old",
        "--distribution=terminal_only",
        "--num_workers=2",
        "--model=scripted",
        "--verbose",
        "--set",
        "model.script=tape.yaml",
        "--set",
        "sandbox.backend=local",
    )
    assert spec.exists()
    assert done.returncode == 0, done.stderr
    assert "data/old/trajectories.jsonl" in done.stdout


def test_a_key_on_the_command_line_is_warned_of_and_written_nowhere(
    cli: Cli, spec: Path, tmp_path: Path
) -> None:
    key = "sk-or-v1-0123456789abcdef"
    write_rows(tmp_path, f"say {key[:8]}", "two")
    done = cli(spec.name, f"--api_key={key}", "-v")
    assert done.returncode == 0
    assert "warning: --api-key: command lines are visible to other users" in done.stderr
    written = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    for form in (key.encode(), base64.b64encode(key.encode()), key.encode().hex().encode()):
        assert form not in written
        assert form.decode() not in done.stdout + done.stderr


def test_verbose_previews_are_cut_as_the_spec_says(cli: Cli, spec: Path, tmp_path: Path) -> None:
    write_rows(tmp_path, "a prompt that is rather long")
    cli(spec.name, "--verbose", "--log-prefix-chars", "8")
    log = (tmp_path / "data/demo/run.log").read_text()
    assert "user | a prompt (+20 characters)" in log
    assert "rather long" not in log


def test_the_plan_is_told_without_running(cli: Cli, spec: Path, tmp_path: Path) -> None:
    done = cli(spec.name, "--dry-run", "--json")
    plan = json.loads(done.stdout)
    assert {"rows", "invalid", "planned", "done", "pending", "toolsets", "images", "forecast"} <= plan.keys()
    assert (plan["rows"], plan["pending"], plan["toolsets"]) == (3, 3, {"terminal": 3})
    told = cli(spec.name, "--dry-run").stdout
    assert "pending" in told
    assert re.search(r"^backends\n  local$", told, re.MULTILINE)
    assert not (tmp_path / "data").exists()


def test_the_effective_spec_is_printed_as_yaml(cli: Cli, spec: Path) -> None:
    done = cli(spec.name, "--print-config", "--workers", "7")
    shown = yaml.safe_load(done.stdout)
    assert (shown["workers"], shown["agent"]["max_turns"]) == (7, 10)
    assert json.loads(cli(spec.name, "--print-config", "--json").stdout)["run_name"] == "demo"


def test_a_finished_run_can_be_looked_at(cli: Cli, spec: Path, tmp_path: Path) -> None:
    cli(spec.name, "-q")
    run = "data/demo"
    status = json.loads(cli("status", run, "--json").stdout)
    assert status["outcomes"]["completed"] == 3
    assert (status["pending"], status["outside_plan"], status["running"]) == (0, 0, False)
    assert "completed" in cli("status", run).stdout
    assert json.loads(cli("stats", run, "--json").stdout) == statistics(tmp_path)
    assert re.search(r"completed +3 ", cli("stats", run).stdout)
    written = (tmp_path / run / "statistics.json").read_text()
    (tmp_path / run / "statistics.json").write_text(written.replace('"outcomes": {', '"outcomes": 7, "x": {'))
    odd = cli("stats", run)
    assert (odd.returncode, "running the spec again writes it anew" in odd.stderr) == (2, True)
    (tmp_path / run / "statistics.json").write_text(written)
    of_a_file = cli("stats", f"{run}/manifest.jsonl")
    assert of_a_file.returncode == 2
    assert "name the run directory" in of_a_file.stderr
    verified = cli("verify", run)
    assert (verified.returncode, verified.stdout) == (0, "data/demo is sound\n")
    assert json.loads(cli("verify", run, "--json").stdout) == {"sound": True, "damages": []}
    assert cli("repair", run).returncode == 0


def test_damage_ends_with_1_and_names_the_cure(cli: Cli, spec: Path, tmp_path: Path) -> None:
    cli(spec.name, "-q")
    batch = tmp_path / "data/demo/batch_0.jsonl"
    batch.write_bytes(batch.read_bytes().replace(b"hello", b"hallo", 1))
    done = cli("verify", "data/demo")
    assert done.returncode == 1
    assert "batch_0.jsonl" in done.stderr
    assert "hermes-run repair data/demo" in done.stderr


def test_a_missing_journal_is_rebuilt(cli: Cli, spec: Path, tmp_path: Path) -> None:
    cli(spec.name, "-q")
    (tmp_path / "data/demo/journal.jsonl").unlink()
    assert cli("verify", "data/demo").returncode == 1
    refused = cli(spec.name)
    assert refused.returncode == 2
    assert "hermes-run repair data/demo" in refused.stderr
    assert cli("repair", "data/demo").returncode == 0
    assert cli("verify", "data/demo").returncode == 0


def test_two_runs_are_compared(cli: Cli, spec: Path, tmp_path: Path) -> None:
    cli(spec.name, "-q")
    cli(spec.name, "-q", "--run-name", "again")
    same = cli("diff", "data/demo", "data/again", "--json")
    found = json.loads(same.stdout)
    assert (same.returncode, found["same"], found["changed"]) == (0, 3, [])
    assert set(found) >= {"only_a", "only_b", "same", "changed", "spec"}
    write_rows(tmp_path, "one", "two", "four")
    cli(spec.name, "-q", "--run-name", "other")
    differs = cli("diff", "data/demo/manifest.jsonl", "data/other")
    assert differs.returncode == 1
    assert "2 the same, 0 changed, 1 only in data/demo/manifest.jsonl, 1 only in data/other" in differs.stdout


def test_nothing_is_cleaned_where_nothing_was_left(cli: Cli, spec: Path) -> None:
    cli(spec.name, "-q")
    assert json.loads(cli("clean", "--run", "demo", "--json").stdout)["removed"] == []


def test_validate_tells_all_mistakes_of_all_files(cli: Cli, spec: Path, tmp_path: Path) -> None:
    assert cli("validate", spec.name).stdout == "spec.yaml: no mistakes, 3 rows, 3 rollouts\n"
    (tmp_path / "rows.jsonl").write_text('{"prompt": "p"}\n{"promt": "q"}\nnot json\n')
    (tmp_path / "other.yaml").write_text("run_name: x\nbatch_sze: 3\nworkers: many\n")
    done = cli("validate", spec.name, "other.yaml")
    assert done.returncode == 2
    assert done.stdout == ""
    for words in (
        "rows.jsonl:2:",
        "rows.jsonl:3:",
        "other.yaml:2:1",
        'did you mean "batch_size"',
        "other.yaml:3:",
    ):
        assert words in done.stderr
    listed = json.loads(cli("validate", spec.name, "other.yaml", "--json").stdout)
    assert listed["valid"] is False
    assert len(listed["mistakes"]["spec.yaml"]) == 2


def test_validate_of_a_small_spec_costs_less_than_two_fifths_of_a_second_of_cpu(cli: Cli, spec: Path) -> None:
    def cpu_s() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        cli("validate", spec.name)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)

    assert min(cpu_s() for _ in range(4)) < 0.4


def test_validate_reads_the_tape_too(cli: Cli, spec: Path, tmp_path: Path) -> None:
    (tmp_path / "tape.yaml").write_text(TAPE.replace("turns:", "trns:", 1))
    done = cli("validate", spec.name)
    assert done.returncode == 2
    assert "tape.yaml:" in done.stderr


def test_bad_rows_that_are_skipped_are_no_mistake(cli: Cli, spec: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "p"}\n{"promt": "q"}\n')
    done = cli("validate", spec.name, "--set", "dataset.on_bad_row=skip")
    assert done.returncode == 0
    assert "rows.jsonl:2:" in done.stderr


def test_an_unset_key_variable_stops_before_anything_is_run(cli: Cli, spec: Path, tmp_path: Path) -> None:
    done = cli(spec.name, "--set", "model={name: a/b, script: null}", env={"OPENROUTER_API_KEY": ""})
    assert done.returncode == 4
    assert "OPENROUTER_API_KEY" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


def test_what_cannot_be_continued_is_refused_with_the_cure(cli: Cli, spec: Path) -> None:
    cli(spec.name, "-q")
    for words, complaint in (
        (["--no-resume"], "--fresh"),
        (["--max-turns", "3"], "agent.max_turns"),
        (["--distribution", "default"], "--without"),
        (["--set", "checks=[x.py]"], "not available yet"),
        (["--run-name", "../up"], "run_name"),
    ):
        done = cli(spec.name, *words)
        assert done.returncode == 2, words
        assert complaint in done.stderr
        assert "Traceback" not in done.stderr


def test_fresh_sets_the_old_run_aside(cli: Cli, spec: Path, tmp_path: Path) -> None:
    cli(spec.name, "-q")
    done = cli(spec.name, "-q", "--fresh")
    assert done.returncode == 0
    assert "the old run directory is now" in done.stderr
    assert len(list((tmp_path / "data").iterdir())) == 2


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_reason_to_stop(closed: str, spec: Path, tmp_path: Path) -> None:
    command = f'exec "{sys.executable}" -m hermes_run {spec.name} {closed}'
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, check=False, timeout=60)
    assert done.returncode == 0
    assert statistics(tmp_path)["outcomes"]["completed"] == 3


def test_a_reader_of_the_progress_that_goes_away_does_not_end_the_run(spec: Path, tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m hermes_run {spec.name} 2>&1 >/dev/null | true; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, check=False, timeout=60)
    assert done.returncode == 0
    assert statistics(tmp_path)["outcomes"]["completed"] == 3
