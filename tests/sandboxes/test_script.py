"""The shell text: quoting, what is carried, and that any POSIX sh can run it."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_run.core.contracts import SandboxRequest
from hermes_run.sandboxes._ground import Ground
from hermes_run.sandboxes._local_box import LocalBox
from hermes_run.sandboxes._script import kept_state, quote, wants_own_shell
from hermes_run.sandboxes.local import sweep
from tests.contracts.shell_commands import COMMANDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from hermes_run.core.contracts import ExecResult
    from hermes_run.sandboxes._kept_shell import KeptShell


@given(st.binary(max_size=200).filter(lambda text: b"\0" not in text))
def test_quoted_text_is_one_word_and_comes_back(text: bytes) -> None:
    ran = subprocess.run(["sh", "-c", b"printf '%s|' " + quote(text)], capture_output=True, check=True)
    assert ran.stdout == text + b"|"


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("echo hi", False),
        ("echo $HOME; set -e; trap 'x' EXIT", False),
        ("kill -9 $$", True),
        ("echo ${$}", True),
        ("kill $PPID", True),
        ("set -euo pipefail; make", True),
        ("set -o nounset", True),
        ("set -x; make", True),
        ("offset -euo", False),
    ],
)
def test_own_shell_is_for_what_a_fork_cannot_have_right(command: str, own: bool) -> None:
    assert wants_own_shell(command) is own


def test_state_is_taken_only_when_it_is_whole() -> None:
    assert kept_state(b'#state\ndeclare -x A="1"\n#end\n') == b'declare -x A="1"\n'
    assert kept_state(b"#state\ndeclare -x A=") is None
    assert kept_state(b"__c='echo'\n") is None
    assert kept_state(b"#state\n" + b"x" * (5 << 20) + b"#end\n") is None
    readonly = b'#state\ndeclare -rx A="1"\ndeclare -irx B="2"\ndeclare -x C="declare -rx D"\n#end\n'
    assert kept_state(readonly) == b'declare -x A="1"\ndeclare -xi B="2"\ndeclare -x C="declare -rx D"\n'


@asynccontextmanager
async def plain_sh(path: str) -> AsyncIterator[KeptShell]:
    """A local sandbox whose shell is another one."""
    ground = Ground("r", "local", sweep, in_memory=False)
    box = LocalBox(ground, SandboxRequest(run="r", key="k"))
    box.shell = path
    try:
        yield await box.start()
    finally:
        await box.remove()
        ground.remove_now()


def _comparable(result: ExecResult) -> tuple[bytes, int]:
    return re.sub(rb"sh: (?:\d+: )?(?:eval: )?", b"sh: ", result.output), result.exit_code


_NOT_THERE = (
    "pid is self",
    "high fd",
    "break outside",
    "continue outside",
    "set -C",
    "time",
    "trap list",
    "times",
    "ulimit",
    "trap usr1",
)
"""A loop around `eval` shows in a plain sh; messages twice; and what differs between two runs."""


@pytest.mark.parametrize("keep_state", [pytest.param(False, marks=pytest.mark.slow), True])
def test_any_posix_sh_can_be_the_kept_shell(keep_state: bool) -> None:
    path = shutil.which("dash") or shutil.which("busybox.sh")
    if path is None:
        pytest.skip("there is no sh here that is not bash")

    async def main() -> None:
        async with plain_sh("/bin/sh" if path.endswith("sh") else path) as box:
            assert box.info.shell == "sh"
            cwd = box.info.cwd
            start_over = f"cd {cwd}; export PATH=/usr/bin:/bin HOME={cwd}"
            wrong = {}
            for title, command in COMMANDS.items():
                if title in _NOT_THERE or "bash" in command:
                    continue
                quoted = "'" + command.replace("'", "'\\''") + "'"
                for _ in range(3):  # some race with their own background children
                    expected = _comparable(await box.exec(f"exec sh -c {quoted}", timeout_s=20, workdir=cwd))
                    result = _comparable(
                        await box.exec(command, timeout_s=20, workdir=cwd, keep_state=keep_state)
                    )
                    if keep_state:
                        await box.exec(start_over, timeout_s=20, keep_state=True)
                    if result == expected:
                        break
                else:
                    wrong[title] = (result, expected)
            assert wrong == {}

    if "dash" not in path:
        pytest.skip("messages are compared as dash has them")
    asyncio.run(main())


def test_plain_sh_carries_state() -> None:
    async def main() -> None:
        async with plain_sh("/bin/sh") as box:
            await box.exec("mkdir 'a b'; cd 'a b'; export A=\"x\n'y'\"; exit 3", timeout_s=5, keep_state=True)
            result = await box.exec('pwd; echo "$A"; unset A', timeout_s=5, keep_state=True)
            assert result.output.decode() == f"{box.info.cwd}/a b\nx\n'y'\n"
            assert (await box.exec("echo ${A-unset}", timeout_s=5)).output == b"unset\n"
            assert (await box.exec("sleep 60 & sleep 60", timeout_s=0.3)).timed_out
            assert (await box.exec("kill -9 $$", timeout_s=5)).exit_code == 137
            assert (await box.exec("pwd", timeout_s=5)).output.decode() == f"{box.info.cwd}/a b\n"

    asyncio.run(main())
