"""A lab whose prompts run on a given backend: the same run everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests import modal_place
from tests.conftest import require
from tests.contracts.sandboxes import NAMES, image_of, kind_of, what_is_missing

if TYPE_CHECKING:
    from tests.flow.lab import Lab

__all__ = ["NAMES", "at", "terminal_results"]


def at(lab: Lab, name: str, **sandbox: Any) -> Lab:
    """Let the lab's prompts run on `name` (see `NAMES`); skips, or fails, where it does not work."""
    missing = what_is_missing(name)
    if isinstance(missing, str):
        require(kind_of(name), missing)
    image = image_of(name)
    lab.spec["sandbox"] = {
        "backend": kind_of(name),
        **({"image": image} if image else {}),
        **sandbox,
    }
    if name == "singularity":
        (lab.folder / "hermes.yaml").write_text("sandbox: {allow_local_images: true}\n")
    if name == "modal":
        lab.env |= modal_place.environment(modal_place.modal_folder())
    return lab


def terminal_results(line: dict[str, Any]) -> list[dict[str, Any]]:
    """What the tool answered, call by call."""
    import json

    return [json.loads(turn["value"]) for turn in line["conversations"] if turn["from"] == "tool"]
