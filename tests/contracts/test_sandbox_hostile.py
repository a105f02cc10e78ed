"""The Sandbox contract against commands that mean harm: their sandbox may break, the runner must not."""

from __future__ import annotations

import asyncio
import ctypes
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_run.errors import SandboxError
from tests.contracts.sandboxes import can, sh, text, within

if TYPE_CHECKING:
    from hermes_run.core.contracts import Sandbox

_LIMITS = {"pids": 64, "memory_mb": 512}
_WIRE = """
import os, socket, time
fds = [fd for fd in range(3, 64) if os.path.islink(f"/proc/self/fd/{fd}")]
links = [fd for fd in fds if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")]
if not links and hasattr(os, "pidfd_open"):
    import ctypes
    steal = lambda pid: ctypes.CDLL(None).syscall(438, os.pidfd_open(pid), 1, 0)
    links = [fd for fd in (steal(os.getppid()), steal(SUPERVISOR)) if fd >= 0]
wire = links[0]
"""
"""Takes the runner's own connection to the kept shell out of another process (pidfd_getfd)."""


async def _python(box: Sandbox, program: str, **options: float) -> str:
    """Run a Python program in the sandbox, whose system must have one."""
    if not await text(box, "command -v python3"):
        pytest.skip("no python3 in the sandbox")
    result = await sh(box, f"python3 - <<'PROGRAM'\n{program}\nPROGRAM", **options)
    return result.output.decode(errors="replace")


def test_commands_get_no_descriptor_but_their_own_three(name: str) -> None:
    async def work(box: Sandbox) -> None:
        assert (
            await text(box, "for f in /proc/self/fd/*; do echo ${f##*/}; done | head -n 4") == "0\n1\n2\n3\n"
        )
        assert "socket" not in await text(box, "ls -l /proc/self/fd")

    within(name, work)


@pytest.mark.slow
@pytest.mark.parametrize(
    "forgery",
    [
        "os.write(wire, b'2 0\\n')",
        "os.write(wire, b'2 ' + b'9' * 5000 + b'\\n')",
        "os.write(wire, b'gone 0\\ngone\\n2 -1\\n2\\n\\xb2 \\xb2\\n2 1000\\n')",
        "[os.write(wire, b'x' * 65536) for _ in range(9)]",
        "[os.write(wire, b'7 0\\n' * 10000) for _ in range(99)]",
        "socket.socket(fileno=wire).shutdown(2)",
    ],
)
def test_forged_answers_of_the_shell_break_nothing_but_their_sandbox(name: str, forgery: str) -> None:
    async def work(box: Sandbox) -> None:
        supervisor = (
            "1" if name == "bubblewrap" else await text(box, "ps -o ppid= -p $PPID 2>/dev/null || echo 1")
        )
        program = _WIRE.replace("SUPERVISOR", supervisor.strip()) + forgery + "\ntime.sleep(30)"
        started = time.monotonic()
        for command in (program, "print('on')", "print('on')"):
            try:
                await _python(box, command, timeout_s=2)
            except SandboxError as error:
                assert error.reason == "sandbox_lost"  # noqa: PT017 - either is right: answered, or lost
        assert time.monotonic() - started < 12

    async def in_time(box: Sandbox) -> None:
        async with asyncio.timeout(30):
            await work(box)

    within(name, in_time, **_LIMITS)


_KEYCTL, _ADD_KEY = 250, 248
_JOIN_SESSION, _SESSION = 1, -3


@pytest.mark.skipif(sys.platform != "linux", reason="kernel keyrings are Linux's")
def test_keys_of_the_host_kernel_are_invisible(name: str) -> None:
    can(name, "files")
    kernel = ctypes.CDLL(None)
    if kernel.syscall(_KEYCTL, _JOIN_SESSION, None) < 0:
        pytest.skip("no kernel keyrings here (or another architecture)")
    assert kernel.syscall(_ADD_KEY, b"user", b"canary", b"canary-of-a-keyring", 19, _SESSION) > 0

    async def work(box: Sandbox) -> None:
        program = """
import ctypes
kernel = ctypes.CDLL(None)
key = kernel.syscall(250, 10, -3, b"user", b"canary", 0)
found = ctypes.create_string_buffer(99)
kernel.syscall(250, 11, key, found, 99)
print(key, found.value, kernel.syscall(248, b"user", b"left", b"here", 4, -3))
"""
        assert await _python(box, program) == "-1 b'' -1\n"

    within(name, work)


def test_sockets_that_no_namespace_holds_cannot_be_made(name: str) -> None:
    can(name, "network", "vsock")

    async def work(box: Sandbox) -> None:
        program = """
import socket
for family in (1, 2, 10, 16, 17, 38, 40):
    try:
        socket.socket(family, 1 if family in (1, 2, 10, 40) else 3).close()
        print(family)
    except OSError:
        pass
"""
        assert (await _python(box, program)).split() == ["1", "2", "10", "16"]

    within(name, work)


@pytest.mark.parametrize(
    "command",
    [
        "export UID EUID PPID",
        "export SHELLOPTS BASHOPTS POSIXLY_CORRECT=1",
        "set -o posix; export UID GROUPS BASH_VERSINFO BASH_SOURCE DIRSTACK",
        "export TEXT='one\ndeclare -rx UID=\"5\"\ntwo'; readonly TEXT; export UID",
        "export PS1=x PROMPT_COMMAND='echo evil' BASH_ENV=/tmp/evil ENV=/tmp/evil IFS=x GLOBIGNORE='*'",
        "export __c='echo evil' __x=1 __s=4 __w=5 __p=6 __k=7 __u=8 __n=9 __o=/dev/null __i=/dev/null",
    ],
)
def test_whatever_is_exported_the_next_call_does_what_it_says(name: str, command: str) -> None:
    async def work(box: Sandbox) -> None:
        await sh(box, command, keep_state=True)
        assert await text(box, "mkdir d; cd d; echo one", keep_state=True) == "one\n"
        uid = "${UID:+set}" if box.info.shell == "bash" else "set"  # sh has no UID of its own
        assert (
            await text(box, f'echo "${{PWD##*/}} {uid}"; set +u; echo two', keep_state=True) == "d set\ntwo\n"
        )
        if "TEXT" in command and await text(box, "command -v printenv"):
            assert 'declare -rx UID="5"' in await text(box, "printenv TEXT; printenv UID >&2")

    within(name, work)


@pytest.mark.parametrize(
    "harm", ["rm -rf $p", "rm $p/*; mkdir $p/o1", "rm $p/*; ln -s /dev/zero $p/o1", "touch $p/o2 $p/i2"]
)
def test_harm_done_to_the_pipes_loses_at_most_the_sandbox(name: str, harm: str) -> None:
    async def work(box: Sandbox) -> None:
        if not await text(box, "command -v readlink"):
            pytest.skip("no readlink in the sandbox")
        await sh(box, f"sleep 3 & exec 9>&1; p=$(readlink /proc/self/fd/9); p=${{p%/*}}; {harm}")
        for _ in range(2):
            try:
                assert await text(box, "cat", stdin=b"in\n", timeout_s=3) == "in\n"
            except SandboxError as error:
                assert (error.reason, "/" in str(error)) == ("sandbox_lost", False)  # noqa: PT017 - as above

    within(name, work, **_LIMITS)


def _descriptors() -> int:
    return len([*Path("/dev/fd").iterdir()])


@pytest.mark.slow
def test_background_writers_cannot_use_up_the_runners_descriptors(name: str) -> None:
    async def work(box: Sandbox) -> None:
        before = _descriptors()
        for _ in range(40):
            await sh(box, "(sleep 20; echo late) & exit 3")
        assert _descriptors() - before < 40
        assert await text(box, "echo ok") == "ok\n"

    within(name, work)


def test_folder_too_deep_for_any_path_does_not_outlive_its_sandbox(name: str) -> None:
    async def work(box: Sandbox) -> None:
        dig = "for i in range(1200): os.mkdir('d'); os.chdir('d')"
        await _python(box, f"import os\n{dig}\nprint('dug')")

    within(name, work)
