"""Specs to write down, and what is said about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.errors import SpecError
from hermes_run.spec.load import load_spec

if TYPE_CHECKING:
    from hermes_run.spec.model import Spec

DATASET = "rows.jsonl"
ROW = '{"prompt": "say hello"}\n'
REQUIRED = f"run_name: a\ndataset: {{path: {DATASET}}}\nbatch_size: 20\n"
"""The required keys, in three lines."""


def write(folder: Path, text: str, name: str = "spec.yaml") -> Path:
    """A file, and its path as it would be given in `folder`."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return Path(name)


def load(folder: Path, text: str, **options: Any) -> Spec:
    """The spec in `text`, written into `folder`."""
    return load_spec(write(folder, text), **options)


def mistakes(folder: Path, text: str, **options: Any) -> list[str]:
    """The lines of its SpecError."""
    with pytest.raises(SpecError) as caught:
        load(folder, text, **options)
    return str(caught.value).splitlines()


def mistakes_of_options(**options: Any) -> list[str]:
    """The lines of the SpecError of a command line without a file."""
    with pytest.raises(SpecError) as caught:
        load_spec(None, **options)
    return str(caught.value).splitlines()
