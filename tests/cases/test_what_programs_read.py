"""`--json`, `-q`, `--print-config`, `--dry-run`: what other programs read. Contract, section 1."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.flow.replies import turns
from tests.servers import fails, says

if TYPE_CHECKING:
    from tests.flow.lab import Lab, Result
    from tests.servers import ModelServer

pytestmark = pytest.mark.slow

STATISTICS = {
    "run_name",
    "distribution",
    "total_prompts",
    "total_batches",
    "batch_size",
    "model",
    "completed_at",
    "duration_seconds",
    "tool_statistics",
    "reasoning_statistics",
    "outcomes",
    "discarded",
    "failed",
    "tokens",
    "cost",
    "spent",
    "turns",
}
OUTCOMES = {"completed", "partial", "discarded", "failed", "invalid"}
PLAN = {"rows", "invalid", "planned", "done", "pending", "toolsets", "images", "forecast"}


@pytest.fixture
def served(lab: Lab, server: ModelServer) -> Lab:
    lab.use_server(server.url)
    server.respond = turns(2)
    lab.write_prompts("a", "b", "c")
    return lab


def one_object(result: Result) -> dict[str, Any]:
    """stdout, which is one JSON object and nothing else."""
    value, end = json.JSONDecoder().raw_decode(result.out)
    assert result.out[end:].strip() == ""
    assert isinstance(value, dict)
    return value


def test_json_is_the_statistics_however_a_run_ends(served: Lab, server: ModelServer) -> None:
    for words in (("--json",), ("--json", "-q"), ("--json", "-v")):
        result = served.run(*words)
        assert result.code == 0
        assert one_object(result) == served.statistics()
        assert served.statistics().keys() >= STATISTICS
    served.write_prompts("a", "b", "c", "[fails]")
    server.respond = lambda _: says("x", finish_reason="content_filter")
    failed = served.run("--json")
    assert failed.code == 1
    assert one_object(failed)["failed"] == {"filtered": 1}
    server.respond = lambda _: fails(401)
    stopped = served.run("--json")
    assert stopped.code == 4
    assert one_object(stopped)["outcomes"]["failed"] == 1
    assert "401" in stopped.err


def test_a_retry_that_was_stopped_is_no_run_that_ended(served: Lab, server: ModelServer) -> None:
    """All failed rows have an outcome, so none is pending: the reason of the stop is told all the same."""
    server.respond = lambda _: says("x", finish_reason="content_filter")
    assert served.run("-q").code == 1
    server.respond = lambda _: fails(401)
    stopped = served.run("-q")
    assert stopped.code == 4
    assert "401" in stopped.err
    assert served.statistics()["outcomes"] | {"failed": 3, "pending": 0} == served.statistics()["outcomes"]
    server.respond = turns(2)
    assert served.run("-q").code == 0


def test_a_run_directory_without_an_outcome_is_no_reason_to_refuse(served: Lab, server: ModelServer) -> None:
    server.respond = lambda _: fails(401)
    assert served.run("-q", "--no-resume").code == 4
    server.respond = turns(2)
    assert served.run("-q", "--no-resume").code == 0
    refused = served.run("-q", "--no-resume")
    assert refused.code == 2
    assert "--fresh" in refused.err


def test_json_of_what_was_refused_is_nothing(served: Lab) -> None:
    for words in (("--workrs", "3"), ("--set", "workrs=3"), ("--retry", "nothing")):
        result = served.run("--json", *words)
        assert (result.code, result.out) == (2, "")
        assert result.err


def test_json_of_an_interrupted_run_is_one_object_too(lab: Lab, server: ModelServer) -> None:
    lab.use_server(server.url)
    server.respond = turns(2, delay_s=0.3)
    lab.write_prompts(*(f"[{n}]" for n in range(12)))
    child = lab.start("--json")
    while len(server.requests) < 4:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert json.loads(out)["outcomes"]["pending"] == 8
    assert json.loads(out) == lab.statistics()


def test_statistics_have_the_fields_of_the_contract(served: Lab) -> None:
    assert served.run("-q").code == 0
    found = served.statistics()
    assert found["outcomes"].keys() == OUTCOMES | {"pending"}
    assert found["tool_statistics"]["terminal"] == {
        "count": 3,
        "success": 3,
        "failure": 0,
        "success_rate": 100.0,
        "failure_rate": 0.0,
    }
    assert found["reasoning_statistics"] == {
        "total_assistant_turns": 6,
        "turns_with_reasoning": 6,
        "turns_without_reasoning": 0,
        "coverage": 100.0,
    }
    assert (found["total_prompts"], found["tokens"]["total_tokens"]) == (3, 90)
    assert found["turns"]["total"] == 6


def test_quiet_says_no_progress_and_the_summary_still(served: Lab) -> None:
    result = served.run("-q")
    assert result.err == ""
    assert "trajectories.jsonl" in result.out


def test_the_plan_counts_what_is_done_and_what_is_pending(served: Lab, server: ModelServer) -> None:
    plan = one_object(served.run("--dry-run", "--json"))
    assert plan.keys() >= PLAN
    assert not served.run_dir.exists()
    assert (plan["rows"], plan["planned"], plan["done"], plan["pending"]) == (3, 3, 0, 3)
    assert served.run("-q").code == 0
    asked = len(server.requests)
    served.write_rows([{"prompt": "a"}, {"prompt": "new"}, '{"prompt": 1}'])
    served.spec |= {"samples": 2, "dataset": {"path": "data.jsonl", "on_bad_row": "skip"}}
    before = {path.name: path.read_bytes() for path in served.run_dir.iterdir() if path.is_file()}
    plan = one_object(served.run("--dry-run", "--json"))
    assert {name: plan[name] for name in ("rows", "invalid", "planned", "done", "pending")} == {
        "rows": 3,
        "invalid": 1,
        "planned": 4,
        "done": 1,
        "pending": 3,
    }
    assert plan["toolsets"] == {"terminal": 4}
    assert plan["images"] == {}
    assert {path.name: path.read_bytes() for path in served.run_dir.iterdir() if path.is_file()} == before
    assert len(server.requests) == asked
    assert one_object(served.run("--dry-run", "--json", "--fresh"))["done"] == 0
    assert served.run_dir.exists()


def test_the_histogram_of_a_plan_is_what_the_run_draws(served: Lab) -> None:
    served.spec |= {"distribution": {"terminal": 50, "file": 50, "todo": 10}, "seed": 5}
    served.write_prompts(*(f"row {n}" for n in range(12)))
    drawn = one_object(served.run("--dry-run", "--json"))["toolsets"]
    assert served.run("-q").code == 0
    used = [name for entry in served.lines("manifest.jsonl") for name in entry["toolsets"]]
    assert drawn == {name: used.count(name) for name in ("terminal", "file", "todo")}


def test_the_effective_spec_runs_as_it_is_and_resumes_the_same_run(served: Lab, server: ModelServer) -> None:
    shown = served.run("--print-config", "--set", "agent.max_turns=4", "--workers", "2")
    assert shown.code == 0
    spec = yaml.safe_load(shown.out)
    assert (spec["workers"], spec["agent"]["max_turns"], spec["filters"]["require_reasoning"]) == (2, 4, True)
    (served.folder / "effective.yaml").write_text(shown.out)
    assert served.call("effective.yaml", "-q").code == 0
    asked = len(server.requests)
    assert served.run("-q", "--set", "agent.max_turns=4").code == 0
    assert served.call(str(served.run_dir / "spec.yaml"), "-q").code == 0
    assert len(server.requests) == asked
    again = served.call("effective.yaml", "--print-config")
    assert again.out == shown.out


def test_status_of_a_run_of_a_manifest_and_of_what_is_neither(served: Lab) -> None:
    assert served.run("-q").code == 0
    served.write_prompts("a", "d")
    assert served.run("-q", "--set", "dataset.max_samples=1").code == 0
    found = one_object(served.call("status", str(served.run_dir), "--json"))
    assert found.keys() == {"outcomes", "pending", "outside_plan", "running"}
    assert found["outcomes"].keys() == OUTCOMES
    assert (found["outcomes"]["completed"], found["pending"], found["outside_plan"]) == (1, 0, 2)
    assert found["running"] is False
    manifest = one_object(served.call("status", str(served.run_dir / "manifest.jsonl"), "--json"))
    assert manifest["outcomes"]["completed"] == 3
    (served.folder / "empty").mkdir()
    for command in ("status", "stats", "verify", "repair"):
        for place in ("nowhere", "empty"):
            result = served.call(command, place, "--json")
            assert (result.code, result.out) == (2, "")
            assert place in result.err


def test_status_while_it_runs(lab: Lab, server: ModelServer) -> None:
    lab.use_server(server.url)
    server.respond = lambda r: says("x", reasoning="r", delay_s=0 if "[0]" in r.prompt else 60)
    lab.write_prompts("[0]", "[1]", "[2]")
    child = lab.start("-q")
    journal = lab.run_dir / "journal.jsonl"
    while not journal.exists() or not journal.stat().st_size:
        assert child.poll() is None
        time.sleep(0.02)
    found = lab.call("status", str(lab.run_dir), "--json").json()
    assert (found["running"], found["outcomes"]["completed"], found["pending"]) == (True, 1, 2)
    assert lab.call("verify", str(lab.run_dir)).code == 0
    child.kill()
    child.communicate()
    assert lab.call("status", str(lab.run_dir), "--json").json()["running"] is False


def test_diff_tells_what_differs_and_work_alone_changes_nothing(served: Lab, server: ModelServer) -> None:
    assert served.run("-q").code == 0
    assert served.run("-q", "--run-name", "work", "--set", "agent.max_turns=9").code == 0
    a, b, c = (str(served.run_dir.with_name(name)) for name in ("r", "work", "c"))
    same = served.call("diff", a, b, "--json")
    found = one_object(same)
    assert same.code == 0
    assert found.keys() >= {"only_a", "only_b", "same", "changed", "spec"}
    assert (found["same"], found["changed"], found["only_a"], found["only_b"]) == (3, [], [], [])
    assert found["spec"] == {"run_name": ["r", "work"], "agent.max_turns": [10, 9]}

    served.write_prompts("b", "c", "d")
    server.respond = lambda r: turns(2)(r) if r.prompt == "b" else says("other", reasoning="r")
    assert served.run("-q", "--run-name", "c").code == 0
    differs = served.call("diff", a, c, "--json")
    found = one_object(differs)
    assert differs.code == 1
    assert (found["same"], len(found["only_a"]), len(found["only_b"]), len(found["changed"])) == (1, 1, 1, 1)
    (changed,) = found["changed"]
    assert changed.keys() == {"key", "fields"}
    assert changed["fields"]["turns"] == [2, 1]
    assert changed["fields"].keys() >= {"hash", "turns", "api_calls", "usage"}
    assert "work" not in changed["fields"]
    mirrored = one_object(served.call("diff", c, a, "--json"))
    assert mirrored["only_a"] == found["only_b"]
    assert mirrored["changed"][0]["fields"]["turns"] == [1, 2]
    files = one_object(served.call("diff", f"{a}/manifest.jsonl", f"{c}/manifest.jsonl", "--json"))
    assert {name: files[name] for name in ("only_a", "only_b", "same", "changed")} == {
        name: found[name] for name in ("only_a", "only_b", "same", "changed")
    }


def test_verify_and_repair_as_json(served: Lab) -> None:
    assert served.run("-q").code == 0
    assert one_object(served.call("verify", str(served.run_dir), "--json"))["damages"] == []
    path = served.run_dir / "trajectories.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    damaged = served.call("verify", str(served.run_dir), "--json")
    assert damaged.code == 1
    assert len(one_object(damaged)["damages"]) == 1
    one_object(served.call("repair", str(served.run_dir), "--json"))
    assert served.call("verify", str(served.run_dir)).code == 0
    assert served.run("-q").code == 0
    served.assert_sound()
