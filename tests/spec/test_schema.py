"""Schemas and types cannot drift apart."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import pytest
from jsonschema import Draft202012Validator

from hermes_run.errors import UnknownName
from hermes_run.spec import model
from hermes_run.spec.later import NOT_YET
from hermes_run.spec.load import dump_effective
from hermes_run.spec.schema import NAMES, load_schema, schema_path
from hermes_run.spec.shape import key_paths
from tests.spec.writing import REQUIRED, load

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent.parent
NOT_IN_A_FILE = {("prefill",), ("sources",), ("source",), ("warnings",)}
RESOLVED = ("distribution",)


def fields_of(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Every field of a type below `kind`: its path, type and default."""
    for part in fields(kind):
        inside = get_type_hints(kind)[part.name]
        at = (*path, part.name)
        if is_dataclass(inside) and at != RESOLVED:
            yield from fields_of(inside, at)
        elif at not in NOT_IN_A_FILE:
            default = part.default_factory() if part.default_factory is not MISSING else part.default
            yield at, inside, default


def leaves(schema: dict[str, Any]) -> set[tuple[str, ...]]:
    every = set(key_paths(schema))
    return {
        path for path in every if not any(other[: len(path)] == path and other != path for other in every)
    }


def at(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for name in path:
        schema = schema["properties"][name]
    return schema


def test_the_run_spec_has_the_keys_of_its_types_and_those_of_later_features() -> None:
    typed = {path for path, _, _ in fields_of(model.Spec)}
    assert leaves(load_schema("run-spec")) == typed | set(NOT_YET) | {("extends",)}


def test_the_defaults_of_schema_and_types_are_equal() -> None:
    schema = load_schema("run-spec")
    for path, _, default in fields_of(model.Spec):
        if path in {RESOLVED, ("model", "api_key_env")}:
            continue  # resolved by other keys
        plain = (
            str(default)
            if isinstance(default, Path)
            else list(default)
            if isinstance(default, tuple)
            else default
        )
        if default is MISSING:
            assert "default" not in at(schema, path)
        else:
            assert at(schema, path)["default"] == plain, path
    for path, default in NOT_YET.items():
        assert at(schema, path)["default"] == default, path


def test_the_words_of_schema_and_types_are_equal() -> None:
    for schema, kind in ((load_schema("run-spec"), model.Spec), (load_schema("settings"), model.Settings)):
        for path, inside, _ in fields_of(kind):
            words = [
                arg for part in (inside, *get_args(inside)) for arg in get_args(part) if isinstance(arg, str)
            ]
            if words:
                known = [word for word in at(schema, path).get("enum", []) if word is not None]
                assert known == list(dict.fromkeys(words)), path


def test_the_settings_have_the_keys_of_their_types() -> None:
    top = {part.name for part in fields(model.Settings)} - {"source", "warnings"}
    assert set(load_schema("settings")["properties"]) == top
    free = {"endpoints": model.EndpointSetting}
    for name, kind in free.items():
        schema = at(load_schema("settings"), (name,))["additionalProperties"]
        assert set(schema["properties"]) == {part.name for part in fields(kind)}
    items = at(load_schema("settings"), ("keys",))["items"]
    assert set(items["properties"]) == {part.name for part in fields(model.KeyPair)}


@pytest.mark.parametrize(
    "name", sorted(path.name.split(".")[0] for path in (ROOT / "schemas").glob("*.json"))
)
def test_every_schema_is_one_and_explains_itself(name: str) -> None:
    schema = load_schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"]
    assert schema["description"]
    assert name in NAMES


def test_every_key_of_a_spec_has_a_description_for_the_editor() -> None:
    schema = load_schema("run-spec")
    for path in leaves(schema):
        assert at(schema, path).get("description") or path[0] == "limits", path


def test_the_effective_spec_fits_the_schema(folder: Path) -> None:
    import yaml

    effective = yaml.safe_load(dump_effective(load(folder, REQUIRED)))
    assert list(Draft202012Validator(load_schema("run-spec")).iter_errors(effective)) == []


def test_rows_of_the_examples_fit_their_schema() -> None:
    check = Draft202012Validator(load_schema("dataset-row"))
    for path in (ROOT / "examples/data").glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert list(check.iter_errors(json.loads(line))) == [], path


@pytest.mark.parametrize(
    ("row", "is_valid"),
    [
        ({"prompt": "a", "other": [1]}, True),
        ({"prompt": ""}, False),
        ({"prompt": 3}, False),
        ({}, False),
        ({"prompt": "a", "setup": "ls", "id": 1.5, "image": "", "cwd": "/w", "check": None}, True),
        ({"prompt": "a", "cwd": "w"}, False),
        ({"prompt": "a", "check": "x"}, False),
        ({"prompt": "a", "files": {"a/b..c": "", "..d/e": "", ".f": ""}}, True),
        ({"prompt": "a", "files": {"../a": ""}}, False),
        ({"prompt": "a", "files": {"a/../b": ""}}, False),
        ({"prompt": "a", "files": {"a/..": ""}}, False),
        ({"prompt": "a", "files": {"/a": ""}}, False),
        ({"prompt": "a", "files": {"a/": ""}}, False),
        ({"prompt": "a", "files": {"": ""}}, False),
    ],
)
def test_the_schema_of_a_row_says_what_the_dataset_takes(row: dict[str, Any], is_valid: bool) -> None:
    assert Draft202012Validator(load_schema("dataset-row")).is_valid(row) is is_valid


def test_an_unknown_schema_is_told_with_the_known_ones() -> None:
    with pytest.raises(
        UnknownName, match=r'^there is no schema "run_spec"; did you mean "run-spec"\? Known: run-spec,'
    ):
        schema_path("run_spec")
