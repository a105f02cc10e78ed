"""What commands in a singularity sandbox cannot ask of the kernel: its profile for `--security seccomp:`.

The same that a bubblewrap sandbox cannot (see `_bwrap_seccomp.py` for why: kernel keyrings, vsock, io_uring,
bpf, perf, userfaultfd), and new user namespaces as far as a filter can tell: a process without privileges
would have all of them inside one. Not by clone3: no filter can read its flags, and C libraries go on with
clone only when it answers ENOSYS, while apptainer has every refused call answer EPERM.
"""

from __future__ import annotations

import json
from typing import Any

_REFUSED = (
    "add_key",
    "bpf",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "keyctl",
    "perf_event_open",
    "request_key",
    "userfaultfd",
)
_NEW_USER_NAMESPACE = 0x10000000
_LAST_FAMILY = 16
_FAMILIES = (1, 2, 10, 16)
"""unix, inet, inet6, netlink."""
_MACHINES = {
    "SCMP_ARCH_X86_64": ["SCMP_ARCH_X86", "SCMP_ARCH_X32"],
    "SCMP_ARCH_AARCH64": ["SCMP_ARCH_ARM"],
    "SCMP_ARCH_RISCV64": [],
    "SCMP_ARCH_PPC64LE": [],
    "SCMP_ARCH_S390X": ["SCMP_ARCH_S390"],
}


def make_profile() -> bytes:
    """The profile, as the JSON that apptainer and singularity read."""
    others = [number for number in range(_LAST_FAMILY) if number not in _FAMILIES]
    rules = [
        _refuse(_REFUSED),
        _refuse(("clone", "unshare"), _NEW_USER_NAMESPACE, "SCMP_CMP_MASKED_EQ"),
        _refuse(("socket",), _LAST_FAMILY, "SCMP_CMP_GT"),
        *(_refuse(("socket",), number, "SCMP_CMP_EQ") for number in others),
    ]
    machines = [{"architecture": one, "subArchitectures": more} for one, more in _MACHINES.items()]
    profile = {"defaultAction": "SCMP_ACT_ALLOW", "archMap": machines, "syscalls": rules}
    return json.dumps(profile).encode()


def _refuse(names: tuple[str, ...], value: int = 0, compare: str = "") -> dict[str, Any]:
    """Refuse these calls; with `compare`, only when their first argument compares so."""
    argument = {"index": 0, "value": value, "valueTwo": value, "op": compare}
    return {"names": list(names), "action": "SCMP_ACT_ERRNO", "args": [argument] if compare else []}
