"""Programs that run inside a sandbox: standard library alone, Python 3.8 or later, never imported here."""

from __future__ import annotations

from pathlib import Path


def source(name: str) -> str:
    """The text of one of them."""
    return (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
