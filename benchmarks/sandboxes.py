"""What sandboxes cost: CPU per sandbox life and per call, beside a floor in the same run.

A life is: start, four calls of `echo`, removal. The floor is four times `bash -c 'echo hi'` by
subprocess, and for docker a bare container: create, start, one exec socket that says `hi` four times,
remove. CPU is of this process and its children (getrusage); for docker, where the daemon does the work,
it is the whole machine's busy time, so that the machine has to be quiet. The best of the rounds, which
take turns.

    python benchmarks/sandboxes.py [--lives 100] [--at-once 8] [--backend bubblewrap] [--image IMAGE]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_run.core.contracts import SandboxRequest
from hermes_run.core.registry import BACKENDS, load
from hermes_run.sandboxes._docker_wire import raw_socket
from hermes_run.spec.model import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from docker import APIClient

    from hermes_run.core.contracts import Backend, Sandbox

CALLS = 4
ROUNDS = 3
MANY_CALLS = 500


def cpu_s() -> float:
    """CPU seconds of this process and its reaped children so far."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def busy_s() -> float:
    """CPU seconds that the whole machine was busy so far (Linux)."""
    user, nice, system, _idle, _iowait, irq, softirq, *_ = (
        int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


async def measure(
    work: Callable[[], Awaitable[None]], count: int, clock: Callable[[], float] = cpu_s, rounds: int = ROUNDS
) -> tuple[float, float]:
    """CPU and wall milliseconds per piece of `work`, which does `count` of them; the best round."""
    costs = []
    for _ in range(rounds):
        cpu, wall = clock(), time.perf_counter()
        await work()
        costs.append(((clock() - cpu) * 1000 / count, (time.perf_counter() - wall) * 1000 / count))
    return min(costs)


def bare_container(client: APIClient, image: str, name: str) -> None:
    """What a container costs that does as much, without any of what makes it a sandbox."""
    host = client.create_host_config(network_mode="none")
    client.create_container(image, ["sleep", "1000"], name=name, host_config=host)
    client.start(name)
    made = client.exec_create(name, ["sh"], stdin=True)
    answer = client.exec_start(made["Id"], socket=True)
    wire = raw_socket(answer)[0]
    wire.setblocking(True)
    for _ in range(CALLS):
        wire.sendall(b"echo hi\n")
        if not wire.recv(100):
            raise SystemExit("a bare container says nothing")
    wire.close()
    answer.close()
    client.remove_container(name, force=True)


async def docker_lives(backend: Backend, lives: int, at_once: int, image: str) -> None:
    """Sandboxes beside bare containers, in turns, by the machine's busy time."""
    from hermes_run.sandboxes._docker_engine import connect
    from hermes_run.spec.containers import find_address

    client = connect(find_address(""), at_once)
    slots = asyncio.Semaphore(at_once)
    floor, life = [], []

    with ThreadPoolExecutor(at_once) as pool:
        loop = asyncio.get_running_loop()

        async def bare() -> None:
            names = [f"hermes-run-benchmark-{os.getpid()}-{number}" for number in range(lives)]
            await asyncio.gather(
                *(loop.run_in_executor(pool, bare_container, client, image, name) for name in names)
            )

        async def one(number: int) -> None:
            async with slots:
                await live(backend, number, image)

        async def ours() -> None:
            await asyncio.gather(*map(one, range(lives)))

        for _ in range(ROUNDS):
            floor.append(await measure(bare, lives, busy_s, 1))
            life.append(await measure(ours, lives, busy_s, 1))
    print(f"{'':36}CPU ms  wall ms  CPU / floor")
    for title, costs in (
        ("floor: a bare container, 4 x echo", floor),
        ("a life: start, 4 calls, removal", life),
    ):
        cpu, wall = min(costs)
        print(f"{title:36}{cpu:6.1f}  {wall:7.1f}  {cpu / min(floor)[0]:6.2f}")


async def live(backend: Backend, number: int, image: str = "") -> None:
    """One life of a sandbox."""
    async with backend.open(SandboxRequest(run="benchmark", key=str(number), image=image)) as box:
        for _ in range(CALLS):
            result = await box.exec("echo hi", timeout_s=30, keep_state=True)
            if result.output != b"hi\n":
                raise SystemExit(f"a sandbox answered {result}")


async def call(box: Sandbox, *, keep_state: bool) -> None:
    """Many calls, one after the other."""
    for _ in range(MANY_CALLS):
        await box.exec("echo hi", timeout_s=30, keep_state=keep_state)


async def calls(backend: Backend, image: str) -> dict[str, tuple[float, float]]:
    """What a call costs on a sandbox that is there."""
    async with backend.open(SandboxRequest(run="benchmark", key="calls", image=image)) as box:
        plain = await measure(lambda: call(box, keep_state=False), MANY_CALLS)
        kept = await measure(lambda: call(box, keep_state=True), MANY_CALLS)
    return {"a call (the runner's part)": plain, "a call that keeps state (its part)": kept}


async def main(lives: int, at_once: int, name: str, image: str) -> None:
    """Measure and print."""
    backend: Backend = load("sandbox backend", BACKENDS, name)("benchmark", Settings())
    slots = asyncio.Semaphore(at_once)

    async def floor() -> None:
        for _ in range(lives * CALLS):
            subprocess.run(["bash", "-c", "echo hi"], stdout=subprocess.PIPE, check=True)  # noqa: ASYNC221

    async def one(number: int) -> None:
        async with slots:
            await live(backend, number, image)

    async def many_lives() -> None:
        await asyncio.gather(*(one(number) for number in range(lives)))

    print(f"{name}, {lives} lives, {at_once} at once; missing here: {await backend.check() or 'nothing'}")
    if name == "docker":
        await docker_lives(backend, lives, at_once, image)
        for title, (cpu, wall) in (await calls(backend, image)).items():
            print(f"{title:36}{cpu:6.3f}  {wall:7.3f}")
        await backend.aclose()
        return
    floor_cpu, floor_wall = await measure(floor, lives)
    # What the calls' subshells used counts only when the sandbox is gone: a life has it, a call has not.
    rows = {
        "floor: 4 x bash -c": (floor_cpu, floor_wall),
        "a life: start, 4 calls, removal": await measure(many_lives, lives),
        **await calls(backend, image),
    }
    await backend.aclose()
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
    parser.add_argument("--image", default="", help="for docker: with a sh, and here already")
    options = parser.parse_args()
    asyncio.run(main(options.lives, options.at_once, options.backend, options.image))
