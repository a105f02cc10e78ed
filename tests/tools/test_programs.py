"""Programs that are ended while they have much to say, or have started others."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from hermes_run.tools.programs import end_program

TALKS = "import sys\nwhile True: sys.stdout.write('x' * 100_000)"
STARTS = "import subprocess, sys\np = subprocess.Popen(['sleep', '600'])\nprint(p.pid, flush=True)\np.wait()"
OBEYS = "import sys\nsys.stdin.read()\nopen(sys.argv[1], 'w').write('by itself')"


@pytest.mark.parametrize("has_group", [True, False])
def test_a_program_whose_words_nobody_reads_is_ended(has_group: bool) -> None:
    async def go() -> int | None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", TALKS, stdout=PIPE, start_new_session=has_group
        )
        await asyncio.sleep(0.5)  # by now asyncio has stopped to read
        async with asyncio.timeout(30):
            await end_program(process)
        return process.returncode

    assert asyncio.run(go()) == -9


def test_what_a_program_started_ends_with_it() -> None:
    async def go() -> int:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", STARTS, stdout=PIPE, start_new_session=True
        )
        assert process.stdout is not None
        child = int(await process.stdout.readline())
        await end_program(process)
        return child

    state = Path(f"/proc/{asyncio.run(go())}/stat")
    end = time.monotonic() + 30
    while state.exists() and b") Z" not in state.read_bytes():
        assert time.monotonic() < end
        time.sleep(0.05)


LEAVES = """
import os, time
if os.fork() == 0:
    os.setsid()
    os.close(2)
    print(os.getpid(), flush=True)
    time.sleep(600)
"""
ENDS_IT = """
import asyncio, sys
from hermes_run.tools.programs import end_program

async def go():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", sys.argv[1], stdin=-1, stdout=-1, start_new_session=True
    )
    print((await process.stdout.readline()).decode())
    await end_program(process)

asyncio.run(go())
"""


def test_pipes_that_a_daemon_still_holds_are_closed_in_time() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS_IT, LEAVES], capture_output=True, text=True, check=True)
    os.kill(int(done.stdout), signal.SIGKILL)
    assert done.stderr == ""


def test_a_program_may_end_by_itself_once_its_stdin_is_closed(tmp_path: Path) -> None:
    async def go() -> int | None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", OBEYS, str(tmp_path / "out"), stdin=PIPE, stdout=PIPE
        )
        await end_program(process, patience_s=60)
        await end_program(process)  # which changes nothing any more
        return process.returncode

    assert asyncio.run(go()) == 0
    assert (tmp_path / "out").read_text() == "by itself"
