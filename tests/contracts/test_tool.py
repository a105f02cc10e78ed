"""What every tool of the registry keeps, whoever wrote it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from hermes_run.core.contracts import ToolSpec
from hermes_run.core.registry import TOOLS, load
from hermes_run.core.toolsets import TOOLSETS, tools_of
from hermes_run.spec.model import Settings

READY = [name for name, row in TOOLS.items() if row.path]

PARAMETERS = {
    "terminal": ["command*", "background", "timeout", "workdir"],
    "process": ["action*", "session_id", "data", "timeout", "offset", "limit"],
    "read_file": ["path*", "offset", "limit"],
    "write_file": ["path*", "content*"],
    "patch": ["mode", "path", "old_string", "new_string", "replace_all", "patch"],
    "search_files": [
        "pattern*",
        "target",
        "path",
        "file_glob",
        "limit",
        "offset",
        "output_mode",
        "context",
    ],
    "web_search": ["query*", "limit"],
    "web_extract": ["urls*", "char_limit"],
    "browser_navigate": ["url*"],
    "browser_snapshot": ["full"],
    "browser_click": ["ref*"],
    "browser_type": ["ref*", "text*"],
    "browser_scroll": ["direction*"],
    "browser_back": [],
    "browser_press": ["key*"],
    "browser_get_images": [],
    "browser_vision": ["question*", "annotate"],
    "browser_console": ["clear", "expression"],
    "vision_analyze": ["image_url*", "question*"],
    "image_generate": ["prompt*", "aspect_ratio"],
    "text_to_speech": ["text*", "output_path"],
    "todo": ["todos", "merge"],
    "execute_code": ["code*"],
}


@pytest.fixture(params=READY)
def kind(request: pytest.FixtureRequest) -> Any:
    """The class of a tool."""
    return load("tool", TOOLS, request.param)


def test_names_and_parameters_are_those_of_the_predecessor() -> None:
    found = {}
    for name in READY:
        parameters = load("tool", TOOLS, name).spec.parameters
        found[name] = [key + "*" * (key in parameters["required"]) for key in parameters["properties"]]
    assert {name: found.get(name) for name in PARAMETERS} == PARAMETERS


def test_spec_has_the_name_of_its_row(kind: Any) -> None:
    assert isinstance(kind.spec, ToolSpec)
    assert load("tool", TOOLS, kind.spec.name) is kind


def test_parameters_are_a_valid_schema_that_says_what_each_is(kind: Any) -> None:
    parameters = kind.spec.parameters
    jsonschema.Draft202012Validator.check_schema(parameters)
    assert parameters["type"] == "object"
    assert set(parameters["required"]) <= set(parameters["properties"])
    for name, schema in parameters["properties"].items():
        assert "type" in schema, name
        assert "description" in schema or "enum" in schema, name
        if "default" in schema:
            jsonschema.validate(schema["default"], schema)
            assert name not in parameters["required"]


def test_description_is_short_and_is_there(kind: Any) -> None:
    assert 60 < len(kind.spec.description) < 700
    assert kind.spec.description.endswith(".")
    assert json.loads(json.dumps(kind.spec.parameters)) == kind.spec.parameters


def test_missing_says_why_or_nothing(kind: Any) -> None:
    why = kind.missing(Settings())
    assert isinstance(why, str)


def test_every_tool_is_in_a_toolset_and_every_toolset_has_tools() -> None:
    reached = {tool for toolset in TOOLSETS for tool in tools_of(toolset)}
    assert reached == set(TOOLS)
