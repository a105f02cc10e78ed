"""How the flow tells people what happens, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003 - part of a runtime type
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from hermes_run.core.task import PromptTask
    from hermes_run.core.trajectory import Outcome


class Observer(Protocol):
    """Hears of a run. Its methods return at once and never raise."""

    def planned(self, *, total: int, done: int, pending: int, run_dir: Path) -> None:
        """The plan stands: `total` rollouts, of which `pending` will be run now."""

    def started(self, task: PromptTask) -> None:
        """A rollout begins."""

    def finished(self, outcome: Outcome) -> None:
        """Its outcome is written down."""

    def phase(self, text: str) -> None:
        """Something longer begins that is no rollout ("merging")."""

    def warn(self, text: str) -> None:
        """Something that a person should know, with its cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a run came to.

    Attributes:
        run_dir: where everything is.
        statistics: the contents of statistics.json.
        exit_code: 0, 1, 4, 5, 130 or 143, as the contract has them.
        pending: rollouts of the plan without an outcome.
        stopped: why it stopped early, with the cure, or "".
        ran: rollouts run by this call.
        warnings: all that the observer was warned of, in order.
    """

    run_dir: Path
    statistics: dict[str, Any]
    exit_code: int
    pending: int
    stopped: str = ""
    ran: int = 0
    warnings: tuple[str, ...] = field(default=())
