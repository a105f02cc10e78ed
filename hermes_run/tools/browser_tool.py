"""What the ten browser tools have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_run.tools.browsing import Browsing

if TYPE_CHECKING:
    from hermes_run.core.contracts import ToolSession


class BrowserTool:
    """A tool of the rollout's one browser context."""

    def __init__(self, session: ToolSession) -> None:
        self._session = session
        self._browsing = Browsing.of(session)

    @staticmethod
    def missing(machine: Any) -> str:
        """Whether there is a browser here."""
        from hermes_run.spec.browser import why_no_browser

        return why_no_browser(machine)

    async def aclose(self) -> None:
        """Close the context; the first of the tools to be closed does it for all."""
        await self._browsing.close()


REF = {"type": "string", "description": "The element's ref in the snapshot, such as @e5."}
EMPTY: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
