"""Images of singularity sandboxes: SIF files, each built once from its registry, and kept for later runs.

The cache folder holds `sif/<hash>.sif` with `<hash>.json` (what its image says of itself), `refs/<hash>.json`
(which of them a reference meant when it was last asked for), `locks/` and `layers/`. A SIF is built under a
name of its own and then renamed, by one process at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import platform
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes_run.core.keys import digest as key_of
from hermes_run.errors import SandboxError
from hermes_run.sandboxes._images import FetchLater
from hermes_run.sandboxes._registry import LoginNeeded, Reference, Registry, parse
from hermes_run.sandboxes._singularity_build import build_sif, configuration
from hermes_run.sandboxes._threads import apart

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_log = logging.getLogger("hermes_run.images")
_LOCAL_ENDINGS = (".sif", ".img", ".sqsh")
_POLL_S = 0.2
_CHUNK = 1 << 20
_CPUS = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "armv6l": "arm", "i686": "386"}
"""What registries call the machines whose own name is another."""


class Image(Struct, frozen=True):
    """An image that sandboxes can be started from.

    Attributes:
        path: a SIF file or a sandbox directory.
        digest: the registry's, or the file's own; "" for a directory.
        workdir: where the image says that commands start, or "".
        environment: `NAME=value` as the image says.
        binds: more options of `exec`.
    """

    path: str
    digest: str = ""
    workdir: str = ""
    environment: tuple[str, ...] = ()
    binds: tuple[str, ...] = ()


def is_local(image: str) -> bool:
    """Whether `image` names a file or folder of this machine rather than something in a registry."""
    return image.startswith(("/", "./", "../", "~")) or image in (".", "..") or image.endswith(_LOCAL_ENDINGS)


class ImageCache:
    """Images by name.

    Args:
        folder: of the cache; made when needed.
        binary: apptainer or singularity.
        allows_local: whether an image may be a file or folder of this machine.
    """

    def __init__(self, folder: str, binary: str, *, allows_local: bool) -> None:
        self._folder = folder
        self._binary = binary
        self._allows_local = allows_local

    def is_present(self, image: str) -> bool:
        """Whether it is here already."""
        if is_local(image):
            return self._allows_local and os.path.exists(image)
        try:
            return self._kept(parse(_without_scheme(image))) is not None
        except SandboxError:
            return False

    async def fetch(self, image: str) -> Image:
        """Make sure that it is here. Raises FetchLater and SandboxError(image)."""
        if is_local(image):
            return await self._local(image)
        reference = parse(_without_scheme(image))
        registry = Registry(reference, image)
        kept = self._kept(reference)
        try:
            digest = reference.digest if kept and reference.digest else await apart(registry.digest)
        except LoginNeeded:
            digest = kept.digest if kept else ""  # the builder may know a login that we do not
        except (FetchLater, SandboxError) as error:
            if kept is None:
                raise
            _log.warning("%s; the copy in the cache is used (%s)", error, kept.digest or "digest unknown")
            digest = kept.digest
        if kept is not None and kept.digest == digest:
            return kept
        try:
            return await self._built(reference, registry, image, digest)
        except OSError as error:
            raise SandboxError(
                f'image "{image}" cannot be kept: {(error.strerror or "error").lower()} in the image cache; '
                "free some space, or set sandbox.image_cache in hermes.yaml",
                reason="image",
            ) from error

    async def _local(self, image: str) -> Image:
        if not self._allows_local:
            raise SandboxError(
                f'image "{image}" is a file or folder of this machine, which a row or spec may not name here;'
                " name an image in a registry, or set `sandbox: {allow_local_images: true}` in hermes.yaml",
                reason="image",
            )
        path = await asyncio.to_thread(_place_of, image)
        if path.endswith("/"):
            return Image(path.rstrip("/") or "/")
        digest = await asyncio.to_thread(_digest_of, path, image)
        workdir, environment = await configuration(self._binary, path)
        return Image(path, digest, workdir, environment)

    def _ref_file(self, reference: Reference) -> str:
        return f"{self._folder}/refs/{key_of(f'{reference.text}{_cpu()}'.encode())}.json"

    def _kept(self, reference: Reference) -> Image | None:
        """What the cache has for a reference."""
        try:
            with open(self._ref_file(reference), encoding="utf-8") as file:
                name = json.load(file)["sif"]
            return self._read(str(name))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _read(self, name: str) -> Image:
        """A kept SIF. Raises OSError and ValueError when it is not whole."""
        path = f"{self._folder}/sif/{name}"
        with open(f"{path}.json", encoding="utf-8") as file:
            about = json.load(file)
        os.stat(f"{path}.sif")
        return Image(f"{path}.sif", about["digest"], about["workdir"], tuple(about["environment"]))

    async def _built(self, reference: Reference, registry: Registry, image: str, digest: str) -> Image:
        """Build it, unless another process has done so meanwhile."""
        what = reference.at(digest) if digest else reference.text
        name = key_of(f"{what}{_cpu()}".encode())
        for folder in ("sif", "refs", "locks", "layers", "building"):
            os.makedirs(f"{self._folder}/{folder}", mode=0o700, exist_ok=True)
        async with _locked(f"{self._folder}/locks/{name}"):
            try:
                built = self._read(name)
            except (OSError, ValueError, KeyError):
                await self._check_cpu(registry, image)
                about = await build_sif(
                    self._binary, self._folder, name, f"docker://{what}", image, is_plain=registry.is_plain
                )
                _write(
                    f"{self._folder}/sif/{name}.json",
                    {"reference": reference.text, "digest": digest, **about},
                )
                built = self._read(name)
            _write(self._ref_file(reference), {"reference": reference.text, "digest": digest, "sif": name})
        return built

    async def _check_cpu(self, registry: Registry, image: str) -> None:
        try:
            found = await apart(registry.architectures)
        except LoginNeeded:
            return
        if found and _cpu() not in found:
            raise SandboxError(
                f'image "{image}" is for another CPU ({", ".join(sorted(found))}), and this machine is'
                f" {_cpu()}; name an image for it",
                reason="image",
            )


def _without_scheme(image: str) -> str:
    """`image` without `docker://`. Raises SandboxError(image) for another kind of address."""
    scheme, mark, rest = image.partition("://")
    if not mark:
        return image
    if scheme != "docker":
        raise SandboxError(
            f'image "{image}" is none that a singularity sandbox takes; write a registry reference'
            " (docker://name:tag, or name:tag), a .sif file or a sandbox directory",
            reason="image",
        )
    return rest


def _cpu() -> str:
    machine = platform.machine().lower()
    return _CPUS.get(machine, machine)


def _place_of(image: str) -> str:
    """The absolute path of a local image, ending with / for a directory. Raises SandboxError(image)."""
    path = os.path.abspath(image)
    if not os.path.exists(path):
        raise SandboxError(f'image "{image}" does not exist on this machine', reason="image")
    return f"{path}/" if os.path.isdir(path) else path


def _digest_of(path: str, image: str) -> str:
    found = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while data := file.read(_CHUNK):
                found.update(data)
    except OSError as error:
        raise SandboxError(
            f'image "{image}" cannot be read: {(error.strerror or "error").lower()}', reason="image"
        ) from error
    return f"sha256:{found.hexdigest()}"


def _write(path: str, value: dict[str, object]) -> None:
    """Write a file whole or not at all."""
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(f"{path}.{os.getpid()}", path)


@asynccontextmanager
async def _locked(path: str) -> AsyncIterator[None]:
    """Hold a lock against other processes; the kernel drops it however this one ends."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            await asyncio.sleep(_POLL_S)
        yield
    finally:
        os.close(file)
