"""What commands in a bubblewrap sandbox cannot ask of the kernel, although they need no privilege for it.

Namespaces do not cover kernel keyrings (a sandbox inherits its runner's session keyring, whose keys may
be Kerberos tickets or passwords) nor vsock (which reaches the host of a virtual machine without any
network). bpf, io_uring, perf and userfaultfd are no part of a model's work, and where kernels have been
broken out of. All of them answer as a kernel does that was built without.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
from typing import NamedTuple

_KERNEL_HAS_FILTERS = "/proc/sys/kernel/seccomp/actions_avail"

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
"""BPF instructions: load a word of the call, compare with a constant, answer."""
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in the kernel's `struct seccomp_data` (little-endian machines)."""
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_X32_BIT = 0x40000000
_FAMILIES = (1, 2, 10, 16)
"""unix, inet, inet6, netlink."""


class _Calls(NamedTuple):
    """System call numbers of one architecture, as its kernel headers have them."""

    architecture: int
    refused: tuple[int, ...]
    socket: int


# The refused: add_key request_key keyctl bpf perf_event_open userfaultfd, then io_uring_*;
# on i386 also socketcall, whose arguments no filter can read (C libraries do without it).
_IO_URING = (425, 426, 427)
_X86_64 = _Calls(0xC000003E, (248, 249, 250, 321, 298, 323, *_IO_URING), 41)
_I386 = _Calls(0x40000003, (286, 287, 288, 357, 336, 374, 102, *_IO_URING), 359)
_AARCH64 = _Calls(0xC00000B7, (217, 218, 219, 280, 241, 282, *_IO_URING), 198)
_ARM = _Calls(0x40000028, (309, 310, 311, 386, 364, 388, *_IO_URING), 281)
_MACHINES = {
    "x86_64": (_X86_64, _I386),
    "aarch64": (_AARCH64, _ARM),
    "riscv64": (_AARCH64._replace(architecture=0xC00000F3),),
}


def make_filter(machine: str = "") -> bytes:
    """The program for `bwrap --seccomp`; empty where the kernel or the machine has no use for it.

    Args:
        machine: as `platform.machine()` has it, which is the default.
    """
    if not os.path.exists(_KERNEL_HAS_FILTERS):
        return b""
    calls_of = _MACHINES.get(machine or platform.machine(), ())
    blocks = [_block(calls) for calls in calls_of]
    steps = [_step(_LOAD, _ARCHITECTURE)] if blocks else []
    for calls, block in zip(calls_of, blocks, strict=True):
        steps += [_step(_EQUAL, calls.architecture, otherwise=len(block)), *block]
    return b"".join([*steps, _fail(errno.ENOSYS)]) if steps else b""


def _block(calls: _Calls) -> list[bytes]:
    """What is done with the calls of one architecture."""
    steps = [_step(_LOAD, _NUMBER)]
    if calls is _X86_64:
        steps += [_step(_AT_LEAST, _X32_BIT, otherwise=1), _fail(errno.ENOSYS)]
    for number in calls.refused:
        steps += [_step(_EQUAL, number, otherwise=1), _fail(errno.ENOSYS)]
    families = [_step(_LOAD, _FIRST_ARGUMENT)]
    for family in _FAMILIES:
        families += [_step(_EQUAL, family, otherwise=1), _step(_RETURN, _ALLOW)]
    families.append(_fail(errno.EAFNOSUPPORT))
    steps += [_step(_EQUAL, calls.socket, otherwise=len(families)), *families]
    return [*steps, _step(_RETURN, _ALLOW)]


def _step(code: int, value: int, *, otherwise: int = 0) -> bytes:
    """One instruction; a comparison that fails skips `otherwise` of them."""
    return struct.pack("<HBBI", code, 0, otherwise, value)


def _fail(number: int) -> bytes:
    return _step(_RETURN, _ERRNO | number)
