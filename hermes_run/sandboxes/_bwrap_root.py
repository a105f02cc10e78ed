"""The arguments of bwrap: what a sandbox sees, and what it does not."""

from __future__ import annotations

import os
import posixpath
from functools import cache

from hermes_run.errors import SandboxError

WORKSPACE = "/workspace"
PIPES = "/run/hermes-run"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_ISOLATION = [
    "--unshare-user",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-uts",
    "--unshare-cgroup",
    "--uid",
    "65534",
    "--gid",
    "65534",
    "--disable-userns",
    "--die-with-parent",
    "--new-session",
    "--as-pid-1",
    "--cap-drop",
    "ALL",
    "--hostname",
    "sandbox",
]
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_TAKEN = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/proc",
    "/dev",
    "/sys",
    PIPES,
)
_MB = 1 << 20
_HALF, _QUARTER, _EIGHTH = 2, 4, 8


def environment(shell: str) -> dict[str, str]:
    """The whole environment that a command starts with."""
    return {
        "PATH": _PATH,
        "HOME": WORKSPACE,
        "USER": "nobody",
        "LOGNAME": "nobody",
        "SHELL": shell,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }


def working_directory(asked: str) -> str:
    """Where commands start, for `sandbox.cwd` or a row's `cwd`.

    A relative one counts from /workspace. Raises SandboxError(sandbox_start) for one inside the
    read-only system folders, which a folder of the sandbox would hide.
    """
    path = posixpath.normpath(posixpath.join(WORKSPACE, asked))
    path = "/" + path.lstrip("/")
    if "\0" in path or any(path == taken or path.startswith(taken + "/") for taken in _TAKEN):
        raise SandboxError(
            f"cwd {asked!r} is inside the read-only system folders of a bubblewrap sandbox;"
            " choose another, such as /workspace or /testbed",
            reason="sandbox_start",
        )
    return path


@cache
def system_arguments() -> tuple[str, ...]:
    """Mounts of the read-only system folders of this machine."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        path = f"/{name}"
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            arguments += ["--ro-bind", path, path]
    if os.path.isdir("/nix/store"):  # where everything under /usr points on NixOS
        arguments += ["--ro-bind", "/nix/store", "/nix/store"]
    return tuple(arguments)


def arguments(*, etc: str, pipes: str, cwd: str, memory_mb: int, has_network: bool) -> list[str]:
    """Everything between `bwrap` and the command.

    What can be written lives in memory, and counts as memory: the workspace may take half of the
    sandbox's, /tmp a quarter, /dev/shm an eighth, so that a full disk leaves its processes alive.
    """

    def in_memory(path: str, part: int) -> list[str]:
        return ["--size", str(memory_mb * _MB // part), "--tmpfs", path]

    made = [*_ISOLATION, *(() if has_network else ("--unshare-net",)), *system_arguments()]
    # /proc is read-only because a runner that is root is root to the kernel in there too, without any
    # capability, but as the owner of /proc/sys and /proc/irq: bwrap itself covers only some of them.
    made += ["--ro-bind", etc, "/etc", "--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"]
    made += [*in_memory("/dev/shm", _EIGHTH), "--remount-ro", "/dev"]
    made += [*in_memory("/tmp", _QUARTER), *in_memory(WORKSPACE, _HALF)]
    made += ["--symlink", "../tmp", "/var/tmp", "--symlink", "../run", "/var/run"]
    made += ["--ro-bind", pipes, PIPES]
    if _needs_own_place(cwd):
        made += in_memory(cwd, _HALF)
    elif cwd not in ("/", WORKSPACE):
        made += ["--dir", cwd]
    return [*made, "--remount-ro", "/"]


def _needs_own_place(cwd: str) -> bool:
    return cwd != "/" and not any(
        cwd == place or cwd.startswith(place + "/") for place in (WORKSPACE, "/tmp")
    )
