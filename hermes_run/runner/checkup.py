"""What works on this machine, and what a spec needs: the checks behind `doctor`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_run.core.registry import BACKENDS, load
from hermes_run.core.toolsets import TOOLSETS
from hermes_run.errors import BackendMissing, EnvironmentStop, HermesRunError, MissingExtra
from hermes_run.runner.backends import images_by_backend, make_backends
from hermes_run.runner.extra_tools import check_mcp_can_work
from hermes_run.spec.browser import why_no_browser
from hermes_run.spec.endpoint import is_scripted, resolve
from hermes_run.spec.web import with_pins
from hermes_run.tools.toolkit import offered_tools, unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hermes_run.dataset.plan import Plan
    from hermes_run.spec.model import Settings, Spec

_BACKEND_S = 60.0
DEFAULT_BACKEND = "bubblewrap"
"""What `sandbox.backend: auto` takes for a prompt without an image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that works here or does not.

    Attributes:
        name: `bubblewrap`, `docker`, …; `toolset web`; `key OPENROUTER_API_KEY`; `image python:3.12`.
        why: why it does not, or what a person should know of it all the same.
        cure: what to do about it, or "".
        cannot: of a backend that works: what it cannot isolate or limit here.
        is_needed: whether the exit code hangs on it.
    """

    name: str
    works: bool
    why: str = ""
    cure: str = ""
    cannot: tuple[str, ...] = ()
    is_needed: bool = False


async def check_up(settings: Settings, spec: Spec | None, plan: Plan | None) -> list[Check]:
    """Every backend and toolset, and what `spec` needs beside them (with the plan of its dataset).

    Raises UsageError for a spec whose rows and backend do not go together.
    """
    needed = {DEFAULT_BACKEND}
    if spec is not None and plan is not None:
        needed = set(make_backends(spec, settings, plan))
    checks = await asyncio.gather(*(_backend(name, settings, name in needed) for name in BACKENDS))
    toolsets = TOOLSETS if spec is None else spec.distribution.toolsets
    machine = settings if spec is None else with_pins(spec, settings)
    found = [*checks, await _browser(settings, spec), *_toolsets(toolsets, machine, spec)]
    if spec is not None and plan is not None:
        found += [*_key(spec, settings), *_mcp(spec), *await _images(spec, settings, plan, checks)]
    return found


async def _backend(name: str, settings: Settings, is_needed: bool) -> Check:
    try:
        backend = load("sandbox backend", BACKENDS, name)("doctor", settings)
        try:
            async with asyncio.timeout(_BACKEND_S):
                cannot = await backend.check()
        finally:
            await backend.aclose()
    except BackendMissing as missing:
        return Check(name=name, works=False, why=missing.why, cure=missing.cure, is_needed=is_needed)
    except MissingExtra as missing:
        why, _, cure = str(missing).partition(": ")
        return Check(name=name, works=False, why=why, cure=cure, is_needed=is_needed)
    except TimeoutError:
        why = f"it did not answer within {_BACKEND_S:g} s"
        cure = "see what keeps its daemon or server, and restart that"
        return Check(name=name, works=False, why=why, cure=cure, is_needed=is_needed)
    except HermesRunError as error:
        return _broken(name, error, is_needed=is_needed)
    why = _WARNINGS.get(name, "")
    return Check(name=name, works=True, why=why, cannot=cannot, is_needed=is_needed)


def _broken(name: str, error: HermesRunError, *, is_needed: bool) -> Check:
    """A check that failed with a message, which says what is wrong, and after that the cure."""
    why, _, cure = str(error).partition("; ")
    return Check(name=name, works=False, why=why, cure=cure, is_needed=is_needed)


async def _browser(settings: Settings, spec: Spec | None) -> Check:
    """Whether the browser tools' Chromium starts, in its jail."""
    from hermes_run.outside.chromium import check_browser

    why, _, cure = why_no_browser(settings).partition(": ")
    if not why:
        why, cure = await check_browser(settings), "name one that starts: browser in hermes.yaml"
    drawn = () if spec is None else offered_tools(list(spec.distribution.toolsets), spec.toolsets)
    is_needed = any(name.startswith("browser_") for name in drawn)
    return Check(name="chromium", works=not why, why=why, cure=cure if why else "", is_needed=is_needed)


_WARNINGS = {
    "local": "commands run as you on this machine, without a sandbox; never chosen unless the spec says so"
}


def _toolsets(names: Iterable[str], settings: Settings, spec: Spec | None) -> list[Check]:
    drawn = {} if spec is None else spec.distribution.toolsets
    reasons = unavailable(list(names), {} if spec is None else spec.toolsets, settings)
    return [
        Check(
            name=f"toolset {name}",
            works=name not in reasons,
            why=reasons.get(name, ""),
            cure=f"mend that, or leave it out: --without {name}" if name in reasons else "",
            is_needed=name in drawn,
        )
        for name in names
    ]


def _key(spec: Spec, settings: Settings) -> list[Check]:
    """Whether the key is there; the endpoint itself is not asked."""
    if is_scripted(spec):
        return []
    try:
        endpoint = resolve(spec, settings, None)
    except EnvironmentStop as missing:
        return [_broken("key", missing, is_needed=True)]
    name = f"key {endpoint.api_key_env}" if endpoint.api_key is not None else "key"
    why = "" if endpoint.api_key is not None else f"none is sent to {endpoint.base_url}"
    return [Check(name=name, works=True, why=why, is_needed=True)]


def _mcp(spec: Spec) -> list[Check]:
    """Whether the SDK and the declared variables are there; the servers are asked when a run starts."""
    if not spec.tools.mcp:
        return []
    try:
        check_mcp_can_work(spec)
    except HermesRunError as missing:
        return [_broken("mcp", missing, is_needed=True)]
    return [Check(name="mcp", works=True, why="the servers are asked when a run starts", is_needed=True)]


async def _images(spec: Spec, settings: Settings, plan: Plan, checks: Iterable[Check]) -> list[Check]:
    """Which images are here. One that is not is fetched when its first prompt comes up: no fault."""
    works = {check.name for check in checks if check.works}
    found = []
    for name, images in images_by_backend(spec, settings, plan).items():
        if name not in works:
            continue
        backend = load("sandbox backend", BACKENDS, name)("doctor", settings)
        try:
            present = await backend.images_present(images)
        finally:
            await backend.aclose()
        found += [
            Check(
                name=f"image {image}", works=True, why="" if is_here else "not here yet: the run fetches it"
            )
            for image, is_here in present.items()
        ]
    return found
