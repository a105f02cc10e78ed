"""`checkpoint.json`: how far a run is, for people and for tools that know the predecessor's; never read back.

When a run has ended it holds the hashes of what was derived, and vouches for those files. It is sealed
like a journal line, so that a flipped byte in it is found, too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_run.store import layout
from hermes_run.store.disk import replace_file
from hermes_run.store.entry import follows, seal_body, unseal

if TYPE_CHECKING:
    from pathlib import Path


def sealed(content: dict[str, Any]) -> bytes:
    """The bytes of a checkpoint."""
    return seal_body(msgspec.json.encode(content)[:-1])[0] + b"\n"


def read_checkpoint(run: Path) -> dict[str, Any]:
    """What a run directory's checkpoint says; {} when it is missing or damaged."""
    try:
        raw = (run / layout.CHECKPOINT).read_bytes()
    except FileNotFoundError:
        return {}
    parts = unseal(raw[:-1]) if raw.endswith(b"\n") else None
    if parts is None or not follows(*parts, ""):
        return {}
    try:
        content = json.loads(raw)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def forget_hashes(run: Path) -> None:
    """Before a run changes what is derived: checkpoint.json vouches for nothing until it ends."""
    content = read_checkpoint(run)
    if content.pop("sum", None) and content.get("files"):
        replace_file(run / layout.CHECKPOINT, sealed(content | {"files": {}}))
