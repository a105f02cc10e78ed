"""`reuse`: what another run has already paid for is taken over, when key and work are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.flow.lab import Lab, read_lines
from tests.flow.replies import conversations, turns
from tests.servers import says

if TYPE_CHECKING:
    from tests.servers import ModelServer


def two_runs(lab: Lab, server: ModelServer) -> Lab:
    """A finished run of a to d, and a lab for another over a to f that reuses it."""
    server.respond = turns(2)
    lab.use_server(server.url)
    lab.write_prompts("a", "b", "c", "d")
    assert lab.run("-q").code == 0
    other = Lab(lab.folder, {**lab.spec, "run_name": "second", "reuse": ["data/r"]})
    other.write_prompts("a", "b", "c", "d", "e", "f")
    return other


def test_equal_rollouts_are_taken_over_and_only_the_rest_is_run(lab: Lab, server: ModelServer) -> None:
    other = two_runs(lab, server)
    result = other.run()
    assert result.code == 0, result.err
    assert "4 rollouts were taken over from" in result.err
    assert conversations(server) == dict.fromkeys("abcdef", 1)
    assert [line["conversations"][0]["value"] for line in other.lines()] == list("abcdef")
    sources = [line["source"] for line in read_lines(other.run_dir / "journal.jsonl")]
    assert sorted(sources) == ["reused"] * 4 + ["rollout"] * 2
    assert other.statistics()["spent"]["prompt_tokens"] == 2 * 2 * 10
    assert other.statistics()["tokens"]["prompt_tokens"] == 6 * 2 * 10
    first = {entry["key"]: entry for entry in lab.lines("manifest.jsonl")}
    assert {key: entry for key, entry in other.entries().items() if key in first} == first
    other.assert_sound()
    assert other.run().code == 0
    assert sum(conversations(server).values()) == 6


def test_a_dry_run_tells_what_will_be_taken_over_and_forecasts_the_rest(
    lab: Lab, server: ModelServer
) -> None:
    other = two_runs(lab, server)
    plan = other.run("--dry-run", "--json").json()
    assert (plan["planned"], plan["done"], plan["pending"], plan["reused"]) == (6, 0, 6, 4)
    assert "of them to be taken over (reuse)  4" in other.run("--dry-run").out
    changed = other.run("--dry-run", "--json", "--set", "agent.max_turns=4").json()
    assert (changed["pending"], changed["reused"]) == (6, 0)
    assert other.run("-q").code == 0
    after = other.run("--dry-run", "--json").json()
    assert (after["pending"], after["reused"]) == (0, 0)


def test_another_work_fingerprint_is_never_taken_over(lab: Lab, server: ModelServer) -> None:
    other = two_runs(lab, server)
    other.spec["agent"] = {"max_turns": 4}
    assert other.run("-q").code == 0
    assert sum(conversations(server).values()) == 4 + 6


def test_failed_ones_are_run_and_this_run_s_filters_judge(lab: Lab, server: ModelServer) -> None:
    lab.use_server(server.url)
    lab.write_prompts("[none]", "[bad]", "[fine]")
    server.script("[none]", says("no thought"))
    server.script("[bad]", says(None))
    server.script("[fine]", says("done", reasoning="r"))
    assert lab.run("-q").code == 1
    server.script("[bad]", says("done", reasoning="r"))
    other = Lab(lab.folder, {**lab.spec, "run_name": "second", "reuse": ["data/r"]})
    other.spec["filters"] = {"require_reasoning": False}
    before = conversations(server)
    assert other.run("-q").code == 0
    assert other.statuses() == {"completed": 3}
    assert conversations(server)["[none]"] == before["[none]"]
    assert conversations(server)["[bad]"] == before["[bad]"] + 1
    other.assert_sound()


def test_a_damaged_line_is_run_again_and_a_damaged_journal_refused(lab: Lab, server: ModelServer) -> None:
    other = two_runs(lab, server)
    batch = lab.run_dir / "batch_0.jsonl"
    data = bytearray(batch.read_bytes())
    data[150] ^= 1
    batch.write_bytes(bytes(data))
    assert other.run("-q").code == 0
    assert sum(conversations(server).values()) == 7
    journal = lab.run_dir / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[300:])
    refused = other.run()
    assert refused.code == 2
    assert "hermes-run repair" in refused.err


def test_what_is_no_run_directory_is_refused_with_its_place(lab: Lab, server: ModelServer) -> None:
    other = two_runs(lab, server)
    other.spec["reuse"] = ["data/r", "data/nowhere"]
    refused = other.run()
    assert refused.code == 2
    assert "spec.yaml:" in refused.err
    assert "data/nowhere is no run directory" in refused.err


def test_a_merge_with_the_run_that_paid_counts_it_once_whichever_stands_first(
    lab: Lab, server: ModelServer
) -> None:
    other = two_runs(lab, server)
    assert other.run("-q").code == 0
    spent = []
    for out, runs in (("data/there", ("data/r", "data/second")), ("data/back", ("data/second", "data/r"))):
        merged = lab.call("merge", *runs, "-o", out)
        assert merged.code == 0, merged.err
        spent.append(lab.call("stats", out, "--json").json()["spent"])
    assert [each["prompt_tokens"] for each in spent] == [6 * 2 * 10] * 2
    side_by_side = lab.call("merge", "data/second", "data/r", "-o", "data/both", "--renumber")
    assert side_by_side.code == 0, side_by_side.err
    assert lab.call("stats", "data/both", "--json").json()["spent"] == spent[0]


def test_what_was_taken_over_and_judged_again_is_still_another_run_s_to_pay(
    lab: Lab, server: ModelServer
) -> None:
    server.respond = lambda _: says("no thought")
    lab.use_server(server.url)
    lab.write_prompts("a")
    assert lab.run("-q").code == 0
    other = Lab(lab.folder, {**lab.spec, "run_name": "second", "reuse": ["data/r"]})
    assert other.run("-q").code == 0
    other.spec["filters"] = {"require_reasoning": False}
    assert other.run("-q").code == 0
    assert other.statuses() == {"completed": 1}
    assert lab.call("select", "data/second", "--status", "completed", "-o", "data/chosen").code == 0
    assert lab.call("stats", "data/chosen", "--json").json()["spent"]["calls"] == 0
    assert lab.call("merge", "data/second", "data/r", "-o", "data/both").code == 0
    assert lab.call("stats", "data/both", "--json").json()["spent"]["calls"] == 1
