"""The artifacts of a run directory: written before the line that names them, copied and checked with it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from hermes_run.core.artifacts import Artifact, digest_of, split
from hermes_run.errors import UsageError
from hermes_run.store.disk import sync_folder, telling_of_full_disk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_NONE = b'"artifacts":[]'
"""What nearly every line has: such a one is not read further."""


class _Metadata(Struct):
    artifacts: tuple[str, ...] = ()


class _Line(Struct):
    metadata: _Metadata


_decode = msgspec.json.Decoder(_Line).decode


def named_by(line: bytes) -> tuple[str, ...]:
    """The artifacts that a trajectory line names, as paths in its run directory."""
    return () if _NONE in line else _decode(line).metadata.artifacts


def write_artifacts(run: Path, artifacts: Sequence[Artifact]) -> None:
    """Write one rollout's artifacts (`core.artifacts.placed`): their folder is there whole or not at all.

    Raises DiskFull.
    """
    if not artifacts:
        return
    folder = run / split(artifacts[0].path)[0]
    with telling_of_full_disk(folder):
        if folder.exists():  # the same files, of an attempt whose line was not written any more
            return
        folder.parent.mkdir(exist_ok=True)
        new = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        for artifact in artifacts:
            path = new / split(artifact.path)[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, artifact.data)
        new.rename(folder)
        sync_folder(folder.parent)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def copy_artifacts(source: Path, target: Path, line: bytes) -> None:
    """Copy what a line names from one run directory to another, where it is not there yet.

    Raises UsageError when the source lacks it, DiskFull.
    """
    names = named_by(line)
    if not names:
        return
    found, lacking = _read(source, names)
    if lacking:
        raise UsageError(
            f"{source / lacking[0]}: missing; a trajectory of that run names it. Bring it back, or leave "
            f"that run out"
        )
    write_artifacts(target, found)


def damages(run: Path, line: bytes) -> list[str]:
    """What is wrong with the artifacts that a line names: one text each."""
    try:
        names = named_by(line)
        folders = {split(name)[0] for name in names}
    except ValueError:
        return [f"{run}: a trajectory names an artifact outside of artifacts/"]
    if not names:
        return []
    found, lacking = _read(run, names)
    if lacking:
        return [f"{run / name}: missing; a trajectory names it" for name in lacking]
    inside = [Artifact(split(artifact.path)[1], artifact.data) for artifact in found]
    if folders != {f"{next(iter(folders)).rpartition('.')[0]}.{digest_of(inside)}"}:
        return [f"{run / next(iter(folders))}: its files are not those that were kept"]
    return []


def _read(run: Path, names: Iterable[str]) -> tuple[list[Artifact], list[str]]:
    found, lacking = [], []
    for name in names:
        split(name)
        try:
            found.append(Artifact(name, (run / name).read_bytes()))
        except OSError:
            lacking.append(name)
    return found, lacking
