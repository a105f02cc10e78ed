"""What runs leave in a Docker daemon: containers and networks with their labels."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

from hermes_run.core.contracts import Leftover
from hermes_run.errors import BackendMissing, SandboxError
from hermes_run.sandboxes import _docker_config as config
from hermes_run.sandboxes._docker_engine import no_daemon
from hermes_run.sandboxes._ground import (
    grounds,
    is_of_earlier_start,
    leftover_folders,
    mark_of,
    owner,
    remove_ground,
)

if TYPE_CHECKING:
    from docker import APIClient

    from hermes_run.sandboxes._docker_engine import Engine


def leftovers(engine: Engine) -> list[Leftover]:
    """What dead runs left, by what can be told: of this user on this machine, by their locks.

    A container is a leftover when no lock of its mark is held here. Whose lock would be elsewhere (see
    `owner`) is left alone while it runs: it ends by itself when its runner does. Raises BackendMissing when
    the daemon cannot be asked, but where there is none and nothing says that there ever was.
    """
    folders = leftover_folders("docker")
    if not folders and _is_nowhere(engine.address):
        return []
    dead = {mark_of(folder.handle) for folder in folders}
    known = {mark_of(path) for path in grounds()}
    mine, is_local = owner(), engine.address.startswith("unix:")
    found = []
    for kind, handle, labels, has_ended in _labelled(engine):
        mark = labels.get(config.MARK, "")
        is_mine = mine.items() <= labels.items() or (is_local and is_of_earlier_start(labels))
        if mark in dead or (mark in known and is_mine):
            continue  # goes with its folder, or lives
        if is_mine or has_ended:
            found.append(
                Leftover(run=labels.get(config.RUN, ""), what=f"docker {kind}", handle=f"{kind} {handle}")
            )
    return [*folders, *found]


def _is_nowhere(address: str) -> bool:
    return address.startswith("unix://") and not os.path.exists(address.removeprefix("unix://"))


def remove(engine: Engine, handle: str) -> None:
    """Remove one of them."""
    kind, _, name = handle.partition(" ")
    if not name:
        sweep(engine, handle)
        return
    with contextlib.suppress(BackendMissing):
        _remove_one(engine.client(), kind, name)


def sweep(engine: Engine, path: str) -> None:
    """Remove the ground at `path`, with all that has its mark in the daemon.

    What a daemon that does not answer has of it is found by its labels later.
    """
    mark = mark_of(path)
    with contextlib.suppress(BackendMissing):
        for kind, handle, _, _ in _labelled(engine, f"{config.MARK}={mark}"):
            _remove_one(engine.client(), kind, handle)
    remove_ground(path)


def _remove_one(client: APIClient, kind: str, name: str) -> None:
    from docker.errors import DockerException

    with contextlib.suppress(DockerException, OSError, SandboxError):
        if kind == "network":
            client.remove_network(name)
        else:
            client.remove_container(name, force=True, v=True)


def _labelled(engine: Engine, label: str = config.MARK) -> list[tuple[str, str, dict[str, str], bool]]:
    """Containers, then networks, with a label: (kind, id, labels, whether it has ended by itself).

    Raises BackendMissing.
    """
    from docker.errors import DockerException

    chosen: dict[str, Any] = {"label": [label]}
    try:
        client = engine.client()
        containers = client.containers(all=True, filters=chosen)
        networks = client.networks(filters=chosen)
    except (DockerException, OSError) as error:
        raise no_daemon(engine.address, error) from error
    return [
        *(
            ("container", each["Id"], each["Labels"] or {}, each["State"] in ("exited", "dead"))
            for each in containers
        ),
        *(("network", each["Id"], each["Labels"] or {}, False) for each in networks),
    ]
