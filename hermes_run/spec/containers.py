"""Where the container daemon of this machine is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SOCKETS = (
    "{runtime}/docker.sock",
    "/var/run/docker.sock",
    "~/.docker/run/docker.sock",
    "{runtime}/podman/podman.sock",
    "/run/podman/podman.sock",
)
"""Docker's first: rootless, the system's, Docker Desktop's; then podman's."""
_USUAL = "/var/run/docker.sock"


def find_address(asked: str, environment: Mapping[str, str] = os.environ) -> str:
    """Where the daemon is: what was asked for, else DOCKER_HOST, else the first socket that is there.

    Args:
        asked: hermes.yaml's `sandbox.docker_socket`: a path or an address; or "".
        environment: the process's.
    """
    asked = asked or environment.get("DOCKER_HOST", "")
    if asked:
        return asked if "://" in asked else f"unix://{Path(asked).expanduser().absolute()}"
    runtime = environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    places = (str(Path(place.format(runtime=runtime)).expanduser()) for place in _SOCKETS)
    return f"unix://{next((path for path in places if Path(path).exists()), _USUAL)}"
