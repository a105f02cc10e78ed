"""What a run directory should hold, told again in the simplest words: a list of what was written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

KEPT = ("thoughtful", "mute", "cut", "inventive")
"""Kinds of rollouts that leave a trajectory; the other kind is `broken`."""


def status_of(kind: str, *, require_reasoning: bool, reject_unknown_tools: bool) -> str:
    """The status that a kind of rollout has under some filters."""
    if kind == "broken":
        return "failed"
    if (kind == "mute" and require_reasoning) or (kind == "inventive" and reject_unknown_tools):
        return "discarded"
    return "partial" if kind == "cut" else "completed"


@dataclass
class Event:
    """Something that was written: a rollout's outcome, or (`kind` is `lost`) that a line is gone.

    `line_end` and `entry_end` are byte offsets without the newline; `entry_end` None: it has no entry.
    """

    key: str
    kind: str
    text: str = ""
    batch: int = 0
    line_end: int = 0
    has_line: bool = False
    entry_end: int | None = None


@dataclass
class Expected:
    """The events of a run directory, in the order of its journal."""

    events: list[Event] = field(default_factory=list)

    def cut(self, journal_size: int, batch_sizes: Mapping[int, int]) -> None:
        """Files were cut to these sizes."""
        for event in self.events:
            if event.entry_end is not None and event.entry_end > journal_size:
                event.entry_end = None
            if event.has_line and event.line_end > batch_sizes.get(event.batch, 0):
                event.has_line = False
        self.events = [e for e in self.events if e.entry_end is not None or e.has_line]

    def current(self) -> dict[str, Event]:
        """Key -> the outcome that counts, of all that have an entry."""
        state: dict[str, Event] = {}
        for event in self.events:
            if event.entry_end is None:
                continue
            if event.kind == "lost":
                state.pop(event.key, None)
            elif event.kind != "broken" or event.key not in state or state[event.key].kind == "broken":
                state[event.key] = event
        return state

    def reopen(self, planned: Collection[str]) -> tuple[list[Event], list[str]]:
        """What opening has to do: the lines that it adopts, and the keys that it finds lost."""
        state = self.current()
        lost = [key for key, event in state.items() if event.kind in KEPT and not event.has_line]
        for key in lost:
            del state[key]
        adopted, orphans = [], [event for event in self.events if event.entry_end is None]
        for event in orphans:
            before = state.get(event.key)
            is_wanted = before is None and event.key in planned and event.key not in lost
            if is_wanted or (before is not None and before.kind == "broken"):
                state[event.key] = event
                adopted.append(event)
        self.events = [event for event in self.events if event.entry_end is not None]
        return adopted, lost
