"""Commands run as the user on the host, in a private folder with a filtered environment.

No isolation and no limits, which `missing` says: only for where no real sandbox works, and only when
the spec asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hermes_run.sandboxes._box_backend import BoxBackend
from hermes_run.sandboxes._ground import mark_of, remove_ground
from hermes_run.sandboxes._local_box import LocalBox, kill_marked
from hermes_run.sandboxes._no_images import NoImages

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from hermes_run.core.contracts import Sandbox, SandboxRequest
    from hermes_run.spec.model import Settings


class LocalBackend(BoxBackend, NoImages):
    """See `Backend`.

    Args:
        run_name: for labels.
        settings: the machine's; `sandbox.starts_in_flight` bounds the starts at one time.
    """

    name: ClassVar[str] = "local"
    uses_images: ClassVar[bool] = False

    def __init__(self, run_name: str, settings: Settings) -> None:
        super().__init__(run_name, settings, sweep, in_memory=False)

    async def check(self) -> tuple[str, ...]:
        """Start a shell and run a command in it. Raises BackendMissing."""
        return await self._try(self.open)

    def open(self, request: SandboxRequest) -> AbstractAsyncContextManager[Sandbox]:
        """See `Backend.open`."""
        return self._life(lambda: LocalBox(self._ground, request))


def sweep(path: str) -> None:
    """Remove the ground of a dead run, with the processes that were started there."""
    kill_marked(mark_of(path))
    remove_ground(path)
