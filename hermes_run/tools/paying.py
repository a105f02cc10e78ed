"""What helper models are paid, also where nothing came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from hermes_run.core.answers import Made, Seen
from hermes_run.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from hermes_run.core.contracts import ToolSession

Work = TypeVar("Work", Seen, Made)


async def paid(session: ToolSession, asked: Awaitable[Work]) -> Work:
    """What a helper model made; what it used becomes the rollout's. Raises ToolError."""
    try:
        work = await asked
    except ToolError as failure:
        session.aside.usage += failure.usage
        raise
    session.aside.usage += work.usage
    return work
