"""What is checked before anything is spent: tools, backends, file descriptors."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

from hermes_run.errors import ToolError, UsageError
from hermes_run.spec.web import with_pins
from hermes_run.tools.globs import read_glob
from hermes_run.tools.toolkit import offered_tools, unavailable

if TYPE_CHECKING:
    from hermes_run.core.contracts import Outside
    from hermes_run.spec.model import Settings, Spec

FILES_PER_WORKER = 6
"""Descriptors that a prompt in flight holds: its sandbox's pipes (4), a connection, a batch file."""
FILES_PER_BROWSER = 48
"""Descriptors of the proxy for each prompt in flight that may browse: to the browser and to the sites."""
FILES_PER_SERVER = 8
"""Descriptors of a process on the host, or of a connection to an MCP server, for each prompt in flight."""
FILES_BESIDE = 64
"""Descriptors that a run holds beside its workers."""


def check_toolsets(spec: Spec, settings: Settings) -> None:
    """Raises UsageError when a toolset that could be drawn cannot work here."""
    drawable = [name for name, percent in spec.distribution.toolsets.items() if percent > 0]
    reasons = unavailable(drawable, spec.toolsets, with_pins(spec, settings))
    if not reasons:
        return
    names = ",".join(reasons)
    lines = [f'the toolset "{name}" cannot work here: {why}' for name, why in reasons.items()]
    rest = [name for name in drawable if name not in reasons]
    cure = (
        f"leave {'it' if len(reasons) == 1 else 'them'} out: --without {names}"
        if rest
        else f"with --without {names} nothing of the distribution "
        f'"{spec.distribution.name}" is left: choose another (hermes-run distributions)'
    )
    raise UsageError("\n".join([*lines, cure]))


def check_artifacts(spec: Spec) -> None:
    """Raises UsageError for a glob of sandbox.artifacts that is none."""
    for glob in spec.sandbox.artifacts:
        try:
            read_glob(glob)
        except ToolError as why:
            raise UsageError(f"sandbox.artifacts: {why}") from why


async def prove_browser(spec: Spec, outside: Outside) -> None:
    """Start the browser where it may be drawn. Raises UsageError when it does not work here."""
    drawable = [name for name, percent in spec.distribution.toolsets.items() if percent > 0]
    browsing = [name for name in drawable if _browses(name, spec)]
    why = await outside.check_browser() if browsing else ""
    if why:
        names = ",".join(browsing)
        raise UsageError(
            f'the toolset "{browsing[0]}" cannot work here: {why}\nhermes-run doctor says more; or leave it '
            f"out: --without {names}"
        )


def check_descriptors(spec: Spec) -> None:
    """Raise the soft limit as far as needed. Raises UsageError when the hard limit is too low."""
    per_worker = FILES_PER_WORKER + (FILES_PER_BROWSER if _may_browse(spec) else 0)
    per_worker += FILES_PER_SERVER * sum(each.host or each.url is not None for each in spec.tools.mcp)
    per_worker += FILES_PER_SERVER * any(each.host for each in spec.tools.custom)
    needed = spec.workers * per_worker + FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            most = max(1, (hard - FILES_BESIDE) // per_worker)
            raise UsageError(
                f"workers: {spec.workers} needs {needed} file descriptors, and this process may have {hard}; "
                f"set workers to {most} or less, or raise the limit (ulimit -n {needed})"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _may_browse(spec: Spec) -> bool:
    """Whether a toolset that can be drawn has browser tools."""
    return any(percent > 0 and _browses(name, spec) for name, percent in spec.distribution.toolsets.items())


def _browses(toolset: str, spec: Spec) -> bool:
    return any(name.startswith("browser_") for name in offered_tools([toolset], spec.toolsets))
