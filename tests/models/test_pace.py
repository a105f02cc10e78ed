"""What a limited endpoint is asked, in virtual time: how fast, how often too fast, and never stuck."""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.models.hints import Hint
from hermes_run.models.limiter import Gate
from tests.models.virtual import run_virtual

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Limited:
    """A server that admits calls by a rule and refuses the others, at once or a little later."""

    admits: Callable[[float], bool]
    latency_s: float = 0.1
    retry_after_s: float | None = 1.0
    refusal_s: float = 0.005
    hint: Callable[[float], Hint] | None = None
    asked: list[tuple[float, bool]] = field(default_factory=list)
    in_flight: int = 0
    peak: int = 0

    async def call(self, gate: Gate, tokens: float = 0.0) -> bool:
        loop = asyncio.get_running_loop()
        passed = await gate.passed(tokens)
        try:
            await asyncio.sleep(random.expovariate(1 / 0.003))  # the way there
            is_admitted = self.admits(loop.time())
            self.asked.append((loop.time(), is_admitted))
            if not is_admitted:
                await asyncio.sleep(self.refusal_s)
                gate.cool_down(passed, self.retry_after_s, "HTTP 429")
                return False
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
            await asyncio.sleep(self.latency_s * random.uniform(0.7, 1.3))
            self.in_flight -= 1
            gate.succeeded(passed)
            if self.hint is not None:
                gate.hinted(self.hint(loop.time()), 100)
            return True
        finally:
            gate.left()

    def refused(self, after_s: float = 0.0) -> float:
        """The share of refusals among what was asked later than that."""
        late = [ok for at, ok in self.asked if at >= self.asked[0][0] + after_s]
        return late.count(False) / len(late) if late else 0.0

    def per_second(self) -> float:
        times = [at for at, ok in self.asked if ok]
        return len(times) / (times[-1] - times[0])


def sliding(calls: int, seconds: float) -> Callable[[float], bool]:
    taken: deque[float] = deque()

    def admits(now: float) -> bool:
        while taken and taken[0] <= now - seconds:
            taken.popleft()
        if len(taken) >= calls:
            return False
        taken.append(now)
        return True

    return admits


def fixed(calls: int, seconds: float) -> Callable[[float], bool]:
    counts: dict[int, int] = {}

    def admits(now: float) -> bool:
        window = int(now / seconds)
        counts[window] = counts.get(window, 0) + 1
        return counts[window] <= calls

    return admits


class Bucket:
    def __init__(self, capacity: float, per_second: float) -> None:
        self.capacity, self.per_second = capacity, per_second
        self.left, self.at = capacity, 1000.0

    def __call__(self, now: float) -> bool:
        self.left = min(self.capacity, self.left + (now - self.at) * self.per_second)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True

    def hint(self, now: float) -> Hint:
        del now
        return Hint(math.floor(self.left), self.capacity, (self.capacity - self.left) / self.per_second)


def work(server: Limited, calls: int, workers: int, **limits: Any) -> Gate:
    """So many calls by so many workers, each repeated until it is answered."""
    random.seed(7)

    async def run() -> Gate:
        gate = Gate("m", asyncio.get_running_loop().time, **limits)
        left = iter(range(calls))

        async def worker() -> None:
            for _ in left:
                while not await server.call(gate):
                    pass

        await asyncio.gather(*[worker() for _ in range(workers)])
        assert gate.in_flight == gate.load == 0
        return gate

    found: Gate = run_virtual(run())
    return found


@pytest.mark.parametrize("workers", [8, 64])
@pytest.mark.parametrize("latency_s", [0.05, 1.0])
@pytest.mark.parametrize("rule", ["sliding", "fixed", "bucket"])
def test_five_requests_a_second_are_found_out(rule: str, workers: int, latency_s: float) -> None:
    rules: dict[str, Callable[[float], bool]]
    rules = {"sliding": sliding(5, 1), "fixed": fixed(5, 1), "bucket": Bucket(5, 5)}
    server = Limited(rules[rule], latency_s)
    work(server, 400, workers)
    assert sum(ok for _, ok in server.asked) == 400
    assert server.refused(after_s=10) < 0.05
    assert server.per_second() > 0.85 * 5


def test_refusals_without_retry_after_and_with_a_long_one_are_found_out_too() -> None:
    for retry_after_s in (None, 3.0):
        server = Limited(Bucket(5, 5), retry_after_s=retry_after_s)
        work(server, 400, 32)
        assert server.refused(after_s=10) < 0.05
        assert server.per_second() > 0.8 * 5


def test_a_limit_per_minute_is_not_touched_again_and_again() -> None:
    server = Limited(sliding(60, 60), retry_after_s=20.0)
    work(server, 400, 64)
    assert server.refused(after_s=60) < 0.1
    assert server.per_second() > 0.9


def test_the_endpoints_own_hints_keep_nearly_all_refusals_away() -> None:
    bucket = Bucket(5, 5)
    server = Limited(bucket, hint=bucket.hint)
    work(server, 400, 8)
    assert server.refused(after_s=5) < 0.03
    assert server.per_second() > 0.85 * 5


def test_a_limit_of_calls_in_flight_is_found_out_and_used() -> None:
    server = Limited(lambda _: server.in_flight < 10, latency_s=1.0, retry_after_s=None)
    work(server, 600, 64)
    assert server.peak == 10
    assert server.refused(after_s=10) < 0.05
    assert server.per_second() > 7


def test_a_limit_that_is_lifted_is_left_behind() -> None:
    """Ten seconds of nothing but refusals, or of one call a second: both are over soon."""
    one_a_second = sliding(1, 1)
    for admits in (lambda now: now > 1010, lambda now: now > 1030 or one_a_second(now)):
        server = Limited(admits, latency_s=0.5, retry_after_s=None)
        work(server, 6000, 64)
        assert server.peak == 64
        assert server.asked[-1][0] < 1200


def test_requests_per_minute_hold_in_every_minute() -> None:
    server = Limited(lambda _: True, latency_s=5.0)
    work(server, 200, 64, per_minute=120)
    times = [at for at, _ in server.asked]
    for start in times:
        assert sum(start <= at < start + 60 for at in times) <= 122
    assert 98 < times[-1] - times[0] < 101


def test_tokens_per_minute_are_paced_by_what_calls_really_took() -> None:
    """Each is expected to take 500 tokens and takes 1000: 60 a minute fit into 60,000."""

    async def run() -> float:
        loop = asyncio.get_running_loop()
        gate = Gate("m", loop.time, tokens_per_minute=60_000)
        assert gate.counts_tokens

        async def call() -> None:
            passed = await gate.passed(500)
            await asyncio.sleep(0.2)
            gate.succeeded(passed, 500)
            gate.left()

        await asyncio.gather(*[call() for _ in range(120)])
        return loop.time() - 1000

    assert 110 < run_virtual(run()) < 125


def test_a_call_that_is_cancelled_while_it_waits_takes_nobodys_place() -> None:
    async def run() -> list[int]:
        loop = asyncio.get_running_loop()
        gate = Gate("m", loop.time, per_minute=60)
        done: list[int] = []

        async def call(number: int) -> None:
            await gate.passed()
            done.append(number)
            gate.left()

        tasks = [asyncio.create_task(call(number)) for number in range(6)]
        await asyncio.sleep(1.5)
        tasks[3].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert gate.load == 0
        assert loop.time() < 1005
        return done

    assert run_virtual(run()) == [0, 1, 2, 4, 5]


def test_a_gate_without_limits_holds_nobody_up() -> None:
    server = Limited(lambda _: True, latency_s=1.0)
    work(server, 600, 300)
    assert server.peak == 300


@pytest.mark.parametrize("retry_after_s", [1.0, None])
@pytest.mark.parametrize(
    ("latency_s", "refusal_s"), [(0.05, 0.005), (0.5, 0.005), (2.0, 0.005), (0.2, 0.2), (1.0, 1.0)]
)
@pytest.mark.parametrize("share", [0.01, 0.03, 0.1, 0.2])
def test_refusals_that_come_by_chance_do_not_slow_a_run_to_a_crawl(
    share: float, latency_s: float, refusal_s: float, retry_after_s: float | None
) -> None:
    """No rate and no fewer calls in flight keep them away: each wave is waited for, and that is all."""
    server = Limited(lambda _: random.random() >= share, latency_s, retry_after_s, refusal_s)
    work(server, 1500, 64)
    waves_s = 1500 / (64 * (1 - share)) * (latency_s + 1.0)
    assert server.asked[-1][0] - server.asked[0][0] < 100 + 2.5 * waves_s


def test_fewer_calls_in_flight_than_before_are_found_out_and_used() -> None:
    server = Limited(lambda _: server.in_flight < (10 if len(server.asked) < 700 else 3), 1.0)
    work(server, 1500, 64)
    assert server.asked[-1][0] - server.asked[0][0] < 1.7 * (700 / 10 + 800 / 3)


def test_a_server_that_wants_a_pause_between_calls_leaves_nobody_at_one_call_in_flight() -> None:
    """Two that start together are refused however few are in flight: that is the rate's affair."""
    server = Limited(Bucket(1, 5), latency_s=2.0, retry_after_s=None)
    work(server, 400, 16)
    assert server.per_second() > 0.3 * 5
