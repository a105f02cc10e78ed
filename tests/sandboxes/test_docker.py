"""What is docker's own: images of every kind, the daemon, what a container is made of."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from docker.errors import NotFound

from hermes_run.core.contracts import SandboxRequest
from hermes_run.errors import BackendMissing, SandboxError, ToolError
from hermes_run.sandboxes import _docker_engine
from hermes_run.sandboxes._ground import PLACE, owner
from hermes_run.sandboxes.docker import DockerBackend
from hermes_run.spec.containers import find_address
from hermes_run.spec.model import SandboxSettings, Settings
from tests import images
from tests.conftest import require
from tests.contracts.sandboxes import what_is_missing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from hermes_run.core.contracts import Sandbox

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _daemon() -> None:
    missing = what_is_missing("docker")
    if isinstance(missing, str):
        require("docker", missing)


@asynccontextmanager
async def opened(image: str, **request: Any) -> AsyncIterator[Sandbox]:
    """A sandbox from one of the images of the tests."""
    images.build(image)
    backend = DockerBackend("docker-run", Settings())
    try:
        async with backend.open(SandboxRequest(**_request(image=image, **request))) as box:
            yield box
    finally:
        await backend.aclose()


def _request(**changes: Any) -> dict[str, Any]:
    return {"run": f"docker-run-{os.getpid()}", "key": "k#0", **changes}


def said(image: str, command: str, **request: Any) -> str:
    """What a command says in a sandbox from an image."""

    async def main() -> str:
        async with opened(image, **request) as box:
            return (await box.exec(command, timeout_s=20)).output.decode()

    return asyncio.run(main())


def refusal(image: str, **request: Any) -> SandboxError:
    """The error of a sandbox that cannot be had."""

    async def main() -> None:
        async with opened(image, **request):
            pass

    with pytest.raises(SandboxError) as raised:
        asyncio.run(main())
    return raised.value


def containers() -> list[dict[str, Any]]:
    """This process's containers, whatever state they are in."""
    with images.daemon() as client:
        wanted = {"label": f"hermes-run.run=docker-run-{os.getpid()}"}
        found: list[dict[str, Any]] = client.containers(all=True, filters=wanted)
        return found


# ---------------------------------------------------------------- images of every kind


def test_entry_point_of_an_image_is_replaced() -> None:
    assert said(images.BLOCKS, "echo mine") == "mine\n"


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (images.NO_SHELL, "its image has no shell, /bin/sh"),
        (images.NO_PROGRAM, "its image's /bin/sh is no program that its user may run"),
    ],
)
def test_image_without_a_shell_fails_its_prompt_with_a_reason(image: str, why: str) -> None:
    error = refusal(image)
    assert error.reason == "sandbox_start"
    assert str(error) == f"a docker sandbox did not start: {why}"
    assert containers() == []


def test_shell_that_talks_and_never_listens_fails_in_time_with_its_last_words() -> None:
    started = time.monotonic()
    error = refusal(images.CHATTY_SHELL, start_timeout_s=3)
    assert 3 <= time.monotonic() - started < 3 + 5
    assert error.reason == "sandbox_start"
    assert "did not answer within 3 s" in str(error)
    assert "last words of the chatty shell" in str(error)
    assert len(str(error)) < 2000
    assert containers() == []


def test_shell_that_begins_with_a_banner_is_understood_all_the_same() -> None:
    async def main() -> None:
        async with opened(images.BANNER_SHELL) as box:
            assert (await box.exec("echo a; cd /tmp", timeout_s=20, keep_state=True)).output == b"a\n"
            big = b"x" * 100_000
            result = await box.exec("pwd; wc -c", timeout_s=20, stdin=big, keep_state=True)
            assert result.output.split() == [b"/tmp", b"100000"]
            long = await box.exec(f"echo {big.decode()}", timeout_s=20, max_output=100)
            assert (long.omitted, long.full_path) == (100_001 - 100, "/tmp/output-1.txt")

    asyncio.run(main())


def test_working_directory_is_the_images_unless_asked_for_another() -> None:
    assert said(images.WORKDIR, "pwd") == "/testbed/repo\n"
    assert said(images.WORKDIR, "pwd", cwd="sub") == "/testbed/repo/sub\n"
    assert said(images.WORKDIR, "pwd", cwd="/other/place") == "/other/place\n"


def test_image_with_its_own_user_works_as_that_user() -> None:
    command = "id -u; pwd; echo x > f && cat f; touch /etc/x 2>/dev/null || echo no; cat; echo $((1+1))"
    assert said(images.USER, command) == "1234\n/workspace\nx\nno\n2\n"

    async def main() -> None:
        async with opened(images.USER, cwd="/deep/er") as box:
            await box.exec("export A=1; cd /tmp", timeout_s=20, keep_state=True)
            result = await box.exec("echo $A $PWD", timeout_s=20, keep_state=True)
            assert result.output == b"1 /tmp\n"
            result = await box.exec("sleep 60 & sleep 60", timeout_s=0.3)
            assert result.timed_out
            assert (await box.exec("ps | grep -c '[s]leep'", timeout_s=20)).output == b"0\n"

    asyncio.run(main())


def test_environment_is_the_images() -> None:
    assert said(images.ENV, "echo $GREETING $PATH") == "hello /opt/bin:/bin\n"


def test_volumes_of_an_image_do_not_stay() -> None:
    def volumes() -> set[str]:
        with images.daemon() as client:
            return {each["Name"] for each in client.volumes()["Volumes"] or []}

    before = volumes()
    assert said(images.VOLUME, "echo x > /data/f; cat /data/f") == "x\n"
    assert volumes() - before == set()


def test_image_for_another_cpu_is_refused_before_anything_is_started() -> None:
    error = refusal(images.OTHER_CPU)
    assert error.reason == "image"
    assert "linux/s390x" in str(error)


@pytest.mark.parametrize("image", ["", "/etc", "./folder", "Upper/Case", "a b", "x:y:z", "-x", "ftp://x/y"])
def test_what_is_no_image_reference_is_said_to_be_none(image: str) -> None:
    async def main() -> None:
        backend = DockerBackend("docker-run", Settings())
        try:
            with pytest.raises(SandboxError) as raised:
                async with backend.open(SandboxRequest(**_request(image=image))):
                    pass
            assert raised.value.reason == "image"
        finally:
            await backend.aclose()

    asyncio.run(main())


def test_image_in_the_daemons_own_store_is_here() -> None:
    images.build(images.BUSYBOX)

    async def main() -> dict[str, bool]:
        backend = DockerBackend("docker-run", Settings())
        try:
            return await backend.images_present([images.BUSYBOX, "no/such:image", "No Image"])
        finally:
            await backend.aclose()

    assert asyncio.run(main()) == {images.BUSYBOX: True, "no/such:image": False, "No Image": False}


# ---------------------------------------------------------------- the container


_ODD_IDS = ["a:b", "../c", "x" * 300, "", "Überßen", "Case", "case", 'q"uote', "new\nline"]


def test_ids_that_are_no_names_are_labels_as_they_are() -> None:
    images.build(images.BUSYBOX)

    async def main() -> None:
        backend = DockerBackend("docker-run", Settings())

        async def one(row: str) -> None:
            request = _request(image=images.BUSYBOX, key=f"{row}#0", row_id=row)
            async with backend.open(SandboxRequest(**request)) as box:
                assert (await box.exec("echo ok", timeout_s=20)).output == b"ok\n"
                await asyncio.sleep(0.2)
                rows = {each["Labels"]["hermes-run.row"] for each in containers()}
                assert row in rows

        try:
            await asyncio.gather(*map(one, _ODD_IDS))
        finally:
            await backend.aclose()

    asyncio.run(main())
    assert containers() == []


def test_container_is_hardened() -> None:
    async def main() -> dict[str, Any]:
        async with opened(images.BUSYBOX, memory_mb=100, pids=50, cpus=0.5):
            with images.daemon() as client:
                found: dict[str, Any] = client.inspect_container(containers()[0]["Id"])
                return found

    found = asyncio.run(main())
    host = found["HostConfig"]
    assert host["CapDrop"] == ["ALL"]
    assert not {"SYS_ADMIN", "NET_RAW", "NET_ADMIN", "SYS_PTRACE", "MKNOD", "SYS_CHROOT"} & set(
        host["CapAdd"]
    )
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"]) == (100 << 20, 100 << 20, 500_000_000)
    assert 50 <= host["PidsLimit"] <= 60
    assert host["NetworkMode"] == "none"
    assert not host["Binds"]
    assert not host["Privileged"]
    assert set(host["Tmpfs"]) == {"/tmp", "/run/hermes-run"}
    assert found["Config"]["Hostname"] == "sandbox"


def test_orphans_are_reaped() -> None:
    command = (
        "for i in 1 2 3 4 5; do (sleep 0.1 & ) ; done; sleep 0.5; grep -l 'State:.Z' /proc/[0-9]*/status"
    )
    assert said(images.BUSYBOX, command) == ""
    assert said(images.BASH, command) == ""


def test_sandbox_without_room_for_a_process_says_so_and_goes_on() -> None:
    fill = "i=0; while [ $i -lt 20 ]; do sleep 1000 & i=$((i+1)); done; echo full"
    empty = 'for p in /proc/[0-9]*; do read -r c <$p/comm; [ "$c" = sleep ] && kill -9 ${p#/proc/}; done'

    async def main() -> None:
        async with opened(images.BUSYBOX, pids=20) as box:
            assert (await box.exec(fill, timeout_s=20)).output == b"full\n"
            with pytest.raises(ToolError, match="end processes"):
                await box.exec("cat", timeout_s=20, stdin=b"x" * 100_000)
            assert (await box.exec("echo on", timeout_s=20)).output == b"on\n"
            await box.exec(empty, timeout_s=20)
            result = await box.exec("wc -c", timeout_s=20, stdin=b"x" * 100_000)
            assert result.output.strip() == b"100000"

    asyncio.run(main())


def test_two_sandboxes_with_a_network_do_not_reach_each_other() -> None:
    async def main() -> None:
        images.build(images.BUSYBOX)
        backend = DockerBackend("docker-run", Settings())
        request = SandboxRequest(**_request(image=images.BUSYBOX, network="full"))
        try:
            async with backend.open(request) as one, backend.open(request) as other:
                address = (await one.exec("hostname -i", timeout_s=20)).output.decode().strip()
                await one.exec(
                    "while :; do echo secret | nc -l -p 9999; done >/dev/null 2>&1 &", timeout_s=20
                )
                here = await one.exec(f"nc -w 2 {address} 9999 </dev/null", timeout_s=20)
                assert here.output == b"secret\n"
                there = await other.exec(f"nc -w 2 {address} 9999 </dev/null", timeout_s=20)
                assert b"secret" not in there.output
        finally:
            await backend.aclose()
        with images.daemon() as client:
            assert client.networks(filters={"label": "hermes-run.run=docker-run"}) == []

    asyncio.run(main())


# ---------------------------------------------------------------- the daemon


def _trouble(address: str) -> str:
    async def main() -> None:
        backend = DockerBackend("docker-run", Settings(sandbox=SandboxSettings(docker_socket=address)))
        try:
            await backend.check()
        finally:
            await backend.aclose()

    with pytest.raises(BackendMissing) as raised:
        asyncio.run(main())
    return str(raised.value)


def test_missing_daemon_is_said_with_its_cure(tmp_path: Path) -> None:
    assert "install docker" in _trouble(str(tmp_path / "no.sock"))
    (tmp_path / "file.sock").write_text("")
    assert "start it" in _trouble(str(tmp_path / "file.sock"))
    assert "start it" in _trouble("tcp://127.0.0.1:1")
    assert "ssh -L" in _trouble("ssh://host")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody without permission")
def test_socket_without_permission_is_said_with_its_cure() -> None:
    program = (
        "import os, docker, requests, urllib3, http.client, docker.api.client\n"
        "from hermes_run.sandboxes._docker_engine import connect\n"
        "from hermes_run.spec.containers import find_address\n"
        "from hermes_run.errors import BackendMissing\n"
        "address = find_address('')\n"
        "os.setgroups([]); os.setegid(65534); os.seteuid(65534)\n"
        "try: connect(address)\nexcept BackendMissing as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "group docker" in done.stdout, done.stderr


def test_address_of_the_daemon_is_the_users_word_first() -> None:
    asked = {"DOCKER_HOST": "tcp://elsewhere:2376"}
    assert find_address("/my.sock", asked) == "unix:///my.sock"
    assert find_address("", asked) == "tcp://elsewhere:2376"
    assert find_address("", {}).startswith("unix:///")


# ---------------------------------------------------------------- the end of a runner

_DYING = """
import asyncio, sys
from hermes_run.core.contracts import SandboxRequest
from hermes_run.sandboxes.docker import DockerBackend
from hermes_run.spec.model import Settings

async def main():
    backend = DockerBackend("docker-run", Settings())
    async with backend.open(SandboxRequest(run=sys.argv[1], key="k", image=sys.argv[2])) as box:
        call = asyncio.create_task(box.exec("trap '' TERM; setsid sleep 600 & sleep 600", timeout_s=600))
        await asyncio.sleep(0.3)
        print("ready", flush=True)
        await call

asyncio.run(main())
"""


def test_container_of_a_killed_runner_goes_by_itself() -> None:
    images.build(images.BUSYBOX)
    run = f"docker-run-{os.getpid()}"
    dying = subprocess.Popen(
        [sys.executable, "-c", _DYING, run, images.BUSYBOX], stdout=subprocess.PIPE, text=True
    )
    assert dying.stdout is not None
    assert dying.stdout.readline() == "ready\n"
    assert len(containers()) == 1
    os.kill(dying.pid, signal.SIGKILL)
    dying.wait()
    dying.stdout.close()
    until = time.monotonic() + 10
    while containers() and time.monotonic() < until:
        time.sleep(0.1)
    assert containers() == []


@contextmanager
def _container(labels: dict[str, str], command: str) -> Iterator[str]:
    """A container that somebody has left; its id."""
    images.build(images.BUSYBOX)
    with images.daemon() as client:
        made = client.create_container(images.BUSYBOX, ["sh", "-c", command], labels=labels)["Id"]
        try:
            client.start(made)
            yield made
        finally:
            with contextlib.suppress(NotFound):
                client.remove_container(made, force=True)


def test_clean_takes_what_is_ours_and_dead_and_nothing_else() -> None:
    run = f"docker-run-{os.getpid()}"
    dead = {"hermes-run.run": run, "hermes-run.mark": "0" * 16, **owner()}
    foreign = dead | {"hermes-run.owner": "f" * 16}
    start, _, place = owner()[PLACE].partition("-")
    elsewhere = dead | {PLACE: f"{start}-{'f' * 16}"}
    earlier = dead | {PLACE: f"{'f' * 16}-{place}"}
    with (
        _container(elsewhere, "sleep 1000") as locked_elsewhere,
        _container(earlier, "sleep 1000") as of_earlier_start,
        _container(dead, "sleep 1000") as mine,
        _container(foreign, "sleep 1000") as running_elsewhere,
        _container(foreign, "true") as ended_elsewhere,
        _container({"hermes-run.run": run}, "sleep 1000") as unlabelled,
    ):
        time.sleep(0.5)
        backend = DockerBackend("docker-run", Settings())
        left = [each for each in backend.leftovers() if each.run == run]
        assert {each.handle.split()[-1] for each in left} == {mine, ended_elsewhere, of_earlier_start}
        assert all("docker container" in each.what for each in left)
        for each in left:
            backend.remove(each)
            backend.remove(each)
        assert [each for each in backend.leftovers() if each.run == run] == []
        assert {each["Id"] for each in containers()} == {running_elsewhere, locked_elsewhere, unlabelled}
        asyncio.run(backend.aclose())


# ---------------------------------------------------------------- daemons elsewhere


@contextmanager
def _elsewhere(folder: Path, *, has_tls: bool) -> Iterator[int]:
    """The daemon of this machine, by TCP; its port. With TLS, `folder` gets the client's files.

    A side that ends its stream still gets what the other has to say, as it does from the daemon itself.
    """
    context: ssl.SSLContext | None = None
    here = find_address("").removeprefix("unix://")
    if has_tls:
        _make_certificate(folder)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")

    def serve(plain: socket.socket) -> None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as there, plain:
            there.connect(here)
            near = context.wrap_socket(plain, server_side=True) if context else plain
            with near:
                _pump(near, there)

    server = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=[server.accept()[0]], daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def _pump(near: socket.socket, there: socket.socket) -> None:
    """Hand on what comes, both ways, until the daemon has ended its side."""
    open_sides = [near, there]
    while there in open_sides:
        pending = isinstance(near, ssl.SSLSocket) and near in open_sides and near.pending()
        for side in [near] if pending else select.select(open_sides, [], [])[0]:
            data = side.recv(1 << 16)
            other = there if side is near else near
            if data:
                other.sendall(data)
                continue
            open_sides.remove(side)
            other.shutdown(socket.SHUT_WR)


def _make_certificate(folder: Path) -> None:
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext"
    made = [*command.split(), "subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    (folder / "ca.pem").write_bytes((folder / "cert.pem").read_bytes())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate")
@pytest.mark.parametrize("has_tls", [False, True])
def test_daemon_elsewhere_is_reached_by_tcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_tls: bool
) -> None:
    images.build(images.BUSYBOX)
    big = os.urandom(1_000_000)

    async def main() -> None:
        backend = DockerBackend("docker-run", Settings())
        try:
            request = SandboxRequest(**_request(image=images.BUSYBOX, start_timeout_s=20))
            async with backend.open(request) as box:
                assert (await box.exec("cat", timeout_s=20, stdin=big, max_output=1 << 21)).output == big
                long = await box.exec("seq 1 100000", timeout_s=20, max_output=1000)
                kept = await box.exec(f"tail -n 1 {long.full_path}", timeout_s=20)
                assert kept.output == b"100000\n"
                assert (await box.exec("sleep 60", timeout_s=0.3)).timed_out
        finally:
            await backend.aclose()

    with _elsewhere(tmp_path, has_tls=has_tls) as port:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://localhost:{port}")
        if has_tls:
            monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
            monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
            for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # the SDK's HTTP library prefers them
                monkeypatch.delenv(name, raising=False)
        asyncio.run(asyncio.wait_for(main(), 60))
    monkeypatch.undo()
    assert containers() == []


# ---------------------------------------------------------------- eight at once


@pytest.mark.slow
def test_huge_outputs_of_eight_sandboxes_do_not_grow_the_runner() -> None:
    images.build(images.BUSYBOX)
    commands = [
        "head -c 104857600 /dev/zero | tr '\\0' x; exit 5",
        "i=0; while :; do echo line $i; i=$((i+1)); done",
        "cat /bin/busybox; exit 5",
        "printf 'caf\\351\\000\\033[1m\\rx\\r'; exit 5",
    ] * 2

    async def main() -> None:
        backend = DockerBackend("docker-run", Settings())

        async def one(number: int, command: str) -> None:
            request = SandboxRequest(**_request(image=images.BUSYBOX, key=f"{number}#0"))
            async with backend.open(request) as box:
                result = await box.exec(
                    command, timeout_s=10 if "while" in command else 120, max_output=50_000
                )
                assert len(result.output) <= 50_000
                assert result.exit_code == (124 if "while" in command else 5)

        try:
            await one(0, commands[2])
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            await asyncio.gather(*(one(number, command) for number, command in enumerate(commands)))
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB
        finally:
            await backend.aclose()

    asyncio.run(main())


def test_daemon_that_says_nothing_is_told_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_docker_engine, "_HELLO_S", 1)
    with socket.socket(socket.AF_UNIX) as silent:
        path = f"{tmp_path}/silent.sock"
        silent.bind(path)
        silent.listen()
        backend = DockerBackend("r", Settings(sandbox=SandboxSettings(docker_socket=path)))

        async def check() -> None:
            try:
                await backend.check()
            finally:
                await backend.aclose()

        with pytest.raises(BackendMissing, match="does not answer in time"):
            asyncio.run(asyncio.wait_for(check(), 30))
