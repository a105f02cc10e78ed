"""Files of a rollout that are kept beside its trajectory: what they are called. Pure.

The folder of a rollout's artifacts is named by its key and by what is in it: equal files have equal
names in every run and after every merge, and those of another attempt never stand in their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hermes_run.core.keys import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FOLDER = "artifacts"
_DIGITS = 16


class Artifact(Struct, frozen=True):
    """A file that is kept. `path` is relative, with slashes, without `..`."""

    path: str
    data: bytes


def placed(key: str, artifacts: Sequence[Artifact]) -> tuple[Artifact, ...]:
    """The same files under their paths in a run directory, sorted: `artifacts/<key>.<digest>/<path>`."""
    if not artifacts:
        return ()
    folder = f"{FOLDER}/{key.replace('#', '-')}.{digest_of(artifacts)}"
    ordered = sorted(artifacts, key=lambda artifact: artifact.path)
    return tuple(Artifact(f"{folder}/{artifact.path}", artifact.data) for artifact in ordered)


def digest_of(artifacts: Iterable[Artifact]) -> str:
    """16 hex digits of xxh3_128 over paths and contents, in the order of the paths."""
    sums = sorted((artifact.path, digest(artifact.data)) for artifact in artifacts)
    text = "".join(f"{total} {path}\0" for path, total in sums)
    return digest(text.encode("utf-8", "surrogateescape"))[:_DIGITS]


def split(path: str) -> tuple[str, str]:
    """Folder (`artifacts/<key>.<digest>`) and path in it of an artifact's path. Raises ValueError."""
    head, folder, rest = path.split("/", 2)
    parts = rest.split("/")
    if head != FOLDER or not folder or folder.startswith(".") or not all(parts) or {".", ".."} & set(parts):
        raise ValueError(f"{path!r} is no path of an artifact")
    return f"{head}/{folder}", rest
