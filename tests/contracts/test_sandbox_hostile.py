"""The Sandbox contract against commands that mean harm: their sandbox may break, the runner must not."""

from __future__ import annotations

import asyncio
import ctypes
import sys
import time
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
    can(name, "network")

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
