"""What the sandbox suites share: a fresh sandbox of a backend, and what it says that it cannot do."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.contracts import SandboxRequest
from hermes_run.core.registry import BACKENDS, load
from hermes_run.errors import BackendMissing, MissingExtra
from hermes_run.spec.model import SandboxSettings, Settings
from tests import images, modal_place
from tests.roots import small_root

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from hermes_run.core.contracts import Backend, ExecResult, Sandbox

_MARKED = {"bubblewrap", "docker", "singularity", "modal"}
_ALSO = {"docker": ["docker-busybox"]}
_QUICK = {"bubblewrap", "local"}
"""What the quick tier tries, too: the others start slowly."""
NAMES = [
    pytest.param(
        each,
        marks=[
            *([getattr(pytest.mark, name)] if name in _MARKED else ()),
            *([] if each in _QUICK else [pytest.mark.slow]),
        ],
    )
    for name, row in BACKENDS.items()
    if row.path
    for each in (name, *_ALSO.get(name, ()))
]
"""Every backend that is there, each with its marker; docker with a bash, and with nothing but busybox."""

_missing: dict[str, tuple[str, ...] | str] = {}


def new_backend(name: str, run: str = "contract-run") -> Backend:
    """A backend for a run."""
    kind = load("sandbox backend", BACKENDS, kind_of(name))
    if name == "modal":
        modal_place.modal_folder()
    made: Backend = kind(run, settings_of(name))
    return made


def kind_of(name: str) -> str:
    """The backend: `docker` of `docker-busybox`."""
    return name.partition("-")[0]


def settings_of(name: str) -> Settings:
    """The machine's settings for a backend."""
    return Settings(sandbox=SandboxSettings(allow_local_images=name == "singularity"))


def image_of(name: str) -> str:
    """The image that a backend's sandboxes are made from; "" where they are made from none."""
    if kind_of(name) == "docker":
        image = images.BUSYBOX if name == "docker-busybox" else images.BASH
        images.build(image)
        return image
    if name == "modal":
        return modal_place.BASH
    return str(small_root()) if name == "singularity" else ""


def what_is_missing(name: str) -> tuple[str, ...] | str:
    """What a backend cannot promise here, or why it does not work."""

    async def ask() -> tuple[str, ...] | str:
        try:
            backend = new_backend(name)
        except MissingExtra as error:
            return str(error)
        try:
            return await backend.check()
        except BackendMissing as error:
            return str(error)
        finally:
            await backend.aclose()

    if name not in _missing:
        _missing[name] = asyncio.run(ask())
    return _missing[name]


def can(name: str, *promises: str) -> None:
    """Skip what a backend says that it cannot promise here."""
    lacking = sorted(set(promises) & set(what_is_missing(name)))
    if lacking:
        pytest.skip(f"{name} cannot promise {', '.join(lacking)} here")


@asynccontextmanager
async def opened(name: str, **request: Any) -> AsyncIterator[Sandbox]:
    """A fresh sandbox."""
    backend = new_backend(name)
    try:
        wanted = {"run": "contract-run", "key": "k#0", "image": image_of(name), **request}
        async with backend.open(SandboxRequest(**wanted)) as box:
            yield box
    finally:
        await backend.aclose()


def within(name: str, work: Callable[[Sandbox], Awaitable[None]], **request: Any) -> None:
    """Run `work` in a fresh sandbox."""

    async def main() -> None:
        async with opened(name, **request) as box:
            await work(box)

    asyncio.run(main())


async def sh(box: Sandbox, command: str, **options: Any) -> ExecResult:
    """Run a command with a generous time limit."""
    return await box.exec(command, **{"timeout_s": 20.0, **options})


async def text(box: Sandbox, command: str, **options: Any) -> str:
    """The output of a command."""
    return (await sh(box, command, **options)).output.decode()


async def sleepers(box: Sandbox) -> list[str]:
    """Arguments of the living `sleep`s that were started in this sandbox's folder."""
    found = await text(
        box,
        'for p in /proc/[0-9]*; do [ "$(readlink $p/cwd)" = "$PWD" ] || continue;'
        " tr '\\0' ' ' < $p/cmdline; echo; done | grep ^sleep | cut -d' ' -f2 | sort",
    )
    return found.split()
