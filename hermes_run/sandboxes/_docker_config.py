"""What a docker sandbox is made of: the configuration of its container."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Any

from hermes_run.sandboxes._stream_script import START_COMMAND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_run.core.contracts import SandboxRequest

PIPES = "/run/hermes-run"
WORKSPACE = "/workspace"
RUN, KEY, ROW = "hermes-run.run", "hermes-run.key", "hermes-run.row"
MARK = "hermes-run.mark"

_MB = 1 << 20
_OWN_PROCESSES = 6
"""The first process, killer, supervisor, kept shell and relay, and the subshell of a call."""
_PIPES_MB = 16
_MOST_FILE = 8 << 30
"""Bytes of one file: stops the simplest way to fill the daemon's disk, and no work that was ever seen."""
_NEW_FILTER = re.compile(r"2[3-9]\.|[3-9][0-9]\.")
"""Docker versions from 23 on, whose system call filter keeps containers from sockets to the hypervisor."""
_CAPABILITIES = (
    "CHOWN",  # dpkg, rpm, tar and pip give files their owners,
    "DAC_OVERRIDE",  # write into folders of others,
    "FOWNER",  # and set modes and times of files of others
    "FSETID",  # setuid and setgid bits of installed programs outlive a write
    "SETFCAP",  # capabilities that a package has in its files (ping)
    "SETUID",  # apt downloads as the user _apt; su and daemons of a package leave root
    "SETGID",
    "SETPCAP",  # they drop capabilities on the way
    "KILL",  # root ends what it has started as another user; a time limit has to
    "AUDIT_WRITE",  # useradd and su of a package's scripts refuse to work without
)


def working_directory(asked: str, image_workdir: str) -> str:
    """Where commands start; a relative one counts from the image's WORKDIR, else from /workspace."""
    path = posixpath.normpath(posixpath.join(image_workdir or WORKSPACE, asked))
    return "/" + path.lstrip("/")


def most_processes(request: SandboxRequest) -> int:
    """How many the container may have: the commands', and its own."""
    return request.pids + _OWN_PROCESSES


def labels(request: SandboxRequest, mark: str, owner: Mapping[str, str]) -> dict[str, str]:
    """Whose a container is, for `clean` and for people."""
    return {RUN: request.run, KEY: request.key, ROW: request.row_id, MARK: mark, **owner}


def container(
    request: SandboxRequest,
    *,
    image_id: str,
    network: str,
    labels: Mapping[str, str],
    daemon: Mapping[str, Any],
) -> dict[str, Any]:
    """The body of the request that creates a sandbox's container.

    Args:
        request: what the rollout asks for.
        image_id: of what the image's name meant when it was looked up.
        network: name of the network, or `none`.
        labels: see `labels`.
        daemon: what the daemon says of itself.
    """
    return {
        "Image": image_id,
        "Entrypoint": list(START_COMMAND),
        "Cmd": [],
        "WorkingDir": "/",
        "Hostname": "sandbox",
        "Labels": dict(labels),
        # The end of the runner's connection ends the container's stdin, and with it the container.
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": _host_config(request, network, daemon),
    }


def _host_config(request: SandboxRequest, network: str, daemon: Mapping[str, Any]) -> dict[str, Any]:
    """The limits. Files in memory count as memory: /tmp may take a quarter of it, /dev/shm an eighth."""
    memory = max(request.memory_mb, 16) * _MB
    config: dict[str, Any] = {
        "AutoRemove": True,
        "CapDrop": ["ALL"],
        "CapAdd": list(_CAPABILITIES),
        "SecurityOpt": ["no-new-privileges"],
        "PidsLimit": most_processes(request),
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": int(min(request.cpus, daemon.get("NCPU") or request.cpus) * 1e9),
        "NetworkMode": network,
        "IpcMode": "private",
        # The first process is ours, and an init: it reaps. The daemon's own would have it as a child,
        # which `kill -9 -1` in a command kills, and the container with it.
        "Init": False,
        "Privileged": False,
        "Tmpfs": {
            "/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={memory // 4}",
            PIPES: f"rw,noexec,nosuid,nodev,mode=1777,size={min(_PIPES_MB * _MB, memory // 8)}",
        },
        "ShmSize": memory // 8,
        "LogConfig": {"Type": "none"},
        "OomScoreAdj": 500,
        "Ulimits": [
            {"Name": "core", "Soft": 0, "Hard": 0},
            {"Name": "fsize", "Soft": _MOST_FILE, "Hard": _MOST_FILE},
        ],
    }
    if can_limit_disk(daemon):
        config["StorageOpt"] = {"size": str(_MOST_FILE)}
    return config


def can_limit_disk(daemon: Mapping[str, Any]) -> bool:
    """Whether the daemon's storage driver is one that always has quotas (overlay2 needs XFS with pquota)."""
    return daemon.get("Driver") in ("btrfs", "zfs")


def what_is_missing(daemon: Mapping[str, Any]) -> tuple[str, ...]:
    """What a daemon cannot limit or isolate, in SandboxInfo's words."""
    limits = {"memory": "MemoryLimit", "pids": "PidsLimit", "cpus": "CpuCfsQuota"}
    missing = [name for name, field in limits.items() if not daemon.get(field, True)]
    if not can_limit_disk(daemon):
        missing.append("disk")
    if not _NEW_FILTER.match(daemon.get("ServerVersion") or ""):
        missing.append("vsock")
    return tuple(sorted(missing))
