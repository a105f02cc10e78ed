"""One sandbox at Modal."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import threading
from typing import TYPE_CHECKING, Any

from hermes_run.core.contracts import SandboxInfo
from hermes_run.errors import BackendMissing, SandboxError
from hermes_run.sandboxes._modal_account import asked, reason, troubles
from hermes_run.sandboxes._modal_wire import ModalWire
from hermes_run.sandboxes._spill import most_spilled
from hermes_run.sandboxes._stream_script import START_COMMAND
from hermes_run.sandboxes._stream_shell import StreamShell

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from hermes_run.core.contracts import SandboxRequest
    from hermes_run.sandboxes._ground import Ground
    from hermes_run.sandboxes._modal_account import Account

MISSING = ("disk", "pids")
"""Disks are as big as Modal makes them."""
LIFETIME_S = 24 * 3600
"""The longest that Modal grants: the end of every sandbox, even of one whose runner's machine is gone."""
_WORKSPACE = "/workspace"
_KEEPS_RUNNING = (
    "d=/var/lib/hermes-run; mkdir -p $d || d=/tmp/hermes-run; mkdir -p $d; rm -f $d/idle; mkfifo $d/idle;"
    " exec 3<>$d/idle; rm -f $d/idle; while :; do ( read -r x <&3 ) & wait $!; done"
)
"""The sandbox's own command: it waits, for nothing and for what is orphaned, whatever commands kill."""
_FIND_PLACES = (
    "d=/var/lib/hermes-run; mkdir -p $d 2>/dev/null || { d=/tmp/hermes-run; mkdir -p $d; }; echo $d; pwd"
)
_TERMINATE_S = 10.0
_CREATION_S = 2.0
_LATE_CREATION_S = 120.0
_RESTART_S = 20.0
_LAST_READS_S = 1.0
_LONGEST_LINE = 300


class MaybeAway(SandboxError):
    """Modal's SDK has failed: maybe because Modal cannot be reached any more."""


class ModalBox:
    """One sandbox, and the StreamPlace of its shell. Nothing is made before `start`; `remove` removes it.

    Args:
        account: whose it is.
        ground: of the run.
        request: what is asked of it.
        image: the SDK's image.
        tags: labels, decided before it exists; together they are its alone.
    """

    what = "a modal sandbox"
    spills = "/tmp"

    def __init__(
        self, account: Account, ground: Ground, request: SandboxRequest, image: Any, tags: dict[str, str]
    ) -> None:
        self._account = account
        self._ground = ground
        self._request = request
        self._image = image
        self._tags = tags
        self._creation: asyncio.Task[Any] | None = None
        self._box: Any = None
        self._beside: asyncio.Task[Any] | None = None
        self._wires: list[ModalWire] = []
        self._shell: StreamShell | None = None
        self._watch: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._is_removed = False
        self._cwd = ""
        self.folder = ""
        self.most_spilled = most_spilled(request.memory_mb)

    async def start(self) -> StreamShell:
        """Start it and wait for its shell. Raises SandboxError(sandbox_start)."""
        self._ground.boxes.add(self)
        longest_s = self._request.start_timeout_s
        try:
            async with asyncio.timeout(longest_s):
                return await self._start()
        except TimeoutError:
            said = _last_words(self._shell.said) if self._shell is not None else ""
            raise self._start_error(f"it did not answer within {longest_s:g} s{said}") from None
        except BackendMissing as error:
            raise MaybeAway(str(self._start_error(str(error))), reason="sandbox_start") from error
        except troubles() as error:
            raise MaybeAway(str(self._start_error(reason(error))), reason="sandbox_start") from error

    async def _start(self) -> StreamShell:
        self._creation = asyncio.ensure_future(self._create())
        self._box = await asyncio.shield(self._creation)
        self._watch = asyncio.ensure_future(self._wait_for_its_end())
        await self._find_places()
        wire = await self._run(START_COMMAND, self._start_again)
        shell = self._shell = StreamShell(self, wire, self._cwd)
        try:
            if await shell.start():
                return shell
        except SandboxError as error:
            if error.reason == "sandbox_start":
                raise
            raise self._start_error(f"its shell ended{_last_words(shell.said)}") from error
        raise self._start_error(f"its working directory {self._cwd} cannot be made or entered")

    async def _create(self) -> Any:
        import modal

        request = self._request
        app = await self._account.app()
        cpus = max(0.125, request.cpus)  # Modal's least
        return await modal.Sandbox.create.aio(
            "/bin/sh",
            "-c",
            _KEEPS_RUNNING,
            app=app,
            image=self._image,
            tags=self._tags,
            timeout=LIFETIME_S,
            cpu=(cpus, cpus),
            memory=(request.memory_mb, request.memory_mb),
            block_network=request.network == "none",
        )

    async def _find_places(self) -> None:
        """Its folder for pipes, and where commands start."""
        process = await asked(self._box.exec.aio("/bin/sh", "-c", _FIND_PLACES, text=True))
        said = (await asked(process.stdout.read.aio())).splitlines()
        if len(said) != 2:
            complaint = (await asked(process.stderr.read.aio())).encode()
            raise self._start_error(
                f"its image has no shell that works: a sandbox needs /bin/sh{_last_words(complaint)}"
            )
        self.folder, workdir = said
        base = workdir if workdir not in ("/", "/root") else _WORKSPACE
        path = "/" + posixpath.normpath(posixpath.join("/", base, self._request.cwd)).lstrip("/")
        if "\0" in path:
            raise self._start_error(f"cwd {self._request.cwd!r} holds a NUL character")
        self._cwd = path

    async def _run(
        self, command: Iterable[str], restart: Callable[[], Awaitable[Any]] | None = None
    ) -> ModalWire:
        wire = ModalWire(await asked(self._box.exec.aio(*command, text=False)), restart)
        self._wires.append(wire)
        return wire

    async def _start_again(self) -> Any:
        """The shell's process once more, after a command has killed it; None when the sandbox is gone."""
        with contextlib.suppress(*troubles()):
            async with asyncio.timeout(_RESTART_S):
                return await self._box.exec.aio(*START_COMMAND, text=False)
        return None

    async def _wait_for_its_end(self) -> None:
        """It may be ended from outside, or by its lifetime."""
        with contextlib.suppress(*troubles()):
            await self._box.wait.aio(raise_on_termination=False)
            for wire in self._wires:
                wire.end()

    def _start_error(self, why: str) -> SandboxError:
        return SandboxError(f"{self.what} did not start: {why}", reason="sandbox_start")

    # ------------------------------------------------------------------ StreamPlace

    async def side(self, text: str) -> ModalWire:
        """See StreamPlace.

        Over a connection of its own: on one that nobody reads from for a while nothing can be answered.
        """
        lost = SandboxError(f"{self.what} is gone: no process can be started in it", reason="sandbox_lost")
        if self._shell is not None and self._shell.lost:
            raise lost
        try:
            if self._beside is None:
                self._beside = asyncio.ensure_future(self._connect())
            box = await asyncio.shield(self._beside)
            wire = ModalWire(await asked(box.exec.aio("/bin/sh", "-c", text, text=False)))
        except troubles() as error:
            raise lost from error
        self._wires.append(wire)
        if self._is_removed:
            wire.end()
            raise lost
        return wire

    async def _connect(self) -> Any:
        import modal

        return await modal.Sandbox.from_id.aio(self._box.object_id)

    def destroy(self) -> None:
        """See StreamPlace."""
        if self._box is not None:
            self._ending = asyncio.ensure_future(self._terminate())

    def describe(self, shell: str) -> SandboxInfo:
        """See StreamPlace."""
        return SandboxInfo(
            backend="modal",
            cwd=self._cwd,
            shell=shell,
            image=self._request.image,
            image_digest=self._image.object_id,
            missing=MISSING,
        )

    # ------------------------------------------------------------------ its end

    async def remove(self) -> None:
        """Remove all of it. Not to be cancelled; never raises."""
        self._is_removed = True
        if self._shell is not None:
            self._shell.lose("it was removed")
            self._shell.close()
        for wire in self._wires:
            wire.end()  # who waits for what a process beside the shell says hears that nothing will come
        if self._watch is not None:
            self._watch.cancel()
        if self._box is None and self._creation is not None:
            await self._await_creation()
        await self._terminate()
        await asyncio.gather(*(wire.ended(_LAST_READS_S) for wire in self._wires))
        self._ground.boxes.discard(self)

    async def _await_creation(self) -> None:
        """A creation that was given up may still succeed: it is waited for, soon in the background."""
        creation = self._creation
        assert creation is not None  # noqa: S101 - asked for by `remove` alone
        await asyncio.wait([creation], timeout=_CREATION_S)
        if creation.done():
            self._take(creation)
        else:
            late = asyncio.ensure_future(self._end_late(creation))
            self._account.late.add(late)
            late.add_done_callback(self._account.late.discard)

    async def _end_late(self, creation: asyncio.Task[Any]) -> None:
        await asyncio.wait([creation], timeout=_LATE_CREATION_S)
        if creation.done():
            self._take(creation)
            await self._terminate()
        else:
            creation.cancel()

    def _take(self, creation: asyncio.Task[Any]) -> None:
        if not creation.cancelled() and creation.exception() is None:
            self._box = creation.result()

    async def _terminate(self) -> None:
        if self._box is None:
            return
        with contextlib.suppress(*troubles()):  # else its lifetime ends it
            async with asyncio.timeout(_TERMINATE_S):
                await self._box.terminate.aio()
                await self._box.detach.aio()
                if self._beside is not None:
                    await (await self._beside).detach.aio()

    def remove_now(self) -> None:
        """See Removable: for an interpreter that leaves without closing."""
        box, self._box = self._box, None
        self._ground.boxes.discard(self)
        if box is None:
            return

        def end() -> None:
            with contextlib.suppress(*troubles()):
                box.terminate()

        try:
            ending = threading.Thread(target=end, daemon=True)
            ending.start()
        except RuntimeError:  # too late for threads
            end()
        else:
            ending.join(_TERMINATE_S)


def _last_words(said: bytes) -> str:
    lines = [line.strip()[-_LONGEST_LINE:] for line in said.decode("utf-8", "replace").splitlines()[-5:]]
    return ": " + " | ".join(lines) if lines else ""
