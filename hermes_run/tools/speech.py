"""text_to_speech: has a text spoken and puts the sound into the sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hermes_run.core.contracts import ToolSpec
from hermes_run.errors import ToolError
from hermes_run.tools.kept_files import keep
from hermes_run.tools.paying import paid
from hermes_run.tools.stored import write_exactly
from hermes_run.tools.untrusted import outside_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_run.core.contracts import ToolSession

MAX_CHARS = 4_000
_KINDS = {"mp3": "mp3", "wav": "wav", "ogg": "opus", "opus": "opus"}
_SUFFIXES = {"audio/mpeg": "mp3", "audio/wav": "wav", "audio/ogg": "ogg"}


class TextToSpeech:
    """Speaks texts."""

    spec: ClassVar[ToolSpec] = ToolSpec(
        "text_to_speech",
        "Turn a text into speech. The sound is written into the sandbox; the result names its path, whose "
        "ending tells what it is (mp3, wav or ogg).",
        {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": f"What is said; at most {MAX_CHARS} characters."},
                "output_path": {
                    "type": "string",
                    "description": "Where to write it; an ending that cannot be made is exchanged.",
                },
            },
            "required": ["text"],
        },
    )

    def __init__(self, session: ToolSession) -> None:
        self._session = session

    @staticmethod
    def missing(machine: Any) -> str:
        """Whether anybody speaks here."""
        from hermes_run.spec.media import why_not

        return why_not("speech", machine)

    async def call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Speak. Result: `success`, `file_path`, `provider`."""
        text, path = arguments["text"].strip(), arguments.get("output_path", "").strip()
        if not text or len(text) > MAX_CHARS:
            raise ToolError(f"text must have 1 to {MAX_CHARS} characters; say it in pieces")
        stem, dot, ending = path.rpartition(".")
        kind = _KINDS.get(ending.lower(), "mp3") if dot else "mp3"
        made = await paid(self._session, outside_of(self._session).speak(text, kind))
        if not path:
            path = await keep(self._session, "speech", made.data, made.media_type)
        else:
            suffix = _SUFFIXES[made.media_type]
            if not dot or "/" in ending:
                path = f"{path}.{suffix}"
            elif _KINDS.get(ending.lower()) != _KINDS[suffix]:
                path = f"{stem}.{suffix}"
            await write_exactly(self._session.sandbox, path, made.data)
        return {"success": True, "file_path": path, "provider": made.provider}

    async def aclose(self) -> None:
        """Nothing to give back."""
