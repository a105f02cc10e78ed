"""The network of a run's sandboxes in a Docker daemon, and what of it they cannot reach."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING, Any

from hermes_run.sandboxes import _docker_config as config
from hermes_run.sandboxes._docker_engine import start_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docker import APIClient

    from hermes_run.sandboxes._docker_engine import Engine
    from hermes_run.sandboxes._ground import Ground

_NO_NEIGHBOURS = {"com.docker.network.bridge.enable_icc": "false"}
"""Containers of one bridge do not reach each other: two prompts never see each other."""
_METADATA = "169.254.169.254"
"""Where a cloud tells its machines who they are, and hands out their credentials."""
_LINK_LOCAL = ipaddress.ip_network("169.254.0.0/16")
_RESOLVER_FILES = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
"""As the daemon reads them: the second where the first names only a resolver on loopback."""
_PUBLIC_RESOLVERS = ["8.8.8.8", "8.8.4.4"]
"""The daemon's own choice where a machine has no resolver that containers reach."""


class Network:
    """The network of a run's sandboxes that may use one, made when the first asks for it."""

    def __init__(self, engine: Engine, ground: Ground, run: str, owner: Mapping[str, str]) -> None:
        self._engine = engine
        self._ground = ground
        self._labels = {config.RUN: run, **owner}
        self._made: asyncio.Future[str] | None = None

    async def name(self) -> str:
        """Its name. Raises SandboxError(sandbox_start)."""
        if self._made is None or (self._made.done() and self._made.exception() is not None):
            self._made = self._engine.submit(self._make)
        return await asyncio.shield(self._made)

    def _make(self, client: APIClient) -> str:
        from docker.errors import DockerException

        name = f"hermes-run-{self._ground.mark}"
        labels = {**self._labels, config.MARK: self._ground.mark}
        try:
            client.create_network(name, driver="bridge", options=_NO_NEIGHBOURS, labels=labels)
        except (DockerException, OSError) as error:
            raise start_error(error, self._engine.address) from error
        return name


def endpoint(network: str) -> dict[str, Any]:
    """How a container joins `network`: with the metadata address as one of its own.

    So nothing that is sent there, or to another link-local address, leaves the container, and without
    NET_ADMIN no command changes that.
    """
    return {"EndpointsConfig": {network: {"IPAMConfig": {"LinkLocalIPs": [_METADATA]}}}}


def resolvers(address: str) -> list[str]:
    """The name servers of a container with a network; [] for the daemon's choice.

    A cloud whose name server is the metadata address would leave it none.

    Args:
        address: of the daemon; what one elsewhere would choose is not known here.
    """
    if not address.startswith("unix:"):
        return []
    for path in _RESOLVER_FILES:
        servers = [each for each in _servers(path) if not each.is_loopback]
        if servers:
            return _PUBLIC_RESOLVERS if all(each in _LINK_LOCAL for each in servers) else []
    return []


def _servers(path: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    found = []
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            words = [line.split() for line in file]
    except OSError:
        return []
    for line in words:
        if len(line) > 1 and line[0] == "nameserver":
            try:
                found.append(ipaddress.ip_address(line[1].partition("%")[0]))
            except ValueError:
                continue
    return found
