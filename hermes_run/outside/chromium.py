"""The run's browser: one Chromium in its jail, or a remote one, and a context of it for each rollout.

It is started when the first rollout asks, and again for the next one when it has died: those that were in
it end with BrowserError.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import shlex
from typing import TYPE_CHECKING, Any

from hermes_run.errors import BrowserError
from hermes_run.outside.gate import Gate
from hermes_run.outside.ground import BrowserGround
from hermes_run.outside.jail import DOWNLOADS, INFO, write_launcher
from hermes_run.outside.netns import PORT, listen_in_namespace_of
from hermes_run.outside.proxy import Proxy
from hermes_run.spec.browser import cdp_url, find_bwrap, find_chromium, node_is, why_no_browser

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path

    from playwright.async_api import Browser, BrowserContext, Playwright

    from hermes_run.spec.model import Settings

_log = logging.getLogger("hermes_run.browser")

_PLACE = re.compile(r" (?:[0-9.]+|\[[0-9a-f:]+\]|::1):\d+")
START_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 10.0
VIEWPORT = {"width": 1280, "height": 720}

_NO_FEATURES = (
    # what playwright switches off; a list given later replaces its own
    "AvoidCorsURLLoaderRestartOnRedirect",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "CDPScreenshotNewSurface",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "SkipListAccountsWithoutGaiaCookies",
    "ThirdPartyStoragePartitioning",
    # the address bar's own pages: two more processes for each rollout, and a second of its start
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxPopup",
    "AimEnabled",
    "SpareRendererForSitePerProcess",
)
_FLAGS = (
    f"--disable-features={','.join(_NO_FEATURES)}",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--no-pings",
    "--js-flags=--max-old-space-size=1024",  # a page's script ends before the machine's memory does
    f"--proxy-server=http://127.0.0.1:{PORT}",
    "--proxy-bypass-list=<-loopback>",  # what is called localhost goes through the proxy too
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
)


class Chromium:
    """The browser of one run. `aclose` at the end.

    Args:
        run_name: for the label.
        settings: the machine's.
        proxy: gives the run's proxy, started.
    """

    def __init__(self, run_name: str, settings: Settings, proxy: Callable[[], Awaitable[Proxy]]) -> None:
        self._run = run_name
        self._settings = settings
        self._proxy = proxy
        self._starting = asyncio.Lock()
        self._ground: BrowserGround | None = None
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None

    async def open_context(self) -> BrowserContext:
        """A new context. Raises BrowserError when there is no browser to be had."""
        from playwright.async_api import Error

        try:
            async with asyncio.timeout(2 * START_TIMEOUT_S):
                browser = await self._living()
                options: dict[str, Any] = {"accept_downloads": True, "viewport": VIEWPORT, "locale": "en-US"}
                return await browser.new_context(**options, service_workers="block")
        except TimeoutError:
            raise BrowserError("the browser does not start") from None
        except Error as error:
            said = self._masked(str(error))
            _log.info("no browser: %s", said)
            raise BrowserError(f"the browser is gone or does not start: {_first_line(said)}") from None
        except OSError as error:
            raise BrowserError(f"the browser does not start: {error}") from None

    def _masked(self, text: str) -> str:
        """What playwright says without a remote browser's address, which may hold a key."""
        remote = cdp_url(self._settings)
        for part in (remote, remote.partition("?")[2], remote.partition("://")[2].partition("?")[0]):
            text = text.replace(part, "browser.cdp_url") if part else text
        return text

    async def check(self) -> str:
        """Start it and open a context: why that does not work, or ""."""
        try:
            context = await self.open_context()
        except BrowserError as error:
            return str(error)
        await _ended(context.close())
        return ""

    async def _living(self) -> Browser:
        async with self._starting:
            if self._browser is None or not self._browser.is_connected():
                await self._give_up()
                why = why_no_browser(self._settings)
                if why:
                    raise BrowserError(why)
                self._browser = await self._start()
            return self._browser

    async def _start(self) -> Browser:
        from playwright.async_api import Error, async_playwright

        if self._ground is None:
            self._ground = BrowserGround(self._run)
        folder = self._ground.path
        if self._playwright is None:
            with node_is(_write_node(folder)):
                self._playwright = await async_playwright().start()
        remote = cdp_url(self._settings)
        if remote:
            return await self._playwright.chromium.connect_over_cdp(remote, timeout=START_TIMEOUT_S * 1000)
        launcher = write_launcher(folder, find_bwrap(), find_chromium(self._settings))
        for has_own_sandbox in (True, False):  # some kernels allow no namespaces in a jail's own
            with contextlib.suppress(FileNotFoundError):
                (folder / INFO).unlink()
            try:
                browser = await self._launch(launcher, has_own_sandbox=has_own_sandbox)
            except Error:
                if not has_own_sandbox:
                    raise
                continue
            return browser
        raise AssertionError("the last try returns or raises")

    async def _launch(self, launcher: Path, *, has_own_sandbox: bool) -> Browser:
        if self._playwright is None:
            raise AssertionError("the driver is started first")
        browser = await self._playwright.chromium.launch(
            executable_path=launcher,
            chromium_sandbox=has_own_sandbox,
            args=list(_FLAGS),
            env={"PATH": "/usr/bin:/bin"},
            downloads_path=launcher.parent / DOWNLOADS,
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
            timeout=START_TIMEOUT_S * 1000,
        )
        pid = json.loads((launcher.parent / INFO).read_text("utf-8"))["child-pid"]
        await (await self._proxy()).listen(await listen_in_namespace_of(pid))
        return browser

    async def _give_up(self) -> None:
        """Drop a browser, dead or alive."""
        browser, self._browser = self._browser, None
        if browser is not None:
            await _ended(browser.close())

    async def aclose(self) -> None:
        """End the browser; nothing of it is left."""
        await self._give_up()
        driver, self._playwright = self._playwright, None
        if driver is not None:
            await _ended(driver.stop())
        ground, self._ground = self._ground, None
        if ground is not None:
            ground.remove()


async def check_browser(settings: Settings) -> str:
    """Why a run's browser does not work on this machine, or "": one is started and ended."""
    gate = Gate()
    proxy = Proxy(gate)

    async def unstarted() -> Proxy:
        return proxy

    browser = Chromium("doctor", settings, unstarted)
    try:
        return why_no_browser(settings) or await browser.check()
    finally:
        await browser.aclose()
        await proxy.close()
        gate.close()


async def _ended(closing: Coroutine[Any, Any, None]) -> None:
    """Wait for something to close, as long as that is of use; what is dead already is closed."""
    from playwright.async_api import Error

    with contextlib.suppress(Error, OSError, TimeoutError):
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await closing


def _first_line(text: str) -> str:
    return _PLACE.sub("", text.strip().partition("\n")[0])[:200].rstrip()


def _write_node(folder: Path) -> str:
    """A script that runs playwright's driver without the run's keys, out of reach of a terminal's Ctrl-C.

    Otherwise the interrupt that lets rollouts finish would take their browser away.
    """
    import inspect
    from pathlib import Path as RealPath

    import playwright

    node = RealPath(inspect.getfile(playwright)).parent / "driver" / "node"
    script = folder / "node"
    kept = 'PATH="$PATH" HOME="$HOME" PW_LANG_NAME="$PW_LANG_NAME"'
    kept += ' PW_LANG_NAME_VERSION="$PW_LANG_NAME_VERSION" PW_CLI_DISPLAY_VERSION="$PW_CLI_DISPLAY_VERSION"'
    run = f'{shlex.quote(str(node))} "$@"'
    script.write_text(
        f"#!/bin/sh\nif command -v setsid >/dev/null; then exec env -i {kept} setsid {run}; fi\n"
        f"exec env -i {kept} {run}\n",
        "utf-8",
    )
    script.chmod(0o700)
    return str(script)
