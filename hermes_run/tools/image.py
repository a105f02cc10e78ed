"""image_generate: has a picture made and puts it into the sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hermes_run.core.contracts import ToolSpec
from hermes_run.errors import ToolError
from hermes_run.tools.kept_files import keep
from hermes_run.tools.paying import paid
from hermes_run.tools.untrusted import outside_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_run.core.contracts import ToolSession

SHAPES = ("landscape", "square", "portrait")
MAX_PROMPT = 8_000


class ImageGenerate:
    """Makes pictures from words."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "image_generate",
        "Make a picture from a description. It is written into the sandbox; the result names its path.",
        {
            "type": "object",
            "properties": {
                "prompt": {"type": "string", "description": "What the picture shows, in detail."},
                "aspect_ratio": {
                    "type": "string",
                    "enum": list(SHAPES),
                    "default": "landscape",
                    "description": "Its shape.",
                },
            },
            "required": ["prompt"],
        },
    )

    def __init__(self, session: ToolSession) -> None:
        self._session = session

    @staticmethod
    def missing(machine: Any) -> str:
        """Whether there is a model that draws."""
        from hermes_run.spec.media import why_not

        return why_not("images", machine)

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Draw. Result: `success`, `image` (its path); a failure: `error`, `error_type`."""
        try:
            path = await self._draw(arguments["prompt"].strip(), arguments.get("aspect_ratio", SHAPES[0]))
        except ToolError as error:
            return {"success": False, "error": str(error), "error_type": getattr(error, "kind", "failed")}
        return {"success": True, "image": path}

    async def _draw(self, prompt: str, shape: str) -> str:
        """The path of a new picture. Raises ToolError."""
        if not prompt or len(prompt) > MAX_PROMPT:
            raise ToolError(f"prompt must have 1 to {MAX_PROMPT} characters; describe the picture")
        made = await paid(self._session, outside_of(self._session).draw(prompt, shape))
        return await keep(self._session, "image", made.data, made.media_type)

    async def aclose(self) -> None:
        """Nothing to give back."""
