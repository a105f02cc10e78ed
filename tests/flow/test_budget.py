"""A run's budget: over resumes and kills, without cutting a rollout for the total's sake."""

from __future__ import annotations

import json
import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.flow.lab import Lab
from tests.flow.replies import conversations, turns
from tests.servers import Answer, ModelServer, Request, says

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

PER_CALL = {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100, "cost": 0.01}


def billed(
    respond: Callable[[Request], Answer], usage: Callable[[Request], dict[str, Any] | None]
) -> Callable[[Request], Answer]:
    """The same answers with a usage of our choice."""

    def answer(request: Request) -> Answer:
        given = respond(request)
        content = json.loads(given.body)
        used = usage(request)
        content.pop("usage", None)
        if used is not None:
            content["usage"] = used
        return replace(given, body=json.dumps(content).encode())

    return answer


@contextmanager
def billing(respond: Callable[[Request], Answer]) -> Iterator[ModelServer]:
    with ModelServer() as server:
        server.respond = respond
        yield server


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with billing(billed(turns(4), lambda _: PER_CALL)) as running:
        yield running


def lab_at(server: ModelServer, folder: Path, prompts: int, **limits: float) -> Lab:
    lab = Lab(folder, {"limits": limits, "sandbox": {"backend": "local"}, "workers": 4})
    lab.write_prompts(*(f"[{number}] do it" for number in range(prompts)))
    lab.use_server(server.url)
    return lab


def test_a_run_stops_within_its_budget_and_goes_on_with_a_higher_one(
    server: ModelServer, tmp_path: Path
) -> None:
    lab = lab_at(server, tmp_path, 12, total_cost=0.2)  # a rollout takes 0.04
    stopped = lab.run()
    assert stopped.code == 5
    assert "limits.total_cost" in stopped.err
    assert lab.statuses() == {"completed": 5}
    assert len(server.requests) == 20
    assert lab.statistics()["outcomes"]["pending"] == 7
    again = lab.run()
    assert (again.code, len(server.requests)) == (5, 20)
    lab.spec["limits"]["total_cost"] = 1.0
    assert lab.run().code == 0
    assert len(server.requests) == 48
    assert lab.statuses() == {"completed": 12}
    lab.assert_sound()


def test_a_budget_is_each_shards_own_and_that_is_told(server: ModelServer, tmp_path: Path) -> None:
    lab = lab_at(server, tmp_path, 4, total_tokens=10_000)
    told = "limits.total_tokens counts for this shard alone: all 2 together may use 20,000 tokens"
    assert told in lab.run("--shard", "1/2").err
    assert "this shard alone" not in lab.run().err


@pytest.mark.parametrize(
    ("limits", "prompt", "told"),
    [
        ({"total_tokens": 10}, "x", "limits.total_tokens is less than one call takes: 10 tokens"),
        ({"total_tokens": 3000}, "word " * 20_000, "limits.total_tokens is less than one call takes"),
        ({"total_cost": 1e-6}, "x", "limits.total_cost is less than one call takes: 1e-06 USD"),
    ],
)
def test_a_budget_below_one_call_is_told_before_anything_is_spent(
    server: ModelServer, tmp_path: Path, limits: dict[str, float], prompt: str, told: str
) -> None:
    lab = lab_at(server, tmp_path, 1, **limits)
    lab.write_prompts(prompt)
    (tmp_path / "hermes.yaml").write_text("prices: {bench: {input: 3.0, output: 15.0, cached_input: 0.3}}\n")
    stopped = lab.run()
    assert (stopped.code, told in stopped.err, server.requests) == (5, True, []), stopped.err
    assert "--set limits.total_" in stopped.err
    assert lab.statistics()["outcomes"]["pending"] == 1
    lab.spec["limits"] = {}
    assert lab.run().code == 0


def test_a_budget_of_tokens_is_kept_likewise(server: ModelServer, tmp_path: Path) -> None:
    lab = lab_at(server, tmp_path, 12, total_tokens=1700)
    assert lab.run().code == 5
    assert lab.statuses() == {"completed": 4}
    assert len(server.requests) == 16


@pytest.mark.slow
def test_what_killed_attempts_used_is_part_of_what_is_spent(tmp_path: Path) -> None:
    with billing(billed(turns(4, delay_s=0.15), lambda _: PER_CALL)) as server:
        lab = lab_at(server, tmp_path, 60, total_cost=1.0)
        lab.spec["workers"] = 16
        for number in range(5):
            lab.kill_after(1.5 + 0.3 * number)
        final = lab.run()
        in_flight_at_kills = 5 * 16  # calls
        assert final.code == 5, final.err
        assert len(server.requests) <= 100 + in_flight_at_kills
        assert lab.statuses()["partial"] == 0
        ledger = [json.loads(line) for line in (lab.run_dir / "spending.jsonl").read_text().splitlines()]
        told = sum(line["usage"]["calls"] for line in ledger if not line["key"])
        entries = sum(entry["usage"]["calls"] for entry in lab.entries().values())
        assert told + entries <= 100
        assert told + entries >= len(server.requests) - in_flight_at_kills
        lab.spec["limits"]["total_cost"] = 100
        assert lab.run().code == 0
        lab.assert_sound()


def test_a_rollout_that_has_used_up_its_own_budget_ends_partial(server: ModelServer, tmp_path: Path) -> None:
    lab = lab_at(server, tmp_path, 2, prompt_tokens=200)
    assert lab.run().code == 0
    assert {entry["reason"] for entry in lab.entries().values()} == {"prompt_budget"}
    assert len(server.requests) == 4
    lab.spec["limits"] = {"prompt_cost": 0.03}
    changed = lab.run()
    assert (changed.code, "limits.prompt_tokens" in changed.err) == (2, True)  # part of the fingerprint


def test_limits_of_rollouts_are_no_way_past_the_runs_own(tmp_path: Path) -> None:
    """A rollout passes its limit by its last call, which is reserved, too."""
    with billing(billed(turns(6), lambda _: PER_CALL)) as server:
        lab = lab_at(server, tmp_path, 10, total_cost=0.1, prompt_cost=0.025)
        stopped = lab.run()
        assert stopped.code == 5
        assert "has no room for one more rollout: 0.0900 USD of 0.1000 USD are spent" in stopped.err
        assert lab.statuses() == {"partial": 3}  # of 0.03 each; 0.025 and a call are reserved
        assert len(server.requests) == 9


def test_a_subscription_does_not_hold_workers_back(tmp_path: Path) -> None:
    with billing(billed(turns(2, delay_s=0.1), lambda _: {**PER_CALL, "cost": None})) as server:
        lab = lab_at(server, tmp_path, 12, total_cost=1.0)
        (tmp_path / "hermes.yaml").write_text("prices: {bench: {flat: true}}\n")
        assert lab.run().code == 0
        assert server.peak_in_flight > 1


def test_an_answer_that_uses_up_the_budget_is_an_answer(tmp_path: Path) -> None:
    with billing(billed(turns(1), lambda _: PER_CALL)) as server:
        lab = lab_at(server, tmp_path, 1, prompt_tokens=1)
        assert lab.run().code == 0
        assert lab.statuses() == {"completed": 1}


def test_prices_of_hermes_yaml_make_costs_where_the_endpoint_tells_none(tmp_path: Path) -> None:
    tokens = {"prompt_tokens": 900_000, "completion_tokens": 100_000, "total_tokens": 1_000_000}
    with billing(billed(turns(2), lambda _: tokens)) as server:
        lab = lab_at(server, tmp_path, 6, total_cost=8.0)
        price = {"bench": {"input": 1.0, "output": 1.0}}
        (tmp_path / "hermes.yaml").write_text(yaml.safe_dump({"prices": price}))
        stopped = lab.run()
        assert stopped.code == 5, stopped.err
        assert lab.statistics()["cost"] == 8.0
        assert {entry["cost"] for entry in lab.entries().values()} == {2.0}


def test_tokens_that_nobody_tells_are_estimated_where_there_is_a_price_and_counted(tmp_path: Path) -> None:
    with billing(billed(turns(2), lambda _: None)) as server:
        lab = lab_at(server, tmp_path, 3)
        (tmp_path / "hermes.yaml").write_text("prices: {bench: {input: 1.0, output: 1.0}}\n")
        assert lab.run().code == 0
        statistics = lab.statistics()
        assert (statistics["cost_estimated"], statistics["cost_unknown"]) == (3, 0)
        assert statistics["cost"] > 0
        assert statistics["tokens"]["calls_without_usage"] == 6


def test_a_limit_of_money_that_nobody_can_keep_stops_the_run_after_one_rollout(tmp_path: Path) -> None:
    with billing(billed(turns(2), lambda _: {**PER_CALL, "cost": None})) as server:
        lab = lab_at(server, tmp_path, 8, total_cost=1.0)
        stopped = lab.run()
        assert stopped.code == 5
        assert "prices" in stopped.err
        assert len(server.requests) == 2


@pytest.mark.parametrize("limits", [{"total_cost": 10.0}, {"total_tokens": 100_000}, {"prompt_cost": 5.0}])
def test_replies_that_break_off_now_and_then_do_not_end_a_run_with_a_budget(
    tmp_path: Path, limits: dict[str, float]
) -> None:
    respond = billed(turns(3), lambda _: PER_CALL)

    with ModelServer() as flaky:

        def breaks_off(request: Request) -> Answer:
            return replace(respond(request), drop="middle" if len(flaky.requests) % 8 == 5 else "")

        flaky.respond = breaks_off
        lab = lab_at(flaky, tmp_path, 12, **limits)
        done = lab.run()
        assert (done.code, lab.statuses()) == (0, {"completed": 12}), done.err
        assert lab.statistics()["cost_unknown"] > 0


def test_a_first_rollout_whose_replies_are_all_broken_says_nothing_of_the_others(tmp_path: Path) -> None:
    respond = billed(turns(2), lambda _: PER_CALL)
    with ModelServer() as flaky:
        flaky.respond = lambda request: (
            Answer(body=b'{"choi') if "[0]" in request.prompt else respond(request)
        )
        lab = lab_at(flaky, tmp_path, 6, total_cost=10.0)
        assert lab.run().code == 1
        assert lab.statuses() == {"completed": 5, "failed": 1}


def test_what_broke_off_is_taken_to_have_cost_what_the_others_of_its_rollout_did(tmp_path: Path) -> None:
    respond = billed(turns(1), lambda _: PER_CALL)

    with ModelServer() as flaky:

        def breaks_off(request: Request) -> Answer:
            tries = len(flaky.asked(request.prompt))
            return replace(respond(request), drop="middle" if tries == 1 else "")

        flaky.respond = breaks_off
        lab = lab_at(flaky, tmp_path, 12, total_cost=0.1)
        assert lab.run().code == 5
        assert len(flaky.requests) == 10
        assert lab.statuses() == {"completed": 5}
        assert lab.run().code == 5
        assert len(flaky.requests) == 10


@pytest.mark.parametrize("limit", ["prompt_cost", "prompt_tokens"])
def test_a_rollouts_own_limit_that_nobody_can_keep_stops_the_run(tmp_path: Path, limit: str) -> None:
    with billing(billed(turns(2), lambda _: None)) as server:
        lab = lab_at(server, tmp_path, 20, **{limit: 1})
        stopped = lab.run()
        assert stopped.code == 5
        assert f"limits.{limit} cannot be kept" in stopped.err
        assert len(server.requests) <= 4 * 2


def test_an_endpoint_known_to_tell_no_costs_is_refused_before_the_run(tmp_path: Path) -> None:
    lab = Lab(tmp_path, {"limits": {"total_cost": 5}, "sandbox": {"backend": "local"}})
    lab.write_prompts("x")
    lab.spec["model"] = {"name": "gpt-x", "base_url": "https://api.openai.com/v1"}
    lab.env["OPENAI_API_KEY"] = "sk-none"
    refused = lab.run()
    assert refused.code == 2
    assert "limits.total_cost" in refused.err
    assert "prices: {gpt-x:" in refused.err


def test_workers_all_run_while_the_budget_is_far(tmp_path: Path) -> None:
    """After the first rollout, which tells what one takes, nothing waits for the budget."""
    with billing(billed(lambda _: says("done", reasoning="r", delay_s=1), lambda _: PER_CALL)) as server:
        lab = lab_at(server, tmp_path, 17, total_cost=100.0)
        lab.spec["workers"] = 16
        assert lab.run().code == 0
        assert server.peak_in_flight >= 10  # 16, on a machine that has nothing else to do


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_drain_begins_nothing_that_was_waiting_for_the_budget(tmp_path: Path, signum: int) -> None:
    """Until the first rollout has shown what one costs, the others wait; a signal ends that waiting."""
    with billing(billed(turns(3, delay_s=0.7), lambda _: PER_CALL)) as server:
        lab = lab_at(server, tmp_path, 8, total_tokens=100_000)
        child = lab.start()
        while not server.requests:
            assert child.poll() is None
            time.sleep(0.02)
        child.send_signal(signum)
        _, err = child.communicate(timeout=60)
        assert child.returncode == 128 + signum, err
        assert list(conversations(server).values()) == [1], "what waited was begun after the signal"
        assert lab.statuses() == {"completed": 1}
        lab.assert_sound()
