"""The filter of system calls, read as the kernel reads it, for machines that are not here as well."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from hermes_run.sandboxes._bwrap_seccomp import make_filter

X86_64, I386, AARCH64, ARM, RISCV64 = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028, 0xC00000F3
ALLOWED = 0

pytestmark = pytest.mark.skipif(
    not Path("/proc/sys/kernel/seccomp/actions_avail").exists(), reason="a kernel without filters"
)


def answer(program: bytes, architecture: int, number: int, argument: int = 0) -> int:
    """What a call gets: 0 when it goes through, else its errno."""
    steps = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    call = struct.pack("<IIQQ", number, architecture, 0, argument)
    at, word = 0, 0
    while True:
        code, then, otherwise, value = steps[at]
        at += 1
        if code == 0x20:
            (word,) = struct.unpack_from("<I", call, value)
        elif code == 0x06:
            return value & 0xFFFF if value >> 16 == 5 else ALLOWED
        else:
            at += then if (word == value if code == 0x15 else word >= value) else otherwise


@pytest.mark.parametrize(
    ("machine", "architecture", "keyctl", "socket", "getpid"),
    [
        ("x86_64", X86_64, 250, 41, 39),
        ("x86_64", I386, 288, 359, 20),
        ("aarch64", AARCH64, 219, 198, 172),
        ("aarch64", ARM, 311, 281, 20),
        ("riscv64", RISCV64, 219, 198, 172),
    ],
)
def test_keyrings_and_vsock_are_refused_and_the_rest_goes_through(
    machine: str, architecture: int, keyctl: int, socket: int, getpid: int
) -> None:
    program = make_filter(machine)
    assert answer(program, architecture, keyctl) == errno.ENOSYS
    assert answer(program, architecture, 425) == errno.ENOSYS
    assert answer(program, architecture, getpid) == ALLOWED
    for family in (1, 2, 10, 16):
        assert answer(program, architecture, socket, family) == ALLOWED
    for family in (0, 17, 38, 40):
        assert answer(program, architecture, socket, family) == errno.EAFNOSUPPORT


def test_numbers_of_another_kind_do_not_get_around_it() -> None:
    program = make_filter("x86_64")
    assert answer(program, X86_64, 0x40000000 | 250) == errno.ENOSYS  # x32
    assert answer(program, ARM, 20) == errno.ENOSYS
    assert answer(program, X86_64, 41, 40 | 1 << 32) == errno.EAFNOSUPPORT  # the kernel reads an int


def test_machines_without_a_table_have_no_filter() -> None:
    assert make_filter("s390x") == b""
