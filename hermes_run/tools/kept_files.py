"""Files that tools make for the model (pictures, speech): bytes into the sandbox's workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_run.tools.stored import write_exactly

if TYPE_CHECKING:
    from hermes_run.core.contracts import ToolSession

FOLDER = "generated"
_KINDS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/svg+xml": "svg",
    "audio/mpeg": "mp3",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/ogg": "ogg",
}


async def keep(session: ToolSession, stem: str, data: bytes, media_type: str) -> str:
    """Write a file `<workspace>/generated/<stem>-<n>.<kind>`; its path. Raises ToolError."""
    counts: dict[str, int] = session.shared.setdefault("kept_files", {})
    counts[stem] = counts.get(stem, 0) + 1
    kind = _KINDS.get(media_type.partition(";")[0].strip().lower(), "bin")
    path = f"{session.sandbox.info.cwd}/{FOLDER}/{stem}-{counts[stem]}.{kind}"
    await write_exactly(session.sandbox, path, data)
    return path
