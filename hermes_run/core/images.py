"""What an image is called: a registry reference, or the path of a local image. Pure.

The grammar is that of the OCI distribution's references: `[host[:port]/]path[:tag][@digest]`, or the id
of an image in a daemon's own store (`sha256:` and 64 hex digits). `docker://` before it says the same.
"""

from __future__ import annotations

import re

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_HOST}/)?{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_ID = re.compile(r"sha256:[0-9a-f]{64}")
_MOST_NAME = 255
_SCHEME = "docker://"
_LOCAL = ("/", "./", "../", "~", "file://")

EXAMPLE = "a registry reference such as python:3.12-slim or ghcr.io/org/name@sha256:…"


def is_local(image: str) -> bool:
    """Whether it means a file or folder of this machine."""
    return image.startswith(_LOCAL) or image in (".", "..") or image.endswith(".sif")


def plain_reference(image: str) -> str:
    """The reference without `docker://`. Raises ValueError, with what is wrong, when it is none."""
    reference = image.removeprefix(_SCHEME)
    found = _REFERENCE.fullmatch(reference)
    if _ID.fullmatch(reference) or (found and len(found["name"]) <= _MOST_NAME):
        return reference
    if "://" in reference:
        raise ValueError(f"it takes {EXAMPLE}, without another scheme than docker://")
    if reference != reference.lower() and _REFERENCE.fullmatch(reference.lower()):
        raise ValueError(f"it takes {EXAMPLE}; names in registries are lower case")
    raise ValueError(f"it takes {EXAMPLE}")
