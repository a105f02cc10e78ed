"""A Docker daemon that goes away in the middle of a run, for a while or for good."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from hermes_run.core.contracts import SandboxRequest
from hermes_run.errors import BackendMissing
from hermes_run.sandboxes import _docker_engine
from hermes_run.sandboxes.docker import DockerBackend
from hermes_run.spec.containers import find_address
from hermes_run.spec.model import SandboxSettings, Settings
from tests import images
from tests.conftest import require
from tests.contracts.sandboxes import what_is_missing
from tests.flow.lab import Lab
from tests.servers import Answer, ModelServer, Request, says

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    # The SDK forgets its socket when it cannot connect.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


_RUN = f"gone-run-{os.getpid()}"


@pytest.fixture(autouse=True)
def _daemon() -> Iterator[None]:
    missing = what_is_missing("docker")
    if isinstance(missing, str):
        require("docker", missing)
    images.build(images.BUSYBOX)
    yield
    gc.collect()  # while what it says of forgotten sockets is not minded


class Daemon:
    """The daemon of this machine at another socket, where it can go away and come back."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._here = find_address("").removeprefix("unix://")
        self._links: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._server: socket.socket | None = None

    def __enter__(self) -> Self:
        self.come()
        return self

    def __exit__(self, *_: object) -> None:
        self.go()

    def come(self) -> None:
        server = self._server = socket.socket(socket.AF_UNIX)
        Path(self.path).unlink(missing_ok=True)
        server.bind(self.path)
        server.listen(50)
        self._begin(self._accept, server)

    def go(self) -> None:
        """As if it was killed: nobody listens, and who was connected is cut off."""
        server, self._server = self._server, None
        if server is None:
            return
        while any(thread.is_alive() for thread in self._threads):
            for link in (server, *self._links):
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
            for thread in tuple(self._threads):
                thread.join(0.05)
        for link in (server, *self._links):
            link.close()
        self._links.clear()
        self._threads.clear()

    def _begin(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                near = server.accept()[0]
            except OSError:
                return
            there = socket.socket(socket.AF_UNIX)
            there.connect(self._here)
            self._links += [near, there]
            for one, other in ((near, there), (there, near)):
                self._begin(_hand_on, one, other)


def _hand_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def _opened(daemon: Daemon, meanwhile: Callable[[], None]) -> bytes:
    """What the second sandbox says; `meanwhile` is called before it is opened."""

    async def main() -> bytes:
        backend = DockerBackend(_RUN, Settings(sandbox=SandboxSettings(docker_socket=daemon.path)))
        request = SandboxRequest(run=_RUN, key="k", image=images.BUSYBOX, network="full")
        try:
            async with backend.open(request):
                pass
            meanwhile()
            async with backend.open(request) as box:
                return (await box.exec("echo again", timeout_s=20)).output
        finally:
            await backend.aclose()

    return asyncio.run(asyncio.wait_for(main(), 60))


def test_daemon_that_is_restarted_is_waited_for(tmp_path: Path) -> None:
    def restart() -> None:
        daemon.go()
        threading.Timer(1.0, daemon.come).start()

    with Daemon(tmp_path / "sock") as daemon:
        assert _opened(daemon, restart) == b"again\n"


def test_daemon_that_stays_away_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_docker_engine, "_PATIENCE_S", 1)
    with Daemon(tmp_path / "sock") as daemon, pytest.raises(BackendMissing) as raised:
        _opened(daemon, daemon.go)
    assert daemon.path in str(raised.value)
    assert "start it" in str(raised.value)
    _clean()


def _clean() -> None:
    backend = DockerBackend("cleaning", Settings())
    for leftover in backend.leftovers():
        if leftover.run == _RUN:
            backend.remove(leftover)
    assert [leftover for leftover in backend.leftovers() if leftover.run == _RUN] == []


def test_clean_says_that_it_could_not_ask_the_daemon(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    with Daemon(tmp_path / "sock") as daemon:
        lab.env["DOCKER_HOST"] = f"unix://{daemon.path}"
        assert "docker" not in lab.call("clean", "--dry-run", "--json").json().get("not_looked_at", {})
        daemon.go()
        told = lab.call("clean", "--dry-run", "--json").json()
        assert daemon.path in told["not_looked_at"]["docker"]


def test_prompts_after_the_end_of_the_daemon_stay_pending(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab", {"sandbox": {"backend": "docker", "image": images.BUSYBOX}, "workers": 2})
    lab.write_prompts(*(f"[{number}]" for number in range(20)))
    with ModelServer() as server, Daemon(tmp_path / "sock") as daemon:

        def respond(request: Request) -> Answer:
            if b"[6]" in request.body:
                daemon.go()
            return says("done", reasoning="r")

        server.respond = respond
        lab.use_server(server.url)
        lab.env["DOCKER_HOST"] = f"unix://{daemon.path}"
        result = lab.run("-q")
        assert result.code == 4, result.err
        assert "no Docker daemon at unix://" in result.err
        statuses = lab.statuses()
        assert statuses["completed"] >= 5
        assert statuses["completed"] + statuses["failed"] <= 9
        daemon.come()
        server.respond = lambda _: says("done", reasoning="r")
        assert lab.run("-q").code == 0
        assert lab.statuses() == {"completed": 20}
