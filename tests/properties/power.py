"""A disk whose power can fail: what was not synced may be gone, from any byte on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class Disk:
    """Remembers how much of each file was synced, instead of syncing it. A context manager."""

    def __init__(self) -> None:
        self._synced: dict[str, int] = {}
        self._fsync = os.fsync

    def __enter__(self) -> Self:
        os.fsync = self._remember  # type: ignore[assignment]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.fsync = self._fsync

    def _remember(self, file: int) -> None:
        self._synced[os.readlink(f"/proc/self/fd/{file}")] = os.fstat(file).st_size  # noqa: PTH115

    def safe_bytes(self, path: Path) -> int:
        """How many of the file's bytes no failure can take."""
        return min(self._synced.get(str(path), 0), path.stat().st_size)

    def trust(self, folder: Path) -> None:
        """All that stands in a folder was synced before it was renamed to this."""
        self._synced |= {str(path): path.stat().st_size for path in folder.iterdir()}

    def cut(self, path: Path, share: float) -> int:
        """Take a share (0: nothing, 1: all) of what was not synced; the size that is left."""
        size, safe = path.stat().st_size, self.safe_bytes(path)
        left = size - round((size - safe) * share)
        os.truncate(path, left)
        self._synced[str(path)] = min(safe, left)
        return left
