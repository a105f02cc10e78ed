"""Building a SIF from a registry's image, and reading what the image says of itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from typing import Any

from hermes_run.errors import SandboxError
from hermes_run.sandboxes._ending import to_the_end
from hermes_run.sandboxes._images import FetchLater
from hermes_run.sandboxes._processes import process_table
from hermes_run.sandboxes._registry import LoginNeeded, no_such_image, too_many, unreachable
from hermes_run.sandboxes._removal import remove_tree

_LONGEST_BUILD_S = 3600.0
_STALL_S = 180.0
"""How long a build may neither read nor write anything: its registry has stopped to send."""
_LONGEST_LOOK_S = 60.0
_MOST_SAID = 20_000
_STALLED = "hermes-run: nothing comes any more"
_LONGEST_LINE = 300
_UNREACHABLE = re.compile(
    r"connection refused|connection reset|no such host|i/o timeout|TLS handshake|unexpected EOF"
    r"|network is unreachable|server misbehaving|\b50[0234]\b",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"manifest[_ ]unknown|name[_ ]unknown|\b404\b|not found", re.IGNORECASE)
_LOGIN = re.compile(r"unauthorized|authentication required|denied|\b40[13]\b", re.IGNORECASE)
_LIMITED = re.compile(r"toomanyrequests|too many requests|\b429\b", re.IGNORECASE)
_ADDRESS = re.compile(r"\S+/building/\S+|\bGET \S+: |sha256:[0-9a-f]+|\x1b\[[0-9;]*m")


async def build_sif(
    binary: str, folder: str, name: str, source: str, image: str, *, is_plain: bool
) -> dict[str, Any]:
    """Build `<folder>/sif/<name>.sif`. The caller holds its lock.

    Args:
        binary: apptainer or singularity.
        folder: the image cache.
        name: of the SIF.
        source: what it is built from, as the binary takes it.
        image: as the user wrote it, for messages.
        is_plain: whether the registry speaks http.

    Returns:
        `workdir` and `environment`, as the image says.

    Raises FetchLater, SandboxError(image), OSError.
    """
    place = f"{folder}/building/{name}"
    remove_tree(place)  # what a killed build left
    os.makedirs(place, mode=0o700)
    try:
        variables = {
            f"{kind}_{variable}": value
            for kind in ("APPTAINER", "SINGULARITY")
            for variable, value in (("CACHEDIR", f"{folder}/layers"), ("TMPDIR", place))
        }
        command = [*die_with_parent(), "env", *(f"{key}={value}" for key, value in variables.items())]
        command += [binary, "--silent", "--nocolor", "build", *(["--no-https"] if is_plain else [])]
        status, said = await _run([*command, f"{place}/image.sif", source], _LONGEST_BUILD_S)
        if status != 0:
            raise _trouble(said, image)
        workdir, environment = await configuration(binary, f"{place}/image.sif")
        os.replace(f"{place}/image.sif", f"{folder}/sif/{name}.sif")
    finally:
        remove_tree(place)
    return {"workdir": workdir, "environment": environment}


def die_with_parent() -> list[str]:
    """The beginning of a command that the kernel kills when its runner dies; empty where nothing does it."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


async def configuration(binary: str, sif: str) -> tuple[str, tuple[str, ...]]:
    """Working directory and environment (`NAME=value`) of the OCI image that a SIF was made of, if any."""
    status, listed = await _run([binary, "--silent", "--nocolor", "sif", "list", sif], _LONGEST_LOOK_S)
    numbers = re.findall(r"^(\d+) .*\|JSON\.", listed, re.MULTILINE) if status == 0 else []
    for number in numbers:
        status, text = await _run([binary, "--silent", "sif", "dump", number, sif], _LONGEST_LOOK_S)
        try:
            found = json.loads(text) if status == 0 else None
        except ValueError:
            continue
        if isinstance(found, dict) and ({"Env", "WorkingDir", "Cmd", "Entrypoint"} & set(found)):
            environment = tuple(str(entry) for entry in found.get("Env") or () if "=" in str(entry))
            return str(found.get("WorkingDir") or ""), environment
    return "", ()


async def _run(command: list[str], longest_s: float) -> tuple[int, str]:
    """Run it and tell its status and the last of what it said; killed with its children when given up.

    It is given up after `longest_s`, or when it stands still.
    """
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, start_new_session=True
    )
    assert process.stdout is not None  # noqa: S101 - it was asked for
    reading = asyncio.ensure_future(_last_words(process.stdout))
    loop = asyncio.get_running_loop()
    until = loop.time() + longest_s
    moved: int | None = None
    try:
        while not reading.done():
            await asyncio.wait([reading], timeout=min(_STALL_S, until - loop.time()))
            before, moved = moved, _moved(process.pid)
            if not reading.done() and loop.time() >= until:
                return -1, f"not done after {longest_s:g} s"
            if not reading.done() and moved is not None and moved == before:
                return -1, _STALLED
        return await process.wait(), reading.result().decode("utf-8", "replace")
    finally:
        reading.cancel()
        await to_the_end(_end(process))


async def _last_words(stream: asyncio.StreamReader) -> bytes:
    said = b""
    while data := await stream.read(1 << 16):
        said = (said + data)[-_MOST_SAID:]
    return said


def _moved(session: int) -> int | None:
    """Bytes that the processes of a session have read and written; None where that cannot be told."""
    total = 0
    for pid in process_table():
        try:
            if os.getsid(pid) == session:
                with open(f"/proc/{pid}/io", "rb") as file:
                    total += sum(int(line.split()[1]) for line in file.read().splitlines()[:2])
        except ProcessLookupError:
            continue
        except OSError:
            return None
    return total


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _trouble(said: str, image: str) -> Exception:
    """The error behind a build that failed. Deterministic: no paths, addresses or digests of the moment."""
    if said == _STALLED:
        return FetchLater(unreachable(image, "nothing comes any more"))
    if _LIMITED.search(said):
        return FetchLater(too_many(image))
    if _UNREACHABLE.search(said):
        return FetchLater(unreachable(image, "no connection"))
    if _LOGIN.search(said):
        return LoginNeeded(image)
    if _UNKNOWN.search(said):
        return no_such_image(image)
    return SandboxError(f'image "{image}" cannot be made into a SIF: {_reason(said)}', reason="image")


def _reason(said: str) -> str:
    if "no space left" in said.lower():
        return (
            "the disk of the image cache is full; free some space, or set sandbox.image_cache in hermes.yaml"
        )
    if "architecture" in said or "no child with platform" in said:
        return "it is for another CPU than this machine's"
    lines = [_ADDRESS.sub("", line).strip()[-_LONGEST_LINE:] for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
