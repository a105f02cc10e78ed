"""The Sandbox contract: how calls end, in time and without ending anybody else."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING

import pytest

from hermes_run.errors import SandboxError
from tests.contracts.sandboxes import can, opened, sh, sleepers, text, within

if TYPE_CHECKING:
    from hermes_run.core.contracts import Sandbox

pytestmark = pytest.mark.slow


# ---------------------------------------------------------------- ends of calls


@pytest.mark.parametrize(
    "command",
    [
        "kill -9 $PPID",
        "kill -9 -1",
        "kill 0",
        "kill -9 0",
        "eval 'kill -9 $'$; sleep 0.2",
        "kill -STOP $PPID; exit",
        "kill -STOP -1; sleep 60",
        "pkill -9 bash",
        "exec <&- >&- 2>&-; rm -rf /proc /run /dev /tmp/.[!.]* 2>/dev/null; exit 1",
        "echo 1 2 > /proc/$PPID/fd/1; echo 99 0 > /proc/$PPID/fd/0",
    ],
)
def test_what_kills_its_own_shell_ends_only_its_own_call(name: str, command: str) -> None:
    if name == "local":
        pytest.skip("without process isolation these reach the host")

    async def work(box: Sandbox) -> None:
        await sh(box, "cd /usr; export V=1; sleep 1234 >/dev/null 2>&1 &", keep_state=True)
        started = time.monotonic()
        await sh(box, command, timeout_s=1.5)
        assert time.monotonic() - started < 1.5 + 2
        assert await text(box, "pwd; echo $V", timeout_s=5) == "/usr\n1\n"

    within(name, work)


@pytest.mark.slow
def test_what_kills_shells_again_and_again_never_ends_the_next_call(name: str) -> None:
    """It may lose the sandbox, where nobody outside can stop it; but no other call gets its end."""
    if name == "local":
        pytest.skip("without process isolation this reaches the host")

    async def work(box: Sandbox) -> None:
        for number in range(8):
            hammer = "(while :; do kill -9 -1; done) & sleep 0.3"
            try:
                await sh(box, hammer, timeout_s=3, keep_state=number % 2 == 0)
                result = await sh(box, "cat; echo next", stdin=b"the ")
            except SandboxError as error:
                assert error.reason == "sandbox_lost"  # noqa: PT017 - either is right
                assert name not in ("bubblewrap", "singularity")  # their runner can
                return
            assert (result.exit_code, result.output) == (0, b"the next\n")

    within(name, work, pids=64)


def test_late_output_never_reaches_the_next_call(name: str) -> None:
    async def work(box: Sandbox) -> None:
        first = await text(box, "(sleep 0.5; echo late1; echo late2 >&2; sleep 60) & echo first")
        assert first == "first\n"
        second = await text(box, "sleep 1; echo second")
        assert second == "second\n"

    within(name, work)


@pytest.mark.slow
def test_background_server_outlives_its_call_and_is_not_killed_by_its_output(name: str) -> None:
    async def work(box: Sandbox) -> None:
        script = (
            "i=0; while [ $i -lt 400 ]; do printf '%02000d\\n' 0 || exit 1; i=$((i+1)); sleep 0.001; done;"
            " echo done > finished; sleep 60"
        )
        started = time.monotonic()
        await sh(box, f"({script}) & echo started")
        assert time.monotonic() - started < 2
        result = await sh(
            box,
            "for i in $(seq 16); do [ -f finished ] && break; sleep 0.5; done; cat finished",
        )
        assert result.output == b"done\n"

    within(name, work)


def test_calls_queue(name: str) -> None:
    async def work(box: Sandbox) -> None:
        results = await asyncio.gather(*(text(box, f"sleep 0.02; echo {n}") for n in range(8)))
        assert results == [f"{n}\n" for n in range(8)]

    within(name, work)


# ---------------------------------------------------------------- timeouts


_DAEMONS = """python3 -c 'import os, time
for i in range(3):
    if os.fork():
        time.sleep(600) if i == 0 else os._exit(0)
    os.setsid()
time.sleep(600)'"""


@pytest.mark.parametrize(
    "command",
    [
        "sleep 600",
        "sleep 600 & sleep 600",
        "trap '' TERM INT HUP; while :; do sleep 600; done",
        "setsid sleep 600 & (setsid sh -c 'trap \"\" TERM; (sleep 600 & sleep 600) & sleep 600' &); sleep 60",
        "nohup sh -c 'exec 1>&- 2>&-; sleep 600' & sleep 600",
        _DAEMONS,
        "while :; do :; done",
        "cat /dev/zero | sleep 600",
        "exec sleep 600",
        "sh -c 'kill -STOP $PPID'; sleep 600",
        "echo $$ > /dev/null; sleep 600",
    ],
)
def test_timeout_kills_everything_that_the_call_started(name: str, command: str) -> None:
    async def work(box: Sandbox) -> None:
        for program in ("python3", "nohup"):
            if program in command and not await text(box, f"command -v {program}"):
                pytest.skip(f"no {program} in the sandbox")
        await sh(box, "sleep 4321 >/dev/null 2>&1 & (setsid sleep 4322 >/dev/null 2>&1 &)")
        deadline = time.monotonic() + 10
        while not {"4321", "4322"} <= set(before := await sleepers(box)):  # they are being started
            assert time.monotonic() < deadline, before
        started = time.monotonic()
        result = await sh(box, f"echo so far; {command}", timeout_s=0.3)
        assert time.monotonic() - started < 0.3 + 2
        assert (result.timed_out, result.exit_code, result.output) == (True, 124, b"so far\n")
        assert await sleepers(box) == before

    within(name, work)


@pytest.mark.slow
def test_twelve_timeouts_in_a_row_leave_room_for_the_next_command(name: str) -> None:
    async def work(box: Sandbox) -> None:
        for number in range(12):
            hard = ("trap '' TERM; ", "setsid ", "")[number % 3]
            started = time.monotonic()
            result = await sh(box, f"{hard}sh -c 'sleep 600 & sleep 600' & sleep 600", timeout_s=0.2)
            assert result.timed_out
            assert time.monotonic() - started < 0.3 + 2
        started = time.monotonic()
        assert await text(box, "echo ok") == "ok\n"
        assert time.monotonic() - started < 1

    within(name, work, pids=64)


def test_fork_bomb_ends_with_its_own_call(name: str) -> None:
    can(name, "pids")

    async def work(box: Sandbox) -> None:
        started = time.monotonic()
        result = await sh(box, "bomb() { bomb | bomb & }; bomb; sleep 600", timeout_s=1)
        assert time.monotonic() - started < 1 + 2
        assert result.timed_out
        started = time.monotonic()
        assert await text(box, "echo ok") == "ok\n"
        assert time.monotonic() - started < 1

    within(name, work, pids=64)


# ---------------------------------------------------------------- limits


def test_memory_bomb_ends_with_its_own_call(name: str) -> None:
    can(name, "memory")
    bomb = (
        "command -v python3 >/dev/null || exec tail /dev/zero\n"
        "python3 -c 'a = []\nwhile True: a.append(bytearray(10_000_000))'"
    )

    async def main() -> None:
        async with opened(name, memory_mb=128) as box, opened(name, memory_mb=128) as other:
            await sh(box, "cd /usr", keep_state=True)
            result, calm = await asyncio.gather(
                sh(box, bomb, timeout_s=30), text(other, "sleep 0.3; echo calm")
            )
            assert result.exit_code == 137
            assert calm == "calm\n"
            assert await text(box, "pwd") == "/usr\n"

    asyncio.run(main())


def test_disk_filler_meets_a_full_disk(name: str) -> None:
    can(name, "files", "memory")

    async def work(box: Sandbox) -> None:
        for place in ("/tmp", "/dev/shm", *(() if "disk" in box.info.missing else (".",))):
            result = await sh(box, f"head -c 500000000 /dev/zero > {place}/big; echo $?", timeout_s=30)
            assert result.output.endswith(b"1\n")  # in busybox's words, no space is an I/O error
        assert (
            await text(box, "echo ok; rm -f big /tmp/big /dev/shm/big; echo fine > f; cat f") == "ok\nfine\n"
        )

    within(name, work, memory_mb=256)


def test_process_limit_counts_what_commands_start(name: str) -> None:
    can(name, "pids")

    async def work(box: Sandbox) -> None:
        result = await sh(box, "exec sh -c 'while sleep 3 & do echo x; done'", timeout_s=2)
        assert 20 < result.output.count(b"x") <= 32
        assert await text(box, "echo ok") == "ok\n"

    within(name, work, pids=32)


def test_cpu_limit_slows_two_burners_down(name: str) -> None:
    can(name, "cpus")

    async def work(box: Sandbox) -> None:
        burn = "timeout 1 sh -c 'while :; do :; done' & timeout 1 sh -c 'while :; do :; done' & wait"
        used = await text(box, f"{burn}; times | tail -1")
        minutes_seconds = [float(s) for s in re.findall(r"m([\d.]+)s", used)]
        assert sum(minutes_seconds) < 0.9

    within(name, work, cpus=0.5)
