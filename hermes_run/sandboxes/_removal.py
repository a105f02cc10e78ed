"""Removing a folder whatever commands have made of it: deep, huge, or locked by its modes."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE = 50
"""Entries removed at a time: some milliseconds of work."""
_ROUNDS = 3
"""For what something still alive adds meanwhile."""
_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Remove `path` and all that is in it, as far as that goes. Never raises; no link is followed."""
    for _ in removal(path):
        pass


def removal(path: str) -> Iterator[None]:
    """Do the same in pieces, so that an event loop can do something else in between.

    A folder in a folder is moved to the top before it is emptied: no path grows too long, no recursion
    too deep, no chain of open folders too many. What nobody can remove (a mount, an immutable file)
    stays, with what holds it.
    """
    try:
        top = os.open(path, _FOLDER)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
        return
    try:
        for _ in range(_ROUNDS):
            yield from _empty(top)
            with contextlib.suppress(OSError):
                os.rmdir(path)
                break
    finally:
        os.close(top)


def _empty(top: int) -> Iterator[None]:
    numbers, done = itertools.count(), itertools.count(1)
    waiting = ["."]
    while waiting:
        name = waiting.pop()
        try:
            folder = os.open(name, _FOLDER, dir_fd=top)
        except OSError:
            continue
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        if not entry.is_dir(follow_symlinks=False):
                            os.unlink(entry.name, dir_fd=folder)
                        elif name == ".":
                            os.chmod(entry.name, 0o700, dir_fd=top)
                            waiting.append(entry.name)
                        else:
                            waiting.append(_move_up(entry.name, folder, top, numbers))
                    if next(done) % _PIECE == 0:
                        yield
        finally:
            os.close(folder)
        if name != ".":
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=top)


def _move_up(name: str, folder: int, top: int, numbers: Iterator[int]) -> str:
    """Move a folder in `folder` to `top`. Returns its name there. Raises OSError."""
    os.chmod(name, 0o700, dir_fd=folder)
    while True:
        there = f"{next(numbers)}"
        try:
            os.rename(name, there, src_dir_fd=folder, dst_dir_fd=top)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
        else:
            return there
