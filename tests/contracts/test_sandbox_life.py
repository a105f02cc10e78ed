"""The Sandbox contract: from start to removal, however that comes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_run.core.contracts import SandboxRequest
from hermes_run.core.keys import digest
from hermes_run.errors import SandboxError
from tests import images, modal_place
from tests.contracts.sandboxes import image_of, kind_of, new_backend, opened, sh, sleepers, text, within

if TYPE_CHECKING:
    from hermes_run.core.contracts import Sandbox


def test_loss_is_noticed_at_once(name: str) -> None:
    run = f"loss-{os.getpid()}"

    async def work(box: Sandbox) -> None:
        waiting = asyncio.create_task(sh(box, "echo going; sleep 600", timeout_s=300))
        await asyncio.sleep(0.3)
        started = time.monotonic()
        _take_away(name, run)
        with pytest.raises(SandboxError) as raised:
            await waiting
        assert raised.value.reason == "sandbox_lost"
        assert time.monotonic() - started < 1
        with pytest.raises(SandboxError) as again:
            await sh(box, "echo x")
        assert again.value.reason == "sandbox_lost"

    within(name, work, run=run)


def _take_away(name: str, run: str) -> None:
    """Remove the sandboxes of a run from outside."""
    if kind_of(name) == "docker":
        images.remove_containers(run)
    if name == "modal":
        modal_place.end_sandboxes(run)
    for pid in _children():
        os.kill(pid, signal.SIGKILL)


def _children() -> list[int]:
    """Processes that this process has started."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


@pytest.mark.parametrize("delay_s", [0, 0.003, 0.02, 0.2])
def test_command_in_flight_when_the_sandbox_is_removed_hears_at_once_that_it_is_lost(
    name: str, delay_s: float
) -> None:
    """Also when it has not begun yet, since what it is given is still on its way."""

    async def main() -> None:
        async with opened(name) as box:
            waiting = asyncio.create_task(sh(box, "cat; sleep 600", timeout_s=300, stdin=b"x" * 1_000_000))
            queued = asyncio.create_task(sh(box, "echo x; sleep 600"))
            await asyncio.sleep(delay_s)
        for task in (waiting, queued):
            with pytest.raises(SandboxError) as raised:
                await asyncio.wait_for(task, 10)
            assert raised.value.reason == "sandbox_lost"

    asyncio.run(main())


@pytest.mark.parametrize("delay_s", [0, 0.003, 0.02])
def test_long_command_in_flight_when_the_sandbox_is_removed_hears_at_once_that_it_is_lost(
    name: str, delay_s: float
) -> None:
    async def main() -> None:
        async with opened(name) as box:
            waiting = asyncio.create_task(sh(box, "sleep 600 #" + "x" * 1_000_000, timeout_s=300))
            await asyncio.sleep(delay_s)
        with pytest.raises(SandboxError) as raised:
            await asyncio.wait_for(waiting, 10)
        assert raised.value.reason == "sandbox_lost"

    asyncio.run(main())


def test_cancelled_command_is_killed_and_the_sandbox_goes_on(name: str) -> None:
    async def work(box: Sandbox) -> None:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await sh(box, "echo x; sleep 601 & sleep 601", timeout_s=60)
            assert await text(box, "echo ok", timeout_s=5) == "ok\n"
        assert "601" not in await sleepers(box)

    within(name, work)


def _traces() -> set[Path]:
    """What sandboxes leave outside the runner's process."""
    folders = {trace for folder in ("/tmp", "/dev/shm") for trace in Path(folder).glob("hermes-run-*")}
    walked = os.walk("/sys/fs/cgroup")  # other runs' groups may go while it is walked; Path.rglob minds
    groups = {Path(folder) / name for folder, names, _ in walked for name in names}
    return folders | {group for group in groups if group.name.startswith("hermes-run-")}


def test_nothing_is_left_after_success_failure_and_cancellation(name: str) -> None:
    run = f"traces-{os.getpid()}"

    async def succeed() -> None:
        async with opened(name, run=run) as box:
            await sh(box, "sleep 888 & mkdir -p a/b; chmod 0 a; echo x")

    async def fail() -> None:
        async with opened(name, run=run) as box:
            await sh(box, "setsid sleep 888 >/dev/null 2>&1 &")
            raise ZeroDivisionError

    async def be_cancelled(delay_s: float) -> None:
        async with asyncio.timeout(delay_s), opened(name, run=run) as box:
            await sh(box, "sleep 888", timeout_s=100)

    asyncio.run(succeed())
    with pytest.raises(ZeroDivisionError):
        asyncio.run(fail())
    for delay_s in (0.0001, 0.001, 0.003, 0.006, 0.012, 0.02, 0.1):
        with pytest.raises(TimeoutError):
            asyncio.run(be_cancelled(delay_s))
    hashed = digest(f"{run}\x1fk#0".encode())[:12]  # what names outside the sandbox are made of
    assert _left_by(run, hashed) == []
    assert _children() == []


def _left_by(run: str, hashed: str) -> list[Path]:
    return [trace for trace in _traces() if hashed in trace.name or _is_mine(trace, run)]


_DYING_RUN = """
import asyncio, sys
from hermes_run.core.contracts import SandboxRequest
from tests import images, modal_place
from tests.contracts.sandboxes import new_backend

async def main():
    backend = new_backend(sys.argv[1], sys.argv[2])
    request = SandboxRequest(run=sys.argv[2], key="k", row_id="row-1", image=sys.argv[4])
    async with backend.open(request) as box:
        nap = f"sleep 9{sys.argv[3]}"
        command = f"echo x > f; setsid {nap} >/dev/null 2>&1 & echo on; {nap}"
        call = asyncio.create_task(box.exec(command, timeout_s=600))
        await asyncio.sleep(0.5)
        print("ready", flush=True)
        await call

asyncio.run(main())
"""


def test_what_a_killed_run_leaves_is_found_and_removed_and_nothing_else(name: str) -> None:
    run = f"killed-{os.getpid()}"

    async def main() -> None:
        dying = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _DYING_RUN, name, run, str(os.getpid()), image_of(name), stdout=PIPE
        )
        assert dying.stdout is not None
        assert await dying.stdout.readline() == b"ready\n"
        backend = new_backend(name)
        try:
            assert [left for left in backend.leftovers() if left.run == run] == []
            os.kill(dying.pid, signal.SIGKILL)
            await dying.wait()
            async with opened(name) as living:
                await asyncio.sleep(0.2)
                left = backend.leftovers()
                assert {leftover.run for leftover in left} >= {run}
                assert all(leftover.run != "contract-run" for leftover in left if run in leftover.what)
                for leftover in left:
                    if leftover.run == run:
                        assert leftover.what
                        backend.remove(leftover)
                        backend.remove(leftover)
                assert await text(living, "echo alive") == "alive\n"
            assert [leftover for leftover in backend.leftovers() if leftover.run == run] == []
            await _none_left_saying(b"sleep\x009%d\0" % os.getpid())
            marks = [leftover.handle.rpartition("-")[2] for leftover in left if leftover.run == run]
            assert [trace for trace in _traces() if any(mark in trace.name for mark in marks)] == []
        finally:
            await backend.aclose()

    asyncio.run(main())


def test_same_run_started_again_removes_what_its_killed_self_left(name: str) -> None:
    run = f"again-{os.getpid()}"

    async def main() -> None:
        dying = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _DYING_RUN, name, run, str(os.getpid()), image_of(name), stdout=PIPE
        )
        assert dying.stdout is not None
        assert await dying.stdout.readline() == b"ready\n"
        os.kill(dying.pid, signal.SIGKILL)
        await dying.wait()
        backend = new_backend(name, run)
        async with backend.open(SandboxRequest(run=run, key="k", image=image_of(name))) as box:
            assert [leftover for leftover in backend.leftovers() if leftover.run == run] == []
            assert await text(box, "echo ok") == "ok\n"
        await backend.aclose()

    asyncio.run(main())


def test_interpreter_that_leaves_without_closing_leaves_nothing(name: str) -> None:
    run = f"leaving-{os.getpid()}"
    program = _DYING_RUN.replace("await call", "import sys; loop = asyncio.get_running_loop(); loop.stop()")
    program = program.replace("asyncio.run(main())", "asyncio.new_event_loop().run_until_complete(main())")

    async def main() -> None:
        leaving = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            program,
            name,
            run,
            str(os.getpid()),
            image_of(name),
            stdout=PIPE,
            stderr=PIPE,
        )
        await leaving.communicate()
        await _none_left_saying(b"sleep\x009%d\0" % os.getpid())
        assert [leftover for leftover in new_backend(name).leftovers() if leftover.run == run] == []

    asyncio.run(main())


async def _none_left_saying(word: bytes) -> None:
    """What was killed may take a moment to be gone, the longer the more the machine has to do."""
    deadline = time.monotonic() + 10
    while _processes_saying(word):
        assert time.monotonic() < deadline, _processes_saying(word)
        await asyncio.sleep(0.05)


def _processes_saying(word: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and word in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def _is_mine(trace: Path, run: str) -> bool:
    """Whose it is: each run writes its name and its process into what it makes.

    Other test processes run at the same time, and in this one others' fixtures (a browser) may be alive.
    """
    try:
        label = json.loads((trace / "run").read_text())
    except (OSError, ValueError):
        return False
    return bool(label.get("run") == run and label.get("pid") == os.getpid())
