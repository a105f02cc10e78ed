"""A web site on loopback: pages by path, each a function that writes whatever bytes it likes."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    Page = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """One request. Pages are on the server."""

    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        self.server.requests.append((self.command, self.path, dict(self.headers), self.body))
        page = self.server.pages.get(self.path.partition("?")[0])
        with contextlib.suppress(OSError):
            if page is None:
                self.give(b"not here", status=404)
            else:
                page(self)

    do_POST = do_GET  # noqa: N815 - the base's name

    def give(
        self, body: bytes, kind: str = "text/html; charset=utf-8", status: int = 200, **headers: str
    ) -> None:
        """A whole answer."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's signature
        del format, args


class Site(ThreadingHTTPServer):
    """`pages[path]` answers; `requests` are (method, path, headers, body) in order."""

    daemon_threads = True

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__((host, 0), Handler)
        self.pages: dict[str, Page] = {}
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def page(self, path: str, body: str | bytes, **more: Any) -> str:
        """Serve a body; its address."""
        data = body.encode() if isinstance(body, str) else body
        self.pages[path] = lambda handler: handler.give(data, **more)
        return self.url + path

    def redirect(self, path: str, to: str, status: int = 302) -> str:
        self.pages[path] = lambda handler: handler.give(b"", status=status, Location=to)
        return self.url + path

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up; that is what some tests are about."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()
