"""The connection to a Docker daemon, or to podman, which speaks the same language.

The SDK blocks, so that its calls run in a pool of threads of their own; only the streams of containers
are the event loop's.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from hermes_run.errors import BackendMissing, SandboxError
from hermes_run.spec.containers import find_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from docker import APIClient

_T = TypeVar("_T")

_TIMEOUT_S = 120
"""For one answer of the daemon, which takes minutes at most to create a container from a big image."""
_KNOCK_S = 10.0
_HELLO_S = 20
"""For its first answer, its version: a daemon that hangs is told soon."""
_PATIENCE_S = 30.0
"""For a daemon that has gone away during a run: one that is restarted is back by then."""
_POLL_S = 0.5
_CURES = {
    "Permission denied": (
        "you may not use its socket: add yourself to the group docker (`sudo usermod -aG docker $USER`, then"
        " log in again), or run a rootless daemon and name its socket in DOCKER_HOST"
    ),
    "No such file": (
        "nothing listens there: install docker (or podman with its socket) and start it, or name the"
        " daemon's address in DOCKER_HOST or in hermes.yaml (`sandbox: {docker_socket: ...}`)"
    ),
    "refused": "no daemon listens there: start it (`sudo systemctl start docker`, or dockerd)",
    "certificate verify failed": (
        "its certificate is not signed by the ca.pem in DOCKER_CERT_PATH; unset REQUESTS_CA_BUNDLE, which"
        " would be asked instead"
    ),
    "timed out": "the daemon does not answer in time: restart it",
}
_START_TROUBLES = (
    (re.compile(r"/bin/sh\b.*no such file|/bin/sh\b.*not found"), "its image has no shell, /bin/sh"),
    (re.compile(r'"/bin/sh": permission denied'), "its image's /bin/sh is no program that its user may run"),
    (re.compile(r"exec format error"), "its image is for another CPU than the Docker daemon's"),
    (re.compile(r"no space left"), "the Docker daemon's disk is full: make room (docker system prune)"),
    (
        re.compile(r"address pool"),
        "the Docker daemon has no address left for a network: remove unused ones (docker network prune)",
    ),
)
_TEMPORARY = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{12,64}\b|(?<=:)[0-9]{4,5}(?=->|\b)")


class Engine:
    """One run's connection, made when first used.

    Args:
        address: as in hermes.yaml (a path or an address), or "" for DOCKER_HOST and the usual places.
        threads: calls at one time.
    """

    def __init__(self, address: str, threads: int) -> None:
        self.address = find_address(address)
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="docker")
        self._lock = threading.Lock()
        self._client: APIClient | None = None

    def client(self) -> APIClient:
        """The SDK's client. Blocks. Raises BackendMissing."""
        with self._lock:
            if self._client is None:
                self._client = connect(self.address, self._threads)
            return self._client

    def submit(self, work: Callable[[APIClient], _T]) -> asyncio.Future[_T]:
        """Begin `work` in a thread. It is not stopped when whoever waits for it is."""
        return asyncio.get_running_loop().run_in_executor(self._pool, lambda: work(self.client()))

    def run(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Begin something else that blocks in a thread."""
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def call(self, work: Callable[[APIClient], _T]) -> _T:
        """Do `work` in a thread, and wait for it."""
        return await self.submit(work)

    async def come_back(self) -> None:
        """Wait for a daemon that does not answer any more. Raises BackendMissing when it stays away."""
        from docker.errors import DockerException

        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE_S
        while True:
            try:
                await self.run(lambda: _knock(self.address))
                await self.call(lambda client: client.ping())
            except (BackendMissing, DockerException, OSError) as error:
                if loop.time() > until:
                    raise no_daemon(self.address, error) from error
                await asyncio.sleep(_POLL_S)
            else:
                return

    def close(self) -> None:
        """Close the connections; calls in flight end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            if self._client is not None:
                self._client.close()


def connect(address: str, connections: int = 1) -> APIClient:
    """A client that has spoken with the daemon. Blocks. Raises BackendMissing with the cure."""
    if address.startswith("ssh:"):
        raise BackendMissing(
            "a Docker daemon over ssh:// cannot stream to sandboxes",
            cure="forward its socket: ssh -L /tmp/docker.sock:/var/run/docker.sock HOST, and"
            " DOCKER_HOST=unix:///tmp/docker.sock",
        )
    try:
        _knock(address)
    except OSError as error:  # before the SDK is imported, which forgets the socket when that fails
        raise no_daemon(address, error) from error
    import docker
    from docker.errors import DockerException
    from docker.utils import kwargs_from_env

    tls = kwargs_from_env().get("tls") if address.startswith(("tcp:", "https:")) else None
    try:
        client = docker.APIClient(
            base_url=address, version="auto", timeout=_HELLO_S, tls=tls or False, max_pool_size=connections
        )
    except (DockerException, OSError, ValueError) as error:
        raise no_daemon(address, error) from error
    client.timeout = _TIMEOUT_S
    return client


def _knock(address: str) -> None:
    """Connect and hang up. Raises OSError."""
    kind, _, place = address.partition("://")
    if kind in ("unix", "http+unix"):
        with socket.socket(socket.AF_UNIX) as knock:
            knock.settimeout(_KNOCK_S)
            knock.connect(f"/{place.lstrip('/')}")
    elif kind in ("tcp", "http", "https"):
        name, _, port = place.rstrip("/").rpartition(":")
        if port.isdigit():
            socket.create_connection((name.strip("[]"), int(port)), timeout=_KNOCK_S).close()


def no_daemon(address: str, error: BaseException) -> BackendMissing:
    """Why the daemon cannot be used, and the cure."""
    said = str(error)
    cure = next((cure for word, cure in _CURES.items() if word in said), "is it running?")
    return BackendMissing(f"no Docker daemon at {address}", cure=cure)


def explain(error: Exception) -> str:
    """What a daemon answered, without what differs from one time to the next."""
    said = getattr(error, "explanation", None) or str(error)
    if isinstance(said, bytes):
        said = said.decode("utf-8", "replace")
    return _TEMPORARY.sub("...", " ".join(said.split()))[:400]


class DaemonGone(SandboxError):
    """The daemon does not answer any more: it may be restarting."""


def start_error(error: Exception, address: str) -> SandboxError:
    """What is told of a call to the daemon that failed while a sandbox was started."""
    from docker.errors import APIError

    if isinstance(error, APIError):
        said = explain(error)
        why = next((why for pattern, why in _START_TROUBLES if pattern.search(said)), said)
        return SandboxError(f"a docker sandbox did not start: {why}", reason="sandbox_start")
    return DaemonGone(f"a docker sandbox did not start: {no_daemon(address, error)}", reason="sandbox_start")
