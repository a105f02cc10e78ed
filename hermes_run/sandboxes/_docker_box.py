"""One docker sandbox: a container whose first process is the stream shell's program."""

from __future__ import annotations

import asyncio
import contextlib
import io
import tarfile
from typing import TYPE_CHECKING, Any

from hermes_run.core.contracts import SandboxInfo
from hermes_run.core.keys import digest
from hermes_run.errors import BackendMissing, SandboxError, ToolError
from hermes_run.sandboxes import _docker_config as config
from hermes_run.sandboxes._docker_engine import explain, start_error
from hermes_run.sandboxes._docker_network import endpoint, resolvers
from hermes_run.sandboxes._docker_wire import DockerWire, close_streams
from hermes_run.sandboxes._spill import most_spilled
from hermes_run.sandboxes._stream_shell import StreamShell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docker import APIClient

    from hermes_run.core.contracts import SandboxRequest
    from hermes_run.sandboxes._docker_engine import Engine
    from hermes_run.sandboxes._docker_images import Image
    from hermes_run.sandboxes._ground import Ground

_LAST_LINES = 5
_LONGEST_LINE = 300
_REMOVE_S = 30.0
"""How long a daemon may take to finish what it was asked for, before its removal is left to it."""
_GONE = (404, 409)
"""What the daemon answers for a container that is not there, or has ended."""
_GONE_POLL_S = 0.02
_ATTACH = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}


class DockerBox:
    """One sandbox. Nothing is made before `start`; `remove` removes what was.

    Args:
        engine: the connection to the daemon.
        ground: what marks this run's things as a living run's.
        daemon: what the daemon says of itself.
        request, image: what it is made of.
    """

    what = "a docker sandbox"
    folder = config.PIPES
    spills = "/tmp"

    def __init__(
        self,
        engine: Engine,
        ground: Ground,
        daemon: Mapping[str, Any],
        *,
        request: SandboxRequest,
        image: Image,
    ) -> None:
        self._engine = engine
        self._ground = ground
        self._daemon = daemon
        self._request = request
        self._image = image
        self._cwd = config.working_directory(request.cwd, image.workdir)
        self._name = ""
        self._launch: asyncio.Future[Any] | None = None
        self._shell: StreamShell | None = None
        self._is_removed = False
        self.most_spilled = most_spilled(request.memory_mb)

    async def start(self, owner: Mapping[str, str], number: int, network: str) -> StreamShell:
        """Start it and wait for its shell. Raises SandboxError(sandbox_start)."""
        request = self._request
        rollout = f"{request.run}\x1f{request.key}"
        self._name = f"hermes-run-{self._ground.mark}-{digest(rollout.encode())[:12]}-{number}"
        body = config.container(
            request,
            image_id=self._image.id,
            network=network,
            labels=config.labels(request, self._ground.mark, owner),
            daemon=self._daemon,
        )
        if network != "none":
            body["NetworkingConfig"] = endpoint(network)
            body["HostConfig"]["Dns"] = resolvers(self._engine.address)
        self._ground.boxes.add(self)
        try:
            async with asyncio.timeout(request.start_timeout_s):
                self._launch = self._engine.submit(
                    lambda client: _launch(client, self._engine.address, self._name, body)
                )
                wire = DockerWire(await asyncio.shield(self._launch))
                self._shell = StreamShell(self, wire, self._cwd, config.most_processes(request))
                await self._wait_for(self._shell)
        except TimeoutError:
            raise self._failure(f"its shell did not answer within {request.start_timeout_s:g} s") from None
        return self._shell

    async def _wait_for(self, shell: StreamShell) -> None:
        try:
            if not await shell.start():
                try:
                    await self._make_cwd(shell)
                    is_made = await shell.start()
                except ToolError:
                    is_made = False
                if not is_made:
                    raise self._failure(f"its working directory {self._cwd} cannot be made")
        except SandboxError as error:
            if error.reason != "sandbox_lost":
                raise
            raise self._failure("it ended before its shell answered") from None

    async def _make_cwd(self, shell: StreamShell) -> None:
        """For an image whose own user may not: by the daemon, which gives it to that user.

        Raises ToolError when the daemon cannot: a file of the image that is in the way stays as it is.
        """
        archive = io.BytesIO()
        with tarfile.TarFile(fileobj=archive, mode="w") as tar:
            entry = tarfile.TarInfo(self._cwd.lstrip("/"))
            entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, 0o755, shell.uid, 0
            tar.addfile(entry)
        await self._ask(lambda client: _unpack(client, self._name, archive.getvalue()))

    async def _ask(self, work: Any) -> Any:
        from docker.errors import APIError, DockerException

        try:
            return await self._engine.call(work)
        except (DockerException, OSError) as error:
            if isinstance(error, APIError) and error.status_code not in _GONE:
                raise ToolError(f"the sandbox starts no further process: {explain(error)}") from error
            raise SandboxError(
                f"{self.what} is gone: the daemon does not know it any more", reason="sandbox_lost"
            ) from error

    def _failure(self, why: str) -> SandboxError:
        """A failed start, with its last words."""
        said = self._shell.said.decode("utf-8", "replace") if self._shell is not None else ""
        lines = [line[-_LONGEST_LINE:] for line in said.splitlines()[-_LAST_LINES:]]
        words = ": " + " | ".join(lines) if lines else ""
        return SandboxError(f"{self.what} did not start: {why}{words}", reason="sandbox_start")

    # ------------------------------------------------------------------ StreamPlace

    def describe(self, shell: str) -> SandboxInfo:
        """See StreamPlace."""
        return SandboxInfo(
            backend="docker",
            cwd=self._cwd,
            shell=shell,
            image=self._request.image,
            image_digest=self._image.digest,
            missing=config.what_is_missing(self._daemon),
        )

    async def side(self, text: str) -> DockerWire:
        """See StreamPlace."""

        def begin(client: APIClient) -> Any:
            made = client.exec_create(self._name, ["/bin/sh", "-c", text], stdin=True)
            return client.exec_start(made["Id"], socket=True)

        return DockerWire(await self._ask(begin))

    def destroy(self) -> None:
        """See StreamPlace."""
        if self._name and not self._is_removed:
            self._engine.submit(lambda client: _remove(client, self._name)).add_done_callback(_forget_error)

    # ------------------------------------------------------------------ the end

    async def remove(self) -> None:
        """Remove it. Not to be cancelled."""
        if self._shell is not None:
            self._shell.lose("it was removed")
            self._shell.close()
        launch = self._launch
        if launch is None:
            self._ground.boxes.discard(self)
            return
        if not launch.done():
            await asyncio.wait([launch], timeout=_REMOVE_S)
        launch.add_done_callback(self._let_go)
        removal = self._engine.submit(lambda client: _remove(client, self._name))
        removal.add_done_callback(_forget_error)
        await asyncio.wait([removal], timeout=_REMOVE_S)
        self._is_removed = True
        self._ground.boxes.discard(self)

    def _let_go(self, launch: asyncio.Future[Any]) -> None:
        """Close streams that came too late for anybody to use them."""
        if not launch.cancelled() and launch.exception() is None and self._shell is None:
            close_streams(launch.result())

    def remove_now(self) -> None:
        """Remove it, waiting in place; never raises. See Removable."""
        if self._is_removed or not self._name:
            return
        from docker.errors import DockerException

        self._is_removed = True
        with contextlib.suppress(DockerException, OSError, BackendMissing):
            _remove(self._engine.client(), self._name)


def _launch(client: APIClient, address: str, name: str, body: dict[str, Any]) -> Any:
    """Create a container, connect to its streams, start it. Blocks. Raises SandboxError(sandbox_start)."""
    from docker.errors import DockerException

    streams: Any = None
    try:
        client.create_container_from_config(body, name)  # type: ignore[no-untyped-call]
        streams = client.attach_socket(name, params=_ATTACH)
        client.start(name)
    except (DockerException, OSError) as error:
        if streams is not None:
            close_streams(streams)
        raise start_error(error, address) from error
    return streams


def _unpack(client: APIClient, name: str, archive: bytes) -> None:
    """What `client.put_archive` does, but that no folder takes the place of a file. Blocks."""
    url = f"{client.base_url}/v{client.api_version}/containers/{name}/archive"
    parameters = {"path": "/", "noOverwriteDirNonDir": "true"}
    answer = client.put(url, params=parameters, data=archive, timeout=client.timeout)
    client._raise_for_status(answer)  # type: ignore[attr-defined] # noqa: SLF001 - an APIError


def _remove(client: APIClient, name: str) -> None:
    """Remove a container, and see it gone. Blocks."""
    import time

    from docker.errors import APIError, NotFound

    until = time.monotonic() + _REMOVE_S
    while time.monotonic() < until:
        try:
            client.remove_container(name, force=True, v=True)
        except NotFound:
            return
        except APIError as error:  # the daemon is at it already
            if error.status_code != 409:
                raise
            time.sleep(_GONE_POLL_S)
        else:
            return


def _forget_error(removal: asyncio.Future[None]) -> None:
    """A container that could not be removed ends by itself, and is found by `clean`."""
    if not removal.cancelled():
        removal.exception()
