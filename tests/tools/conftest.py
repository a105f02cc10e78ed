"""Sandboxes for the tools, real ones. Most tests share one of each kind, in a folder of their own."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tools.place import OtherShell, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BUSYBOX = shutil.which("busybox")
_NEEDS_BUSYBOX = pytest.mark.skipif(_BUSYBOX is None, reason="there is no busybox on this machine")
_KINDS = [
    "bash",
    pytest.param("sh", marks=pytest.mark.slow),
    pytest.param("busybox", marks=[_NEEDS_BUSYBOX, pytest.mark.slow]),
    pytest.param("local", marks=pytest.mark.slow),
]


@contextmanager
def _opened(kind: str) -> Iterator[Place]:
    """bash and a POSIX shell in bubblewrap, busybox alone in bubblewrap, the host's own shell."""
    with Place("local" if kind == "local" else "bubblewrap") as place:
        if kind == "sh":
            place.use(OtherShell(place.box, "/bin/sh"))
        elif kind == "busybox":
            place.use(OtherShell(place.box, "/tmp/bb/busybox sh", _only_busybox(place)))
        yield place


def _only_busybox(place: Place) -> str:
    """Shell text after which busybox is all there is."""
    assert _BUSYBOX is not None
    binary = Path(_BUSYBOX).read_bytes()
    place.sh("mkdir /tmp/bb && cat >/tmp/bb/busybox && chmod +x /tmp/bb/busybox", binary)
    place.sh("/tmp/bb/busybox --install -s /tmp/bb")
    return "PATH=/tmp/bb; export PATH; "


@pytest.fixture(scope="session")
def shared() -> Iterator[Callable[[str], Place]]:
    """The shared sandbox of a kind, in a new folder."""
    with ExitStack() as stack:
        opened: dict[str, Place] = {}

        def get(kind: str) -> Place:
            if kind not in opened:
                opened[kind] = stack.enter_context(_opened(kind))
            opened[kind].begin_anew()
            return opened[kind]

        yield get


@pytest.fixture
def place(shared: Callable[[str], Place]) -> Place:
    """bash in bubblewrap."""
    return shared("bash")


@pytest.fixture(params=_KINDS)
def any_shell(request: pytest.FixtureRequest, shared: Callable[[str], Place]) -> Place:
    """Every kind of shell that the tools may meet."""
    return shared(request.param)


@pytest.fixture
def own_place() -> Iterator[Place]:
    """bash in bubblewrap, for this test alone."""
    with _opened("bash") as place:
        yield place


@pytest.fixture(params=_KINDS)
def own_shell(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Every kind of shell, each for this test alone."""
    with _opened(request.param) as place:
        yield place
