"""What only bubblewrap has to show: starts that fail or hang, odd working directories, other users."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_run.core.contracts import SandboxRequest
from hermes_run.errors import BackendMissing, SandboxError
from hermes_run.sandboxes.bubblewrap import BubblewrapBackend, find_bwrap
from hermes_run.spec.model import SandboxSettings, Settings
from tests.conftest import require

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.bubblewrap


@pytest.fixture(autouse=True)
def _needs_bubblewrap() -> None:
    async def check() -> None:
        backend = BubblewrapBackend("check", Settings())
        try:
            await backend.check()
        finally:
            await backend.aclose()

    try:
        asyncio.run(check())
    except BackendMissing as error:
        require("bubblewrap", str(error))


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A `bwrap` of our own, found before any other."""
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo bubblewrap 99.0 && exit\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


async def start(backend: BubblewrapBackend, **request: object) -> str:
    options: dict[str, object] = {"run": "r", "key": "k", **request}
    async with backend.open(SandboxRequest(**options)) as box:  # type: ignore[arg-type]
        return (await box.exec("echo up", timeout_s=10)).output.decode()


def with_backend(work: Callable[[BubblewrapBackend], Awaitable[object]], starts_in_flight: int = 8) -> None:
    async def main() -> None:
        settings = Settings(sandbox=SandboxSettings(starts_in_flight=starts_in_flight))
        backend = BubblewrapBackend("r", settings)
        try:
            await work(backend)
        finally:
            await backend.aclose()

    asyncio.run(main())


def failure(**request: object) -> SandboxError:
    with pytest.raises(SandboxError) as raised:
        with_backend(lambda backend: start(backend, **request))
    assert raised.value.reason == "sandbox_start"
    return raised.value


@pytest.mark.parametrize(
    "cwd",
    [
        "/usr/x",
        "/etc",
        "/proc/1",
        "/dev/shm/x",
        "/workspace/../usr",
        "/sys",
        "/run/hermes-run/x",
        "a\0b",
        "//usr//x",
    ],
)
def test_cwd_inside_system_folders_is_refused_by_name(cwd: str) -> None:
    message = str(failure(cwd=cwd))
    assert repr(cwd) in message
    assert "/workspace" in message


def test_cwd_too_long_for_a_file_name_fails_its_own_start() -> None:
    assert "did not start" in str(failure(cwd="/" + "x" * 300))


def test_start_that_hangs_fails_within_its_timeout_with_the_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_on_path(
        tmp_path,
        monkeypatch,
        "head -c 200000 /dev/zero | tr '\\0' 'x'; echo; echo last words; exec sleep 600",
    )
    started = time.monotonic()
    message = str(failure(start_timeout_s=1))
    assert 1 <= time.monotonic() - started < 2.5
    assert "within 1 s" in message
    assert "last words" in message
    assert len(message) < 2000


def test_start_that_fails_says_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(tmp_path, monkeypatch, "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    message = str(failure())
    assert "No permissions to create new namespace" in message
    assert "unprivileged_userns_clone" in message

    with pytest.raises(BackendMissing, match="unprivileged_userns_clone"):
        with_backend(lambda backend: backend.check())


def test_errors_name_no_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(tmp_path, monkeypatch, 'echo "bwrap: bad: $*" >&2; exit 1')
    assert "hermes-run-" not in str(failure())
    said = 'for word; do case $word in /*/etc-none) echo "bwrap: no $word" >&2;; esac; done; exit 1'
    put_on_path(tmp_path, monkeypatch, said)
    assert str(failure()).endswith("bwrap: no <folder>/etc-none")


def test_hanging_starts_hold_up_nobody_who_has_a_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = find_bwrap()
    put_on_path(
        tmp_path, monkeypatch, f'case "$*" in *"--size 7340032 "*) exec sleep 600;; esac; exec {real} "$@"'
    )

    async def work(backend: BubblewrapBackend) -> None:
        async def hang() -> None:
            with pytest.raises(SandboxError, match="within 2 s"):
                await start(backend, memory_mb=14, start_timeout_s=2)  # /workspace is half of it

        hanging = [asyncio.create_task(hang()) for _ in range(3)]
        await asyncio.sleep(0.1)
        began = time.monotonic()
        for _ in range(4):
            assert await start(backend) == "up\n"
        assert time.monotonic() - began < 1.5
        await asyncio.gather(*hanging)

    with_backend(work)


def test_starts_in_flight_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = find_bwrap()
    put_on_path(tmp_path, monkeypatch, f'echo + >> {tmp_path}/log; sleep 0.2; exec {real} "$@"')

    async def work(backend: BubblewrapBackend) -> None:
        began = time.monotonic()
        await asyncio.gather(*(start(backend, key=str(number)) for number in range(6)))
        assert time.monotonic() - began >= 3 * 0.2

    with_backend(work, starts_in_flight=2)
    assert (tmp_path / "log").read_text().count("+") == 6


def test_nothing_of_a_prompt_is_written_outside_the_sandbox() -> None:
    async def work(backend: BubblewrapBackend) -> None:
        async with backend.open(SandboxRequest(run="r", key="k", cwd="/testbed")) as box:
            await box.exec("echo text-of-a-prompt | tee f /tmp/f /workspace/f", timeout_s=10)
            mounts = (await box.exec("cat /proc/self/mountinfo", timeout_s=10)).output.decode()
        writable = {
            line.split()[4]: line.split(" - ")[1].split()[0]
            for line in mounts.splitlines()
            if "rw," in line.split()[5]
        }
        assert {kind for place, kind in writable.items() if not place.startswith("/dev/")} == {"tmpfs"}

    with_backend(work)


def test_commands_cannot_get_out_of_their_namespaces() -> None:
    async def work(backend: BubblewrapBackend) -> None:
        async with backend.open(SandboxRequest(run="r", key="k")) as box:
            for command in (
                "unshare -U true",
                "unshare -m true",
                "mount -t tmpfs x /mnt",
                "mount -o remount,rw /",
                "umount /tmp",
                "mknod d c 1 3",
                "chroot / true",
                "echo 1 > /proc/sys/vm/drop_caches",
                "echo core > /proc/sys/kernel/core_pattern",
                "echo 50 > /proc/sys/vm/swappiness",
                "for f in /proc/irq/*/smp_affinity; do cat $f > $f && exit; done; exit 1",
                "echo h > /proc/sysrq-trigger",
                "find /proc/sys /proc/irq /proc/bus /proc/fs /proc/acpi -type f -writable | grep .",
                "nsenter -t 1 -m true",
                "chmod 777 /run/hermes-run; touch /run/hermes-run/x",
                "echo x > /proc/sys/kernel/hostname",
                "dmesg; cat /dev/mem /dev/kmsg; ls /dev/sd* /dev/vd*",
            ):
                assert (await box.exec(command, timeout_s=10)).exit_code != 0, command
            status = (await box.exec("cat /proc/self/status", timeout_s=10)).output
            assert b"CapEff:\t0000000000000000" in status
            assert b"CapBnd:\t0000000000000000" in status
            assert b"NoNewPrivs:\t1" in status

    with_backend(work)


_AS_ANOTHER_USER = """
import asyncio, os, sys
sys.path[:0] = sys.argv[1:]
os.setgid(12345); os.setgroups([]); os.setuid(12345)
from hermes_run.core.contracts import SandboxRequest
from hermes_run.sandboxes.bubblewrap import BubblewrapBackend
from hermes_run.spec.model import Settings

async def main():
    backend = BubblewrapBackend("r", Settings())
    async with backend.open(SandboxRequest(run="r", key="k", pids=30)) as box:
        print(box.info.missing)
        result = await box.exec("id -u; exec sh -c 'while sleep 1 & do echo y; done'", timeout_s=5)
        print(result.output.decode().split("\\n")[0], 10 < result.output.count(b"y") <= 30)
        print((await box.exec("sleep 60 & sleep 60", timeout_s=0.2)).timed_out)
        print((await box.exec("seq 100000", timeout_s=5, max_output=100)).full_path)
    await backend.aclose()

asyncio.run(main())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_user_without_privileges_has_the_same_sandbox() -> None:
    paths = [str(Path(__file__).parents[2]), *(path for path in sys.path if path.endswith("site-packages"))]
    python = "/usr/bin/python3"
    version = subprocess.run(
        [python, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, check=False
    )
    if version.stdout.decode().strip() != str(sys.version_info[:2]):
        pytest.skip("the system's python3 cannot load this environment's packages")
    ran = subprocess.run([python, "-c", _AS_ANOTHER_USER, *paths], capture_output=True, cwd="/", check=False)
    if b"PermissionError" in ran.stderr or b"ModuleNotFoundError" in ran.stderr:
        pytest.skip("another user cannot read this checkout")
    lines = ran.stdout.decode().splitlines()
    assert lines[1:] == ["65534 True", "True", "/tmp/output-1.txt"], ran.stderr.decode()
