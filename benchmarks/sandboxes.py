"""What sandboxes cost: CPU per sandbox life and per call, beside `bash -c` in the same run.

A life is: start, four calls of `echo`, removal. The floor is four times `bash -c 'echo hi'` by
subprocess. CPU is of this process and its children (getrusage), the best of the rounds.

    python benchmarks/sandboxes.py [--lives 100] [--at-once 8] [--backend bubblewrap]
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import time
from typing import TYPE_CHECKING

from hermes_run.core.contracts import SandboxRequest
from hermes_run.core.registry import BACKENDS, load
from hermes_run.spec.model import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hermes_run.core.contracts import Backend, Sandbox

CALLS = 4
ROUNDS = 3
MANY_CALLS = 500


def cpu_s() -> float:
    """CPU seconds of this process and its reaped children so far."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


async def measure(work: Callable[[], Awaitable[None]], count: int) -> tuple[float, float]:
    """CPU and wall milliseconds per piece of `work`, which does `count` of them; the best round."""
    costs = []
    for _ in range(ROUNDS):
        cpu, wall = cpu_s(), time.perf_counter()
        await work()
        costs.append(((cpu_s() - cpu) * 1000 / count, (time.perf_counter() - wall) * 1000 / count))
    return min(costs)


async def live(backend: Backend, number: int) -> None:
    """One life of a sandbox."""
    async with backend.open(SandboxRequest(run="benchmark", key=str(number))) as box:
        for _ in range(CALLS):
            result = await box.exec("echo hi", timeout_s=30, keep_state=True)
            if result.output != b"hi\n":
                raise SystemExit(f"a sandbox answered {result}")


async def call(box: Sandbox, *, keep_state: bool) -> None:
    """Many calls, one after the other."""
    for _ in range(MANY_CALLS):
        await box.exec("echo hi", timeout_s=30, keep_state=keep_state)


async def main(lives: int, at_once: int, name: str) -> None:
    """Measure and print."""
    backend: Backend = load("sandbox backend", BACKENDS, name)("benchmark", Settings())
    slots = asyncio.Semaphore(at_once)

    async def floor() -> None:
        for _ in range(lives * CALLS):
            subprocess.run(["bash", "-c", "echo hi"], stdout=subprocess.PIPE, check=True)  # noqa: ASYNC221

    async def one(number: int) -> None:
        async with slots:
            await live(backend, number)

    async def many_lives() -> None:
        await asyncio.gather(*(one(number) for number in range(lives)))

    print(f"{name}, {lives} lives, {at_once} at once; missing here: {await backend.check() or 'nothing'}")
    floor_cpu, floor_wall = await measure(floor, lives)
    life_cpu, life_wall = await measure(many_lives, lives)
    async with backend.open(SandboxRequest(run="benchmark", key="calls")) as box:
        call_cpu, call_wall = await measure(lambda: call(box, keep_state=False), MANY_CALLS)
        kept_cpu, kept_wall = await measure(lambda: call(box, keep_state=True), MANY_CALLS)
    await backend.aclose()
    # What the calls' subshells used counts only when the sandbox is gone: a life has it, a call has not.
    rows = {
        "floor: 4 x bash -c": (floor_cpu, floor_wall),
        "a life: start, 4 calls, removal": (life_cpu, life_wall),
        "a call (the runner's part)": (call_cpu, call_wall),
        "a call that keeps state (its part)": (kept_cpu, kept_wall),
    }
    print(f"{'':36}CPU ms  wall ms  CPU / floor")
    for title, (cpu, wall) in rows.items():
        print(f"{title:36}{cpu:6.3f}  {wall:7.3f}  {cpu / floor_cpu:6.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lives", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--backend", default="bubblewrap")
    options = parser.parse_args()
    asyncio.run(main(options.lives, options.at_once, options.backend))
