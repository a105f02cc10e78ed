"""A registry of images in memory, on loopback: as much of the protocol as fetching needs, and troubles."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_BIG = 100_000
INDEX = "application/vnd.oci.image.index.v1+json"


class SmallRegistry:
    """What it has, what was asked of it, and what it does wrong.

    Attributes:
        host: the name before its images.
        asked: methods and paths, in order.
        refusals: statuses that requests for manifests get first, in order.
        login: `user:password` that it wants, or "".
        delay_s: how long each answer takes.
        until: when set, half of a big blob is sent, and the rest after this.
    """

    def __init__(self) -> None:
        self.host = ""
        self.asked: list[str] = []
        self.refusals: list[int] = []
        self.login = ""
        self.delay_s = 0.0
        self.until: threading.Event | None = None
        self._manifests: dict[str, tuple[str, bytes]] = {}
        self._blobs: dict[str, bytes] = {}

    def put(
        self,
        name: str,
        root: Path,
        *,
        config: dict[str, Any] | None = None,
        cpus: tuple[str, ...] = ("amd64",),
    ) -> str:
        """Make an image of a folder. Returns its digest: of an index, when it is for more than one CPU."""
        repository, _, tag = name.partition(":")
        made = [(cpu, self._image(repository, root, config or {}, cpu)) for cpu in cpus]
        kind, body = self._manifests[f"{repository}@{made[0][1]}"]
        if len(made) > 1:
            entries = [
                {
                    "mediaType": MANIFEST,
                    "digest": digest,
                    "size": 1,
                    "platform": {"architecture": cpu, "os": "linux"},
                }
                for cpu, digest in made
            ]
            for entry, (_, digest) in zip(entries, made, strict=True):
                entry["size"] = len(self._manifests[f"{repository}@{digest}"][1])
            kind, body = (
                INDEX,
                json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode(),
            )
        self._manifests[f"{repository}@{_digest(body)}"] = self._manifests[f"{repository}@{tag}"] = kind, body
        return _digest(body)

    def _image(self, repository: str, root: Path, config: dict[str, Any], cpu: str) -> str:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as tar:
            tar.add(root, arcname=".")
        layer = gzip.compress(file.getvalue(), 1)
        filesystem = {"type": "layers", "diff_ids": [_digest(file.getvalue())]}
        about = {"architecture": cpu, "os": "linux", "config": config, "rootfs": filesystem}
        configuration = json.dumps(about).encode()
        parts = {
            "config": ("application/vnd.oci.image.config.v1+json", configuration),
            "layer": ("application/vnd.oci.image.layer.v1.tar+gzip", layer),
        }
        described = {}
        for part, (kind, data) in parts.items():
            self._blobs[_digest(data)] = data
            described[part] = {"mediaType": kind, "digest": _digest(data), "size": len(data)}
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described["config"]}
        body = json.dumps({**manifest, "layers": [described["layer"]]}).encode()
        self._manifests[f"{repository}@{_digest(body)}"] = MANIFEST, body
        return _digest(body)

    def answer(self, path: str, authorization: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for a request."""
        if self.login and authorization != f"Basic {base64.b64encode(self.login.encode()).decode()}":
            return 401, {"WWW-Authenticate": 'Basic realm="tests"'}, b'{"errors":[{"code":"UNAUTHORIZED"}]}'
        repository, _, rest = path.removeprefix("/v2/").partition("/manifests/")
        if rest:
            if self.refusals:
                headers = {"Retry-After": "1"} if self.refusals[0] == 429 else {}
                return self.refusals.pop(0), headers, b'{"errors":[{"code":"TOOMANYREQUESTS"}]}'
            kind, body = self._manifests.get(f"{repository}@{rest}", ("", b""))
            if not body:
                return 404, {}, b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}'
            return 200, {"Content-Type": kind, "Docker-Content-Digest": _digest(body)}, body
        body = self._blobs.get(path.rpartition("/")[2], b"{}")
        return 200, {"Content-Type": "application/octet-stream"}, body


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who has seen enough hangs up."""


@contextmanager
def small_registry() -> Iterator[SmallRegistry]:
    """One that serves."""
    registry = SmallRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            registry.asked.append(f"{self.command} {self.path}")
            time.sleep(registry.delay_s)
            status, headers, body = registry.answer(self.path, self.headers.get("Authorization", ""))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                if registry.until is not None and "/blobs/" in self.path and len(body) > _BIG:
                    self.wfile.write(body[: len(body) // 2])
                    registry.until.wait(60)
                    body = body[len(body) // 2 :]
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the base's name

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    registry.host = f"127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
