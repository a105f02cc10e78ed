"""What the `cli` fixture is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import subprocess


class Cli(Protocol):
    """Calls `hermes-run` with words, in a folder of its own."""

    def __call__(
        self, *words: object, env: dict[str, str] | None = ..., stdin: str = ...
    ) -> subprocess.CompletedProcess[str]: ...
