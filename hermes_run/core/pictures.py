"""Pictures by their first bytes: what they are called says nothing."""

from __future__ import annotations

_STARTS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def picture_type(data: bytes) -> str:
    """The media type of a picture, one of `TYPES`, or "" for what is none that models take."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _STARTS.items() if data.startswith(start)), "")
