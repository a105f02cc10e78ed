"""Sandboxes for the tools: each test has its own, a real one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.tools.place import OtherShell, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

_BUSYBOX = shutil.which("busybox")


@pytest.fixture
def place() -> Iterator[Place]:
    """A bubblewrap sandbox with bash."""
    with Place() as place:
        yield place


@pytest.fixture(
    params=[
        "bash",
        "sh",
        pytest.param(
            "busybox",
            marks=pytest.mark.skipif(_BUSYBOX is None, reason="there is no busybox on this machine"),
        ),
        "local",
    ]
)
def any_shell(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Every kind of shell that file tools may meet: bash, a POSIX shell, busybox alone, the host's own."""
    kind: str = request.param
    with Place("local" if kind == "local" else "bubblewrap") as place:
        if kind == "sh":
            place.use(OtherShell(place.box, "sh"))
        elif kind == "busybox":
            place.use(OtherShell(place.box, "busybox sh", _only_busybox(place)))
        yield place


def _only_busybox(place: Place) -> str:
    """Shell text after which busybox is all there is."""
    assert _BUSYBOX is not None
    binary = Path(_BUSYBOX).read_bytes()
    place.sh("mkdir /tmp/bb && cat >/tmp/bb/busybox && chmod +x /tmp/bb/busybox", binary)
    place.sh("/tmp/bb/busybox --install -s /tmp/bb")
    return "PATH=/tmp/bb; export PATH; "
