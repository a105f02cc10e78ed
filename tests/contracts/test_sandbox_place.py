"""The Sandbox contract: what a command sees, and what it does not."""

from __future__ import annotations

import asyncio
import os
import posixpath
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_run.errors import SandboxError
from tests.contracts.sandboxes import can, image_of, opened, sh, text, within

if TYPE_CHECKING:
    from hermes_run.core.contracts import Sandbox

from typing import Any

_HOME, _HERE = Path.home(), Path.cwd()


@pytest.mark.parametrize(
    "cwd", ["", "/testbed", "/home/some one/x", "sub/folder", "/tmp/☃ 'q' \"d\" $x", "/workspace/a/../b"]
)
def test_cwd_is_made_and_can_be_written(name: str, cwd: str) -> None:
    async def work(box: Sandbox) -> None:
        assert (await text(box, "pwd")).rstrip("\n") == box.info.cwd
        assert await text(box, "echo x > f && mkdir d && cat f") == "x\n"
        assert box.info.cwd.endswith(posixpath.normpath(cwd).lstrip("/") if cwd else "workspace")

    within(name, work, cwd=cwd)


@pytest.mark.parametrize("cwd", ["/bin/sh", "/bin/sh/x", "/dev/null", "/proc/x", f"/{'x' * 300}"])
def test_cwd_that_cannot_be_a_folder_fails_its_own_start(name: str, cwd: str) -> None:
    if name == "local" and len(cwd) < 255:
        pytest.skip("has a root folder of its own, and makes it")

    async def work(_: Sandbox) -> None:
        pytest.fail("it started")

    with pytest.raises(SandboxError) as raised:
        within(name, work, cwd=cwd)
    assert raised.value.reason == "sandbox_start"
    assert str(raised.value)


def test_environment_has_nothing_of_the_runner(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_CANARY_KEY", "canary-of-the-environment")
    monkeypatch.setenv("OPENROUTER_API_KEY", "canary-of-the-environment")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("BASH_ENV", "/canary-of-the-environment")

    async def work(box: Sandbox) -> None:
        assert "canary" not in await text(
            box, "env; set; export -p; cat /proc/self/environ; cat /proc/$PPID/environ"
        )
        assert "PATH" in await text(box, "env")

    within(name, work)


def test_runner_descriptors_do_not_reach_the_sandbox(name: str, tmp_path: Any) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary-of-a-file")
    descriptor = os.open(secret, os.O_RDONLY)
    os.set_inheritable(descriptor, True)

    async def work(box: Sandbox) -> None:
        seen = await text(box, "ls -l /proc/self/fd /proc/$PPID/fd; ls -l /proc/1/fd 2>/dev/null || true")
        assert "secret" not in seen

    try:
        within(name, work)
    finally:
        os.close(descriptor)


def test_files_of_the_host_are_invisible(name: str, tmp_path: Any) -> None:
    can(name, "files")
    (tmp_path / "canary").write_text("canary-of-a-file")

    async def work(box: Sandbox) -> None:
        seen = await sh(
            box,
            f"cat {tmp_path}/canary {__file__} /etc/shadow /etc/hostname; ls {_HOME} {_HERE} /var/log",
        )
        assert b"canary-of-a-file" not in seen.output
        assert b"canary" not in (await sh(box, f"ls -R /proc/1/root{tmp_path} /proc/1/cwd/../tmp")).output
        host = os.uname().nodename
        assert host not in await text(box, "hostname; cat /etc/hostname /etc/hosts; uname -n")
        if image_of(name):
            return  # the folders are the image's, and the sandbox's own
        for folder in (
            "/",
            "/usr",
            "/usr/bin",
            "/etc",
            "/dev",
            "/lib",
            "/run",
            "/run/hermes-run",
            "/proc",
            "/var",
        ):
            assert (await sh(box, f"touch {folder}/x")).exit_code != 0, folder

    within(name, work)


def test_processes_of_the_host_are_invisible(name: str) -> None:
    can(name, "processes")

    async def work(box: Sandbox) -> None:
        assert (await sh(box, f"kill -0 {os.getpid()}")).exit_code != 0 or os.getpid() < 20
        assert int(await text(box, "ls -d /proc/[0-9]* | wc -l")) < 15

    within(name, work)


_GATEWAY = (
    "while read -r _ to gate _; do [ $to = 00000000 ] && break; done </proc/net/route;"
    ' printf "%d.%d.%d.%d" $(echo $gate | sed "s/\\(..\\)\\(..\\)\\(..\\)\\(..\\)/0x\\4 0x\\3 0x\\2 0x\\1/")'
)
"""The address of the host where a sandbox has a network of its own."""


def test_there_is_no_network_unless_asked(name: str) -> None:
    can(name, "network")

    async def serve(network: str) -> str:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"from the host\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "0.0.0.0", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, opened(name, network=network) as box:
            connect = "nc $h $p </dev/null" if box.info.shell == "sh" else "exec 3<>/dev/tcp/$h/$p && cat <&3"
            return await text(box, f"p={port}; for h in 127.0.0.1 $({_GATEWAY}); do ( {connect} ); done")

    assert "from the host" not in asyncio.run(serve("none"))
    assert "from the host" in asyncio.run(serve("full"))


def test_two_sandboxes_never_see_each_other(name: str) -> None:
    can(name, "files", "processes")

    async def main() -> None:
        async with opened(name) as one, opened(name) as other:
            await sh(one, "echo secret-of-one | tee /tmp/f /dev/shm/f f; sleep 777 & disown", timeout_s=5)
            seen = await text(other, "cat /tmp/f /dev/shm/f f /proc/*/cmdline; ls -R /workspace /tmp /run")
            assert "secret-of-one" not in seen
            assert "777" not in await text(other, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")

    asyncio.run(main())
