"""The JSON Schemas: where they lie, and one validator for each."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from hermes_run.core.registry import which_are_known
from hermes_run.errors import UnknownName

NAMES = ("run-spec", "settings", "dataset-row", "manifest-entry", "trajectory", "statistics")


def schema_path(name: str) -> Path:
    """The file of a schema, in an installed package or in a checkout. Raises UnknownName."""
    if name not in NAMES:
        raise UnknownName(f'there is no schema "{name}"{which_are_known(name, NAMES)}')
    package = Path(__file__).parent.parent
    for folder in (package / "schemas", package.parent / "schemas"):
        path = folder / f"{name}.schema.json"
        if path.is_file():
            return path
    raise UnknownName(f'the schema "{name}" is not part of this installation; install hermes-run again')


@cache
def load_schema(name: str) -> dict[str, Any]:
    """A JSON Schema (2020-12) by name, one of NAMES. Raises UnknownName."""
    schema: dict[str, Any] = json.loads(schema_path(name).read_bytes())
    return schema


@cache
def validator(name: str) -> Any:
    """A jsonschema validator for it, made once; no formats are checked."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(load_schema(name))
