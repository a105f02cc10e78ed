"""The account at Modal that this machine is set up for: its app, images and sandboxes, through Modal's SDK.

The SDK is imported late: it takes longer than many a command.
"""

from __future__ import annotations

import asyncio
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from hermes_run.errors import BackendMissing, SandboxError
from hermes_run.sandboxes._images import FetchLater

if TYPE_CHECKING:
    from collections.abc import Awaitable

APP = "hermes-run"
_LONGEST_BUILD_S = 3600.0
_UNREACHABLE_S = 20.0
"""The SDK itself tries a server that does not answer for almost a minute."""
_PATIENCE_S = 30.0
"""For Modal, or the way to it, when it has gone away during a run."""
_POLL_S = 1.0
_LOGIN_CURE = (
    "run `modal setup` once, or export MODAL_TOKEN_ID and MODAL_TOKEN_SECRET with a token of your workspace"
)
_NETWORK_CURE = "check the network, and MODAL_SERVER_URL if it is set"
_LONGEST_REASON = 300
_WINDOW = 4 << 20
_ADDRESS = re.compile(r"\[Errno \d+\] | ?\('[^']*', \d+\)")
_ID = re.compile(r"\b(?:im|sb|ta|ap|en)-[A-Za-z0-9]+\b|https?://\S+")
_LIMITED = re.compile(r"429|too ?many ?requests", re.IGNORECASE)


@cache
def troubles() -> tuple[type[BaseException], ...]:
    """What the SDK raises: its errors, and those of what it stands on."""
    from grpclib.exceptions import GRPCError, StreamTerminatedError
    from modal.exception import Error

    return Error, GRPCError, StreamTerminatedError, OSError, ValueError, BufferError, TimeoutError


async def asked(work: Awaitable[Any]) -> Any:
    """Await what the SDK does. A cancellation meanwhile stays one.

    The SDK waits for the end of what it was doing, whose error would take the cancellation's place.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        return await work
    except troubles() as error:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise


class Account:
    """See the module. Made without asking anybody.

    Attributes:
        late: what still waits for sandboxes that nobody wants any more, to end them.
    """

    def __init__(self) -> None:
        self.late: set[asyncio.Task[None]] = set()
        self._app: Any = None
        self._turn = asyncio.Lock()

    async def app(self) -> Any:
        """The app that all sandboxes of hermes-run belong to. Raises BackendMissing with the cure."""
        async with self._turn:
            if self._app is None:
                self._app = await within(_UNREACHABLE_S, self._look_up())
        return self._app

    async def come_back(self) -> bool:
        """After a failed start: whether Modal was away, and is back. Raises BackendMissing when it is not.

        Every further start would fail then.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + _PATIENCE_S
        was_away = False
        while True:
            try:
                await within(_UNREACHABLE_S, _greeted())
            except BackendMissing as error:
                if loop.time() > until or error.cure == _LOGIN_CURE:
                    raise
                was_away = True
                await asyncio.sleep(_POLL_S)
            else:
                return was_away

    async def _look_up(self) -> Any:
        import modal

        _bound_windows()
        client = await _greeted()
        return await modal.App.lookup.aio(APP, create_if_missing=True, client=client)

    async def image(self, reference: str) -> Any:
        """An image, built from a registry's and ready there. Raises FetchLater and SandboxError(image)."""
        import modal
        from modal.exception import ImageBuildError, RemoteError

        image = modal.Image.from_registry(
            reference.removeprefix("docker://"), setup_dockerfile_commands=["ENTRYPOINT []", "CMD []"]
        )
        try:
            app = await self.app()
            async with asyncio.timeout(_LONGEST_BUILD_S):
                await asked(image.build.aio(app))
        except BackendMissing as error:
            raise FetchLater(f'image "{reference}" cannot be had: {error}') from error
        except (ImageBuildError, RemoteError) as error:
            why = reason(error)
            text = f'image "{reference}" cannot be had by Modal: {why}; check the name, and that it is public'
            if _LIMITED.search(why):
                raise FetchLater(text) from error
            raise SandboxError(text, reason="image") from error
        except troubles() as error:
            raise FetchLater(f'image "{reference}" cannot be had by Modal: {reason(error)}') from error
        return image

    async def sandboxes(self, tags: dict[str, str]) -> list[tuple[Any, dict[str, str]]]:
        """The living sandboxes that have at least `tags`, with all their tags. Raises BackendMissing."""
        import modal

        app = await self.app()

        async def find() -> list[tuple[Any, dict[str, str]]]:
            return [
                (box, await box.get_tags.aio())
                async for box in modal.Sandbox.list.aio(app_id=app.app_id, tags=tags)
            ]

        found: list[tuple[Any, dict[str, str]]] = await within(_UNREACHABLE_S, find())
        return found

    async def finish_late(self) -> None:
        """Wait for the ends of late sandboxes, for a while: what comes later still is left to `clean`."""
        if self.late:
            await asyncio.wait(self.late, timeout=_UNREACHABLE_S)

    async def terminate(self, tags: dict[str, str]) -> None:
        """End the sandboxes that have at least `tags`. Raises BackendMissing."""
        for box, _ in await self.sandboxes(tags):
            await within(_UNREACHABLE_S, box.terminate.aio())


async def _greeted() -> Any:
    """The SDK's client, once Modal has answered it."""
    import modal

    client: Any = modal.Client
    client = await client.from_env.aio()
    await client.hello.aio()
    return client


def _bound_windows() -> None:
    """Let less be sent ahead of reading: with the SDK's 64 MiB, each sandbox may take so much of our memory.

    What it calls the constant is its own affair: where it is called otherwise, nothing is changed.
    """
    from modal._utils import grpc_utils

    if getattr(grpc_utils, "GRPC_WINDOW_SIZE", 0) > _WINDOW:
        grpc_utils.GRPC_WINDOW_SIZE = _WINDOW


async def within(longest_s: float, work: Awaitable[Any]) -> Any:
    """Await what the SDK does, for so long at most. Raises BackendMissing with the cure."""
    from modal.exception import AuthError

    try:
        async with asyncio.timeout(longest_s):
            return await asked(work)
    except AuthError as error:
        missing = "missing" in str(error).lower()
        why = "there is no token for Modal" if missing else "Modal refuses the token of this machine"
        raise BackendMissing(why, cure=_LOGIN_CURE) from error
    except TimeoutError as error:
        raise BackendMissing(f"Modal does not answer within {longest_s:g} s", cure=_NETWORK_CURE) from error
    except troubles() as error:
        raise BackendMissing(f"Modal cannot be used: {reason(error)}", cure=_NETWORK_CURE) from error


def reason(error: BaseException) -> str:
    """What an error of the SDK says, without what differs each time."""
    text = " ".join(_ADDRESS.sub("", _ID.sub("<id>", str(error))).split())
    return text[:_LONGEST_REASON] or type(error).__name__
