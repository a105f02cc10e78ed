"""A listening socket inside of a jail's own network namespace, held by the process outside of it.

The jail has a loopback of its own and nothing else, so what listens there is all that the jail can reach,
and nobody but the jail can reach it. Entering a namespace is for a process of one thread that goes away
afterwards: run as a program this module makes the socket there and hands it over.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import socket
import sys
from pathlib import Path

PORT = 3128
"""Where the proxy is, seen from the jail."""

_TIMEOUT_S = 20.0
_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_GET_OWNER = 0xB701  # NS_GET_USERNS of linux/nsfs.h
_BACKLOG = 512


async def listen_in_namespace_of(pid: int) -> socket.socket:
    """A socket that listens on the loopback of the process's network namespace. Raises OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            __file__,
            str(pid),
            str(theirs.fileno()),
            pass_fds=(theirs.fileno(),),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={},
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                _, said = await process.communicate()
        except TimeoutError:
            raise OSError("the browser's network namespace cannot be entered") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        ours.setblocking(False)
        try:
            _, files, _, _ = socket.recv_fds(ours, 1, 1)
        except BlockingIOError:
            files = []
    if not files:
        why = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise OSError(f"the browser's network namespace cannot be entered: {why}")
    listener = socket.socket(fileno=files[0])
    listener.setblocking(False)
    return listener


def main() -> None:
    """Enter, listen, hand over."""
    pid, out = int(sys.argv[1]), int(sys.argv[2])
    libc = ctypes.CDLL(None, use_errno=True)
    space = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    owner = fcntl.ioctl(space, _GET_OWNER)
    if not os.path.samestat(os.fstat(owner), Path("/proc/self/ns/user").stat()) and libc.setns(
        owner, _NEW_USER
    ):
        raise OSError(ctypes.get_errno(), "user namespace")
    if libc.setns(space, _NEW_NET):
        raise OSError(ctypes.get_errno(), "network namespace")
    with socket.create_server(("127.0.0.1", PORT), backlog=_BACKLOG) as listener:
        connection = socket.socket(fileno=out)
        socket.send_fds(connection, [b"x"], [listener.fileno()])


if __name__ == "__main__":
    main()
