"""What a backend gives to the stream shell: byte streams to and from processes in its sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hermes_run.core.contracts import SandboxInfo


class Reader(Protocol):
    """Who is told what comes over a Wire; called on the event loop, never from another thread."""

    def on_output(self, data: bytes) -> None:
        """The process has written to its stdout."""

    def on_control(self, data: bytes) -> None:
        """The process has written to its stderr."""

    def on_restart(self) -> None:
        """The process was killed while its sandbox lives, and another has taken its place.

        That was given the first line again that was sent. Only where a command can kill the process.
        """

    def on_end(self) -> None:
        """Nothing more will come: the process, its sandbox or the way to it is gone. Called once."""


class Wire(Protocol):
    """The three standard streams of one process inside a sandbox.

    What the process writes before `attach` is kept until then. The order within each stream holds, that
    between the two need not.
    """

    def attach(self, reader: Reader) -> None:
        """Tell `reader` whatever comes from now on."""

    def send(self, data: bytes) -> None:
        """Write to its stdin: queued, in order; never blocks and never raises."""

    def send_eof(self) -> None:
        """End its stdin, after all that was sent."""

    async def drained(self) -> None:
        """Wait until little of what was sent is still queued, or the wire has ended."""

    def pause(self) -> None:
        """Read no more for now, so that the process blocks when it writes on."""

    def resume(self) -> None:
        """Read on."""

    def close(self) -> None:
        """Let go of it, at once; again is harmless. `on_end` is not called for that."""


class StreamPlace(Protocol):
    """What a backend gives to the stream shell besides the wire of the started program.

    Attributes:
        what: what it is, for messages: "a docker sandbox".
        folder: a folder inside that the commands' user can write into, for pipes and files of the shell;
            best a mount of its own, which no command can remove.
        spills: the folder inside that long outputs go to.
        most_spilled: bytes kept of one long output.
    """

    what: str
    folder: str
    spills: str
    most_spilled: int

    async def side(self, text: str) -> Wire:
        """Start `sh -c text` beside the shell, as the same user, with streams of its own.

        Raises SandboxError(sandbox_lost), or ToolError when it is the sandbox that has no room for it.
        For what is too big for the shell's own wire; rare.
        """

    def destroy(self) -> None:
        """Kill everything in the sandbox, at once and without waiting; again is harmless."""

    def describe(self, shell: str) -> SandboxInfo:
        """What the sandbox is, now that its shell (`bash` or `sh`) is known."""
