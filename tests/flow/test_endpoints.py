"""Whole runs against endpoints with limits, replicas, streams, and ones that are none."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.flow.replies import turns
from tests.servers import Answer, ModelServer, events, says

if TYPE_CHECKING:
    from tests.flow.lab import Lab

PAGE = Answer(body=b"<!doctype html><title>Welcome</title>", headers={"Content-Type": "text/html"})


def test_limits_of_nothing_are_refused_with_their_place(lab: Lab) -> None:
    lab.write_prompts("a")
    lab.use_server("http://127.0.0.1:9/v1")
    for key in ("requests_per_minute", "tokens_per_minute"):
        for value in (0, -1):
            lab.spec["limits"] = {key: value}
            result = lab.run()
            assert result.code == 2
            assert f"limits.{key}: must be more than 0" in result.err


def test_an_endpoint_that_answers_html_stops_the_run_and_all_stays_pending(
    lab: Lab, server: ModelServer
) -> None:
    server.respond = lambda _: PAGE
    lab.use_server(server.url)
    lab.write_prompts(*[f"[{number}]" for number in range(6)])
    result = lab.run("-q")
    assert result.code == 4
    assert "answers with a web page" in result.err
    assert "model.base_url" in result.err
    assert lab.entries() == {}


def test_requests_per_minute_hold_for_a_run_and_change_no_fingerprint(lab: Lab, server: ModelServer) -> None:
    server.respond = lambda _: says("done", reasoning="r")
    lab.use_server(server.url)
    lab.write_prompts(*[f"[{number}]" for number in range(8)])
    lab.spec["limits"] = {"requests_per_minute": 240}
    assert lab.run("-q").code == 0
    times = [request.arrived_at for request in server.requests]
    assert times[-1] - times[0] > 7 * 0.25 - 0.2
    lab.spec["limits"] = {"requests_per_minute": 600}
    lab.spec["model"] |= {"stream": True, "idle_timeout_s": 30}
    result = lab.run("-q")
    assert result.code == 0, result.err
    assert len(server.requests) == 8


@pytest.mark.slow
def test_shards_at_the_same_time_keep_to_one_rate(lab: Lab, server: ModelServer) -> None:
    server.respond = lambda _: says("done", reasoning="r")
    lab.use_server(server.url)
    lab.write_prompts(*[f"[{number}]" for number in range(12)])
    lab.spec["limits"] = {"requests_per_minute": 240}
    running = [lab.start("-q", "--shard", f"{part}/2") for part in (1, 2)]
    for each in running:
        _, err = each.communicate(timeout=120)
        assert each.returncode == 0, err
    times = sorted(request.arrived_at for request in server.requests)
    assert len(times) == 12
    together = [at for at in times if times[0] <= at < times[0] + 1]
    assert len(together) <= 6
    assert not list((lab.folder / "data").glob(".*.limits"))


def test_replicas_serve_a_run_and_who_served_is_in_the_record(lab: Lab, server: ModelServer) -> None:
    def reply(provider: str, turn: int) -> Answer:
        calls = [("terminal", {"command": "echo hi"})] if turn == 0 else []
        plain = says("" if calls else "done", calls=calls, reasoning="r")
        return Answer(body=json.dumps(json.loads(plain.body) | {"provider": provider}).encode())

    with ModelServer() as other:
        server.respond = lambda request: reply("One", request.turn)
        other.respond = lambda request: reply("Two", request.turn)
        lab.use_server(server.url)
        lab.spec["model"]["base_url"] = [server.url, other.url]
        lab.write_prompts(*[f"[{number}]" for number in range(6)])
        result = lab.run("-q")
        assert result.code == 0, result.err
        assert len(server.requests) + len(other.requests) == 12
        assert server.requests
        assert other.requests
        found = {line["metadata"]["provider"] for line in lab.lines()}
        assert found == {"One", "Two"}
        for line in lab.lines():
            about = line["metadata"]
            assert json.loads(about["served_calls"]) == [["served", about["provider"], 2]]
        lab.assert_sound()
        providers = lab.statistics()["served_providers"]
        assert sum(providers.values()) == 6
        assert f"One {providers['One']}" in result.out
        assert "served by" in result.out
        found = lab.call("diff", str(lab.run_dir), str(lab.run_dir), "--json").json()
        assert found["served_providers"] == {name: [count] * 2 for name, count in providers.items()}
        lab.spec["model"]["base_url"] = other.url
        assert lab.run("-q").code == 0
        assert len(server.requests) + len(other.requests) == 12


def test_through_a_rollout_requests_only_grow_and_all_rollouts_begin_alike(
    lab: Lab, server: ModelServer
) -> None:
    server.respond = turns(4)
    lab.use_server(server.url)
    lab.spec["distribution"] = {"terminal": 100, "file": 100, "todo": 100}
    lab.spec["agent"] = {"system_prompt": "Be brief.", "ephemeral_system_prompt": "Be kind."}
    lab.write_prompts("[a] do it", "[b] do it", "[c] do it")
    assert lab.run("-q").code == 0
    openings = set()
    for prompt in ("[a]", "[b]", "[c]"):
        bodies = [request.body for request in server.asked(prompt)]
        assert len(bodies) == 4
        for before, after in pairwise(bodies):
            assert after.startswith(before.removesuffix(b"]}"))  # tools and system message stand first
        openings.add(bodies[0].partition(b'{"role":"user"')[0])
    (opening,) = openings
    assert b'"tools":[' in opening
    assert b"Be brief." in opening


def test_a_run_can_stream(lab: Lab, server: ModelServer) -> None:
    chunks: list[dict[str, Any]] = [
        {"model": "served", "choices": [{"index": 0, "delta": {"reasoning": "hm"}}]},
        {"model": "served", "choices": [{"index": 0, "delta": {"content": "done"}}]},
        {"model": "served", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"model": "served", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
    ]
    server.respond = lambda _: events(*chunks, pause_s=0.01)
    lab.use_server(server.url)
    lab.spec["model"]["stream"] = True
    lab.write_prompts("[a]", "[b]")
    result = lab.run("-q")
    assert result.code == 0, result.err
    assert [line["conversations"][-1]["value"] for line in lab.lines()] == ["done", "done"]
    assert lab.lines()[0]["metadata"]["usage"]["total_tokens"] == 7
    assert all(request.json["stream"] for request in server.requests)
