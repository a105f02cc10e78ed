"""A real image registry on loopback, and one that is busy at first.

::

    with registry(tmp_path) as host:                 # 127.0.0.1:PORT
        image = push(images.BUSYBOX, f"{host}/busybox:1")
    with registry(tmp_path, has_login=True) as host: # user:secret
    with busy(host, times=2) as (other, asked):      # answers 429 to the first two requests for a manifest
    with busy(host, stalls=True) as (other, asked):  # gives no blob, and says nothing
"""

from __future__ import annotations

import http.client
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from tests import images
from tests.conftest import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CONFIG = """version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}/store}}, delete: {{enabled: true}}}}
http: {{addr: "{host}"}}
"""
_LOGIN = "auth: {{htpasswd: {{realm: test, path: {folder}/htpasswd}}}}\n"
_PASSWORDS = "user:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"
"""bcrypt, cost 5, of `secret`; checked by the test that logs in."""

_REFUSAL = b'{"errors":[{"code":"TOOMANYREQUESTS","message":"you have reached your pull rate limit"}]}'


@contextmanager
def registry(folder: Path, *, has_login: bool = False) -> Iterator[str]:
    """A docker-registry; the name before its images."""
    program = shutil.which("docker-registry")
    if program is None:
        require("docker", "no docker-registry: install Debian's docker-registry")
    folder.mkdir(parents=True, exist_ok=True)
    host = f"127.0.0.1:{_free_port()}"
    config = folder / "config.yml"
    (folder / "htpasswd").write_text(_PASSWORDS)
    text = _CONFIG + (_LOGIN if has_login else "")
    config.write_text(text.format(folder=folder, host=host))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, "serve", str(config)], stdout=log, stderr=log)
    try:
        _wait_for(host)
        yield host
    finally:
        process.kill()
        process.wait()


def push(image: str, name: str, login: dict[str, str] | None = None) -> None:
    """Make `image` known as `name` to its registry alone."""
    images.build(image)
    push_from_store(image, name, login)


def push_from_store(image: str, name: str, login: dict[str, str] | None = None) -> None:
    """The same for an image that the daemon has."""
    repository, _, tag = name.rpartition(":")
    with images.daemon() as client:
        client.tag(image, repository, tag)
        for word in client.push(repository, tag, stream=True, decode=True, auth_config=login):
            if "error" in word:
                raise RuntimeError(word["error"])
        client.remove_image(name)


class _Busy(BaseHTTPRequestHandler):
    """Hands on what is asked of another registry, but for manifests, while it is busy."""

    upstream = ""
    left = 0
    asked: list[str]
    gate: threading.Event | None = None

    def do_GET(self) -> None:
        if "/manifests/" in self.path:
            self.asked.append(self.path)
            if type(self).left > 0:
                type(self).left -= 1
                self._answer(429, {"Content-Type": "application/json"}, _REFUSAL)
                return
        if self.gate is not None and "/blobs/" in self.path:
            self.gate.wait(30)
        connection = http.client.HTTPConnection(self.upstream, timeout=30)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        connection.request(self.command, self.path, headers=headers)
        answer = connection.getresponse()
        kept = {n: v for n, v in answer.getheaders() if n.lower() not in ("transfer-encoding", "connection")}
        self._answer(answer.status, kept, answer.read())
        connection.close()

    do_HEAD = do_GET  # noqa: N815 - the base's name

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@contextmanager
def busy(upstream: str, times: int = 0, *, stalls: bool = False) -> Iterator[tuple[str, list[str]]]:
    """A registry that is busy for the first `times` requests; its name, and what was asked of it."""
    asked: list[str] = []
    gate = threading.Event() if stalls else None
    attributes = {"upstream": upstream, "left": times, "asked": asked, "gate": gate}
    handler = type("Busy", (_Busy,), attributes)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", asked
    finally:
        if gate is not None:
            gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(host: str) -> None:
    name, _, port = host.partition(":")
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            socket.create_connection((name, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"no registry at {host}")
