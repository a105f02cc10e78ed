"""Connections to the outside: names resolved here, addresses checked, and exactly those connected to.

Whoever resolves a name twice can be given two answers; so the address that was checked is the one that
is connected to. The spec's `tools.allowed_hosts` are the exceptions: a name as it is written in a URL,
with or without a port, no pattern of names.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hermes_run.errors import ToolError
from hermes_run.outside.addresses import why_refused
from hermes_run.spec.keys_and_hosts import normal_host, parse_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Resolve = Callable[[str, int], Sequence[str]]

CONNECT_TIMEOUT_S = 10.0
RESOLVE_TIMEOUT_S = 10.0
_RESOLVERS = 8
_MOST_ADDRESSES = 6
_MOST_REMEMBERED = 1000


class Refused(ToolError):
    """A place that may not be reached, or cannot be; the text is for the model."""


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, in the system's order. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class Gate:
    """Decides what may be reached, and connects.

    Args:
        allowed: hosts (`host` or `host:port`) that may be reached whatever their addresses are.
        resolver: gives the addresses of a name; the system's by default.
    """

    def __init__(self, allowed: Iterable[str] = (), resolver: Resolve = resolve) -> None:
        parsed = (parse_host(text) for text in allowed)
        self._allowed = frozenset((_bare(each[0]), each[1]) for each in parsed if each is not None)
        self._resolve = resolver
        self._threads: ThreadPoolExecutor | None = None
        self._refusals: dict[tuple[str, int], str] = {}

    def is_allowed(self, host: str, port: int) -> bool:
        """Whether the spec lets this host through by name."""
        name = _bare(normal_host(host))
        return (name, port) in self._allowed or (name, None) in self._allowed

    def refusal(self, host: str, port: int) -> str:
        """Why the last connection to a place was refused, or ""."""
        return self._refusals.get((_bare(normal_host(host)), port), "")

    async def check(self, host: str, port: int) -> list[str]:
        """The addresses that may be connected to for a host. Raises Refused when there are none."""
        name = _bare(normal_host(host))
        try:
            found = await self._checked(name, port)
        except Refused as refused:
            if len(self._refusals) < _MOST_REMEMBERED:
                self._refusals[name, port] = str(refused)
            raise
        self._refusals.pop((name, port), None)
        return found

    async def _checked(self, name: str, port: int) -> list[str]:
        if not name or not 0 < port < 65536 or any(c in name for c in "/\\@?#% \t\r\n\0"):
            raise Refused(f"{name!r}, port {port}, is no place to connect to; check the URL")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_RESOLVERS, "resolver")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                found = await loop.run_in_executor(self._threads, self._resolve, name, port)
        except TimeoutError:
            raise Refused(f"the host {name} cannot be looked up: no answer; try another one") from None
        except (OSError, UnicodeError):
            raise Refused(f"there is no host {name}; check the address") from None
        if self.is_allowed(name, port):
            return list(found)[:_MOST_ADDRESSES]
        reasons = {address: why_refused(address) for address in found}
        good = [address for address, why in reasons.items() if not why]
        if not good:
            why = next(iter(reasons.values()), "no address")
            raise Refused(
                f"{name} may not be reached from here: it is {why}. Only public addresses can be reached; "
                "try a public site"
            )
        return good[:_MOST_ADDRESSES]

    async def connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a host. Raises Refused."""
        for address in await self.check(host, port):
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return await asyncio.open_connection(address, port, limit=2**18)
        raise Refused(f"{host}, port {port}, cannot be connected to; it may be down: try another address")

    def close(self) -> None:
        """End the threads that look names up."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _bare(host: str) -> str:
    """A host without brackets, an IPv6 address in its one short form."""
    if ":" not in host:
        return host
    inner = host.strip("[]")
    try:
        return ipaddress.IPv6Address(inner).compressed
    except ValueError:
        return inner
