"""RUN on a command line: a run directory or a manifest file."""

from __future__ import annotations

from pathlib import Path

from hermes_run.core.registry import did_you_mean
from hermes_run.errors import UsageError

_SPEC_SUFFIXES = (".yaml", ".yml")


def run_path(text: str) -> Path:
    """The run that `text` names. Raises UsageError, with what was probably meant, when it names none."""
    path = Path(text)
    if path.suffix in _SPEC_SUFFIXES and not path.is_dir():
        raise UsageError(f"{text} is a spec; RUN is a run directory (such as data/NAME) or a manifest.jsonl")
    if path.exists():
        return path
    under_data = Path("data") / text
    if under_data.is_dir():
        raise UsageError(f"there is no {text} here; did you mean {under_data}?")
    try:
        beside = [other.name for other in (path.parent if path.name else Path()).iterdir() if other.is_dir()]
    except OSError:
        beside = []
    raise UsageError(f"there is no run directory or manifest file {text}{did_you_mean(path.name, beside)}")
