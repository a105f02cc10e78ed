"""What all singularity sandboxes of a run have in common on this machine, and the command that starts one."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from hermes_run.errors import SandboxError
from hermes_run.sandboxes._namespaced import groups_of
from hermes_run.sandboxes._singularity_build import die_with_parent
from hermes_run.sandboxes._singularity_images import Image
from hermes_run.sandboxes._singularity_seccomp import make_profile

if TYPE_CHECKING:
    from hermes_run.core.contracts import SandboxRequest
    from hermes_run.sandboxes._ground import Ground

PIPES = "/run/hermes-run"
_CURE = (
    "install apptainer (your system's packages, or apptainer.org), or name it in hermes.yaml:"
    " `sandbox: {singularity_binary: /path/to/apptainer}`; or set sandbox.backend to docker"
)
_LOOK_S = 20
_ISOLATION = [
    "--containall",
    "--no-home",
    "--cleanenv",
    "--no-privs",
    "--no-init",
    "--no-umask",
    "--no-eval",
    "--uts",
    "--hostname",
    "sandbox",
]
_NO_MOUNTS = "sys,hostfs,bind-paths"
"""Of the site's configuration: sysfs obeys a root without privileges, and bind paths are the host's files."""
_DISK = (
    'mount -t tmpfs -o "size=$1,mode=755" hermes-run "$2" && mkdir -p "$2/root/upper" "$2/root/work" "$2/tmp"'
    ' && shift 2 && exec "$@"'
)
"""Starts a command with a disk of limited size that no other process sees, and that ends with it."""


def find_binary(chosen: str | None) -> str:
    """The program to use. Raises SandboxError(sandbox_start) when there is none."""
    if chosen:
        found = shutil.which(os.path.expanduser(chosen))
        if found is None:
            raise SandboxError(
                f"sandbox.singularity_binary of hermes.yaml is {chosen}, and there is no such program",
                reason="sandbox_start",
                cure=_CURE,
            )
        return found
    for name in ("apptainer", "singularity"):
        found = shutil.which(name)
        if found is not None:
            return found
    why = "neither apptainer nor singularity is installed here"
    raise SandboxError(why, reason="sandbox_start", cure=_CURE)


class Machine:
    """See above.

    Args:
        ground: of the run.
        binary: apptainer or singularity.

    Raises OSError.
    """

    def __init__(self, ground: Ground, binary: str) -> None:
        ground.prepare()
        self._ground = ground
        self._binary = binary
        self._is_root = os.geteuid() == 0
        self._may_configure = self._is_root or not _is_setuid(binary)
        self.hierarchies = groups_of(ground)
        self.missing = self.hierarchies.missing
        self._profile = f"{ground.path}/seccomp.json"
        with open(self._profile, "wb") as profile:
            profile.write(make_profile())

    def command(
        self, request: SandboxRequest, image: Image, box: str, pipes: str, words: list[str]
    ) -> list[str]:
        """What starts a sandbox.

        Args:
            request: what is asked of it.
            image: what it is made from.
            box: its folder.
            pipes: the folder of its pipes, with the mailbox in it.
            words: the program in it, with its arguments.
        """
        has_network = request.network == "full"
        size = (request.memory_mb << 20) // 2
        command = die_with_parent()
        if self._is_root:
            disk = f"{box}/disk"
            os.mkdir(disk)
            command += ["unshare", "-m", "/bin/sh", "-c", _DISK, "sh", str(size), disk]
        command += [self._binary, "--silent", "--nocolor"]
        if self._may_configure:
            command += ["--config", self._configuration(has_network=has_network, size=size)]
        command += ["exec", *_ISOLATION, "--no-mount", _NO_MOUNTS, "--security", f"seccomp:{self._profile}"]
        command += [] if has_network else ["--net", "--network", "none"]
        if self._is_root:
            command += ["--overlay", f"{disk}/root", "--workdir", f"{disk}/tmp", *_read_only_proc()]
        else:
            command.append("--writable-tmpfs")
        command += ["--scratch", "/dev/shm", "--bind", f"{pipes}:{PIPES}:ro"]
        command += ["--bind", f"{pipes}/mail:{PIPES}/mail", *image.binds, image.path]
        return [*command, *words]

    def environment(self) -> dict[str, str]:
        """What the program itself is started with: nothing of the runner's but where programs are."""
        folder = f"{self._ground.path}/home"
        return {
            "PATH": os.pathsep.join(os.get_exec_path()),
            "HOME": folder,
            "APPTAINER_CONFIGDIR": folder,
            "SINGULARITY_CONFIGDIR": folder,
        }

    def host_image(self) -> Image:
        """An image made of this machine's read-only system folders, to prove that sandboxes work here."""
        folder = f"{self._ground.path}/image"
        os.makedirs(f"{folder}/usr", exist_ok=True)
        for name in ("dev", "etc", "proc", "root", "run", "sys", "tmp", "var/tmp"):
            os.makedirs(f"{folder}/{name}", exist_ok=True)
        binds = ["--bind", "/usr:/usr:ro"]
        for name in ("bin", "sbin", "lib", "lib64", "nix"):
            if os.path.islink(f"/{name}") and not os.path.lexists(f"{folder}/{name}"):
                os.symlink(os.readlink(f"/{name}"), f"{folder}/{name}")
            elif os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}"):
                os.makedirs(f"{folder}/{name}", exist_ok=True)
                binds += ["--bind", f"/{name}:/{name}:ro"]
        return Image(folder, binds=tuple(binds))

    def _configuration(self, *, has_network: bool, size: int) -> str:
        """A configuration of our own in the place of the site's: nothing of this user or host gets in."""
        path = f"{self._ground.path}/conf-{'full' if has_network else 'none'}-{size >> 20}"
        if not os.path.exists(path):
            with open(path, "w", encoding="ascii") as file:
                file.write(
                    "config passwd = no\nconfig group = no\nmount sys = no\nmount hostfs = no\n"
                    f"config resolv_conf = {'yes' if has_network else 'no'}\nsystemd cgroups = no\n"
                    f"mount home = no\nshared loop devices = yes\n"
                    f"sessiondir max size = {max(1, size >> 20)}\n"
                )
        return path


def _is_setuid(binary: str) -> bool:
    """Whether it is installed with a setuid part, which takes no configuration but the site's."""
    try:
        said = subprocess.run(
            [binary, "buildcfg"], capture_output=True, check=True, timeout=_LOOK_S, start_new_session=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return True
    return b"_SUID_INSTALL=1" in said


def _read_only_proc() -> list[str]:
    """Binds that keep a root without privileges, who still owns them, from writing the kernel's settings."""
    binds = []
    for entry in sorted(os.scandir("/proc"), key=lambda entry: entry.name):
        if entry.name.isdigit() or entry.is_symlink():
            continue
        if entry.is_dir() or entry.stat().st_mode & 0o222:
            binds += ["--bind", f"{entry.path}:{entry.path}:ro"]
    return binds
