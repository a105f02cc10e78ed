"""What a docker sandbox with a network reaches, and what it does not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hermes_run.core.contracts import SandboxRequest
from hermes_run.sandboxes import _docker_network
from hermes_run.sandboxes._docker_network import resolvers
from hermes_run.sandboxes.docker import DockerBackend
from hermes_run.spec.model import Settings
from tests import images
from tests.conftest import require
from tests.contracts.sandboxes import what_is_missing

if TYPE_CHECKING:
    from pathlib import Path

_SEEN = r"""
( echo of-itself | nc -l -p 8765 & ) ; sleep 0.3
nc -w 3 169.254.169.254 8765 </dev/null
ip addr del 169.254.169.254/16 dev eth0 2>/dev/null && echo deleted
ip route add 169.254.169.254 \
  via $(ip route | sed -n 's/^default via \([^ ]*\).*/\1/p') 2>/dev/null && echo added
for a in 169.254.169.254 169.254.170.2 192.0.2.1; do ip route get $a | head -n 1; done
"""


@pytest.mark.docker
def test_metadata_address_is_the_sandboxs_own_whatever_commands_do() -> None:
    missing = what_is_missing("docker")
    if isinstance(missing, str):
        require("docker", missing)
    images.build(images.BUSYBOX)

    async def main() -> list[str]:
        backend = DockerBackend("network-run", Settings())
        request = SandboxRequest(run="network-run", key="k", image=images.BUSYBOX, network="full")
        try:
            async with backend.open(request) as box, backend.open(request) as neighbour:
                said = [(await each.exec(_SEEN, timeout_s=20)).output.decode() for each in (box, neighbour)]
        finally:
            await backend.aclose()
        return said

    for said in asyncio.run(main()):
        itself, metadata, link_local, elsewhere = said.splitlines()
        assert itself == "of-itself"
        assert metadata.startswith("local 169.254.169.254 dev lo")
        assert "via" not in link_local
        assert " via " in elsewhere


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (["nameserver 169.254.169.254\n"], True),
        (["nameserver 127.0.0.53\n", "search x\nnameserver 169.254.169.254\n"], True),
        (["# none\nnameserver 10.0.0.2\nnameserver 169.254.169.253\n"], False),
        (["nameserver 127.0.0.53\n", "nameserver 10.0.0.2\n"], False),
        (["nameserver fe80::1%eth0\nnameserver nonsense\nnameserver\n"], False),
        ([], False),
    ],
)
def test_names_are_still_found_where_only_the_metadata_address_knows_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], chosen: bool
) -> None:
    paths = [tmp_path / f"{number}" for number in range(2)]
    for path, text in zip(paths, files, strict=False):
        path.write_text(text)
    monkeypatch.setattr(_docker_network, "_RESOLVER_FILES", tuple(map(str, paths)))
    assert bool(resolvers("unix:///var/run/docker.sock")) is chosen
    assert resolvers("tcp://elsewhere:2376") == []
