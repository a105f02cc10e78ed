"""Images of a Docker daemon: what is there, and fetching what is not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from hermes_run.core.images import plain_reference
from hermes_run.errors import BackendMissing, SandboxError
from hermes_run.sandboxes._docker_engine import explain, no_daemon
from hermes_run.sandboxes._images import FetchLater
from hermes_run.sandboxes._threads import apart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from docker import APIClient

    from hermes_run.sandboxes._docker_engine import Engine

_CONNECT_S = 30.0
_STALL_S = 180.0
"""The longest silence of a fetch that goes on: unpacking and checking a big layer say little."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386", "i386": "386"}
_ALSO_RUNS = {"amd64": ("386",), "arm64": ("arm",)}

_BUSY = re.compile(r"toomanyrequests|too many requests|\b429\b|rate limit", re.IGNORECASE)
_OTHER_CPU = re.compile(
    r"no matching manifest|does not match the specified platform|wanted \w+/", re.IGNORECASE
)
_NO_REFERENCE = re.compile(
    r"invalid reference|repository name must be|invalid tag|could not parse", re.IGNORECASE
)
_NO_IMAGE = re.compile(r"manifest unknown|name unknown|manifest for \S+ not found|not found", re.IGNORECASE)
_NO_LOGIN = re.compile(
    r"unauthorized|denied|authentication required|no basic auth|incorrect username|forbidden", re.IGNORECASE
)
_FULL = re.compile(r"no space left|disk quota", re.IGNORECASE)


class Image(Struct, frozen=True):
    """What is known of an image that is here.

    `digest` is the registry's, else the daemon's own id of it. `user` and `workdir` are its own.
    """

    id: str
    digest: str
    user: str
    workdir: str


def look(client: APIClient, image: str, daemon: Mapping[str, Any]) -> Image | None:
    """The image, if the daemon has it. Raises SandboxError(image) when it is for another CPU."""
    from docker.errors import APIError, ImageNotFound

    try:
        found = client.inspect_image(image)  # type: ignore[no-untyped-call]
    except ImageNotFound:
        return None
    except APIError as error:
        raise _refusal(image, explain(error), daemon) from error
    _check_cpu(image, found, daemon)
    config = found.get("Config") or {}
    return Image(
        id=found["Id"],
        digest=_digest(image, found.get("RepoDigests") or []) or found["Id"],
        user=config.get("User") or "",
        workdir=config.get("WorkingDir") or "",
    )


def is_here(client: APIClient, image: str) -> bool:
    """Whether the daemon has it."""
    from docker.errors import APIError

    try:
        client.inspect_image(image)  # type: ignore[no-untyped-call]
    except APIError:  # not there, or no reference at all
        return False
    return True


def fetch(client: APIClient, image: str, daemon: Mapping[str, Any]) -> Image:
    """The image, from its registry if the daemon has it not. Blocks.

    Raises FetchLater, SandboxError(image).
    """
    try:
        image = plain_reference(image)
    except ValueError as error:
        raise SandboxError(f'the image "{image}" cannot be had: {error}', reason="image") from error
    try:
        found = look(client, image, daemon)
        if found is None:
            _pull(client, image, daemon)
            found = look(client, image, daemon)
    except OSError as error:  # requests' errors are of that kind; the daemon's answers are not
        raise FetchLater(
            f'the image "{image}" cannot be fetched: the Docker daemon does not answer'
        ) from error
    if found is None:
        raise SandboxError(f'the image "{image}" was fetched, and is not there', reason="image")
    return found


def _pull(client: APIClient, image: str, daemon: Mapping[str, Any]) -> None:
    """What `client.pull` does, but that it notices when nothing comes any more."""
    from docker import auth
    from docker.errors import APIError, DockerException
    from docker.utils import parse_repository_tag
    from urllib3.exceptions import HTTPError

    repository, tag = parse_repository_tag(image)
    try:
        registry, _ = auth.resolve_repository_name(repository)
        header = auth.get_config_header(client, registry)
    except DockerException as error:  # no reference, or a credential helper that fails
        raise SandboxError(
            f'the image "{image}" cannot be fetched: {explain(error)}', reason="image"
        ) from error
    parameters = {"fromImage": repository, "tag": tag or "latest", "platform": platform(daemon)}
    try:
        with client.post(
            f"{client.base_url}/v{client.api_version}/images/create",
            params=parameters,
            headers={"X-Registry-Auth": header} if header else {},
            stream=True,
            timeout=(_CONNECT_S, _STALL_S),
        ) as answer:
            client._raise_for_status(answer)  # type: ignore[attr-defined] # noqa: SLF001 - an APIError
            _follow(client, answer, image, daemon)
    except APIError as error:
        raise _refusal(image, explain(error), daemon) from error
    except (OSError, HTTPError) as error:  # of requests, and in the middle of a stream of urllib3
        raise FetchLater(
            f'the image "{image}" cannot be fetched: nothing comes any more; check the network, its registry'
            " and the Docker daemon"
        ) from error


def _follow(client: APIClient, answer: Any, image: str, daemon: Mapping[str, Any]) -> None:
    """Read what a fetch says until it is over."""
    for word in client._stream_helper(answer, decode=True):  # type: ignore[attr-defined] # noqa: SLF001
        if "error" in word:
            raise _refusal(image, explain(Exception(word["error"])), daemon)


def platform(daemon: Mapping[str, Any]) -> str:
    """What images have to be for: `linux/amd64`."""
    machine = daemon.get("Architecture") or ""
    return f"{daemon.get('OSType') or 'linux'}/{_ARCHITECTURES.get(machine, machine)}"


def _check_cpu(image: str, found: Mapping[str, Any], daemon: Mapping[str, Any]) -> None:
    wanted = platform(daemon).partition("/")[2]
    there = found.get("Architecture") or wanted
    if there != wanted and there not in _ALSO_RUNS.get(wanted, ()):
        raise SandboxError(
            f'the image "{image}" is for {found.get("Os") or "linux"}/{there}, and this Docker daemon runs'
            f" {platform(daemon)}: name one that is made for it",
            reason="image",
        )


def _digest(image: str, digests: list[str]) -> str:
    """The registry's digest: of the repository that was named, if there are several."""
    repository = image.partition("@")[0]
    head, colon, tag = repository.rpartition(":")
    repository = head if colon and "/" not in tag else repository
    named = [digest for digest in digests if digest.partition("@")[0].endswith(repository)]
    return (named or sorted(digests) or [""])[0].partition("@")[2]


def _refusal(image: str, said: str, daemon: Mapping[str, Any]) -> Exception:
    """Why an image cannot be had, with the cure; something to ask again later, or for good."""
    if _BUSY.search(said):
        return FetchLater(
            f'the image "{image}" cannot be fetched: its registry answers "too many requests"; log in to it'
            " (docker login), wait, or use a mirror"
        )
    for pattern, why in (
        (_OTHER_CPU, f"is not made for {platform(daemon)}, which this Docker daemon runs: name one that is"),
        (_NO_REFERENCE, "is no image reference; write name:tag, or host/name:tag, in small letters"),
        (_NO_LOGIN, "does not exist in its registry, or needs a login: check its name, or docker login"),
        (_NO_IMAGE, "does not exist in its registry: check its name and tag"),
        (_FULL, "does not fit on the Docker daemon's disk: make room (docker system prune)"),
    ):
        if pattern.search(said):
            return SandboxError(f'the image "{image}" {why}', reason="image")
    return FetchLater(
        f'the image "{image}" cannot be fetched: its registry cannot be reached or fails; check its name,'
        " the network and the registry"
    )


class ImageRack:
    """The images of one run, by way of its engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._daemon: Mapping[str, Any] = {}

    async def daemon(self) -> Mapping[str, Any]:
        """What the daemon says of itself; asked once. Raises BackendMissing."""
        from docker.errors import DockerException

        if not self._daemon:
            try:
                self._daemon = await self._engine.call(lambda client: client.info())
            except (DockerException, OSError) as error:
                raise no_daemon(self._engine.address, error) from error
        return self._daemon

    async def fetch(self, image: str) -> Image:
        """See `fetch`."""
        try:
            daemon = await self.daemon()
        except BackendMissing as error:  # it worked when the run began: it may come back
            raise FetchLater(f'the image "{image}" cannot be fetched: {error}') from error
        return await apart(lambda: fetch(self._engine.client(), image, daemon))

    async def present(self, images: list[str]) -> dict[str, bool]:
        """Which are here. Raises BackendMissing."""
        from docker.errors import DockerException

        try:
            return await self._engine.call(
                lambda client: {image: is_here(client, image.removeprefix("docker://")) for image in images}
            )
        except (DockerException, OSError) as error:
            raise no_daemon(self._engine.address, error) from error
