"""The house is as it is drawn: registry = folders, schema = types, floors, sizes, names."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import msgspec.inspect
import pytest

from hermes_run.cli.main import COMMANDS
from hermes_run.core import registry
from hermes_run.formats.record import TrajectoryRecord
from hermes_run.spec.later import NOT_YET
from hermes_run.spec.model import Settings, Spec
from hermes_run.spec.schema import NAMES, load_schema
from hermes_run.store.entry import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "hermes_run"
MODULES = sorted(PACKAGE.rglob("*.py"))
TABLES = {
    "tools": registry.TOOLS,
    "sandboxes": registry.BACKENDS,
    "models": registry.MODELS,
    "formats": registry.FORMATS,
    "quality": registry.FILTERS,
    "runner/engines": registry.ENGINES,
}
LONGEST_MODULE = 400
LONGEST_FUNCTION = 60
MOST_PARAMETERS = 6
SAY_NOTHING = ("utils", "util", "helpers", "helper", "common", "manager", "handler", "misc")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def available(folder: str) -> Iterator[tuple[str, str, str]]:
    for name, row in TABLES[folder].items():
        if row.path:
            module, _, attribute = row.path.partition(":")
            yield name, module, attribute


@pytest.mark.parametrize("folder", TABLES)
def test_every_row_of_the_registry_can_be_imported_from_its_folder(folder: str) -> None:
    for name, module, _ in available(folder):
        assert module.startswith(f"hermes_run.{folder.replace('/', '.')}."), name
        assert isinstance(registry.load(folder, TABLES[folder], name), type), name


@pytest.mark.parametrize(
    ("folder", "mark"),
    [("tools", "spec"), ("sandboxes", "uses_images"), ("formats", "lossless"), ("quality", "reason")],
)
def test_every_class_that_fills_a_protocol_is_in_the_registry(folder: str, mark: str) -> None:
    """`mark` is a class attribute that only implementations of the Protocol have."""
    registered = {(module, attribute) for _, module, attribute in available(folder)}
    found = set()
    for path in sorted((PACKAGE / folder).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in syntax(path).body:
            if isinstance(node, ast.ClassDef) and mark in _class_attributes(node):
                found.add((module, node.name))
    assert found == registered


def _class_attributes(node: ast.ClassDef) -> set[str]:
    names = set()
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            is_class_variable = "ClassVar" in ast.dump(statement.annotation)
            names |= {statement.target.id} if is_class_variable and statement.value is not None else set()
        if isinstance(statement, ast.Assign):
            names |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
    return names


def test_every_command_is_one_file_and_one_line() -> None:
    files = {
        path.stem
        for path in (PACKAGE / "cli").glob("*.py")
        if path.stem != "main"
        and any(isinstance(n, ast.FunctionDef) and n.name == "main" for n in syntax(path).body)
    }
    assert files == {command.module for command in COMMANDS.values() if command.module}


def test_the_twenty_three_tools_of_the_record_are_all_there() -> None:
    assert len(registry.TOOLS) == 23


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_has_a_name_that_says_something_and_a_size_that_can_be_read(path: Path) -> None:
    assert path.stem.strip("_") not in SAY_NOTHING
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_MODULE


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_function_can_be_read_at_once(path: Path) -> None:
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= LONGEST_FUNCTION, f"{node.name} has {lines} lines"
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            own = [p for p in parameters if p.arg not in ("self", "cls")]
            assert len(own) <= MOST_PARAMETERS, f"{node.name} has {len(own)} parameters"


def test_there_is_one_broad_except_around_one_rollout() -> None:
    broad = [
        name_of(path)
        for path in MODULES
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
        and not isinstance(node.body[-1], ast.Raise)  # that one only tidies up and passes it on
    ]
    assert broad == ["hermes_run/runner/session.py"]


def test_no_process_that_is_started_hears_the_terminals_ctrl_c() -> None:
    """The first one lets rollouts finish: what they need must not get the signal beside the runner."""
    starts = {"Popen", "create_subprocess_exec", "create_subprocess_shell"}
    for path in MODULES:
        if path.parent.name == "inside":  # runs in a sandbox
            continue
        for node in ast.walk(syntax(path)):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            if name.rpartition(".")[2] in starts or name == "subprocess.run":
                words = {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert words.get("start_new_session") == "True", f"{name_of(path)}:{node.lineno}"


def test_a_command_in_a_message_can_be_pasted_into_a_shell() -> None:
    """Names with blanks: `core.text.command_line` quotes them."""
    for path in MODULES:
        for node in ast.walk(syntax(path)):
            if isinstance(node, ast.JoinedStr):
                text = "".join(
                    f"{{{ast.unparse(part.value)}}}"
                    if isinstance(part, ast.FormattedValue)
                    else str(ast.literal_eval(part))
                    for part in node.values
                )
                bare = re.search(
                    r"\b(hermes-run|git)( [a-z-]+)* \{(?!__version__|KEY_VERSION|shlex\.|command\})\w+", text
                )
                assert not bare, f"{name_of(path)}:{node.lineno}: {bare and bare[0]}"


def test_only_the_spec_reads_the_environment() -> None:
    """What a run does hangs on its spec; a variable read elsewhere would be a second, hidden spec."""
    readers = set()
    for path in MODULES:
        for node in ast.walk(syntax(path)):
            is_read = isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
            if is_read:
                readers.add(path.relative_to(PACKAGE).parts[0])
    assert readers <= {"spec"}


def test_nothing_is_left_to_be_done_in_the_tree() -> None:
    words = ("NotImplemented" + "Error", "TO" + "DO:", "FIX" + "ME")
    for path in [*MODULES, *sorted((ROOT / "tests").rglob("*.py"))]:
        text = path.read_text(encoding="utf-8")
        assert not [word for word in words if word in text], name_of(path)


def test_the_command_line_starts_without_anything_heavy() -> None:
    heavy = ("rich", "openai", "docker", "jsonschema", "yaml", "asyncio", "concurrent_log_handler")
    program = (
        "import sys, hermes_run.cli.main; "
        f"print(*sorted({{*{heavy}, 'hermes_run.runner'}} & {{*sys.modules}}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_importing_the_package_does_nothing() -> None:
    program = "import sys, hermes_run; print(*[m for m in sys.modules if m.startswith('hermes_run.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def properties(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = schema.get("properties", {})
    return found


def walk(kind: type, schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, set[str], set[str]]]:
    """(path, fields of the type, keys of the schema), for a type and all types inside it."""
    hints = typing.get_type_hints(kind)
    fields = {field.name for field in dataclasses.fields(kind)}
    yield path, fields, set(properties(schema))
    for name in sorted(fields & set(properties(schema))):
        inner = properties(schema)[name]
        if dataclasses.is_dataclass(hints[name]) and isinstance(hints[name], type) and properties(inner):
            yield from walk(hints[name], inner, f"{path}{name}.")


@pytest.mark.parametrize(
    ("kind", "name", "only_type", "only_schema"),
    [
        (Spec, "run-spec", {"prefill", "sources"}, {path[0] for path in NOT_YET} | {"extends"}),
        (Settings, "settings", {"source", "warnings"}, set()),
    ],
)
def test_types_and_schemas_name_the_same_keys(
    kind: type, name: str, only_type: set[str], only_schema: set[str]
) -> None:
    for path, fields, keys in walk(kind, load_schema(name)):
        assert fields - keys == (set() if path else only_type), path or name
        assert keys - fields <= (set() if path else only_schema), path or name


@pytest.mark.parametrize("name", NAMES)
def test_every_schema_is_a_schema(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(load_schema(name))


SPECS = sorted([*(ROOT / "runs").glob("*.yaml"), *(ROOT / "examples").rglob("*.run.yaml")])


@pytest.mark.parametrize("path", [path for path in SPECS if path.name != "base.yaml"], ids=name_of)
def test_every_spec_that_comes_along_is_valid(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hermes_run", "validate", str(path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, "")


def walk_struct(
    kind: Any, schema: dict[str, Any], path: str = ""
) -> Iterator[tuple[str, set[str], set[str]]]:
    """As `walk`, for the Structs that are lines of files; lists and maps are entered too."""
    described: Any = msgspec.inspect.type_info(kind)
    if isinstance(described, msgspec.inspect.StructType):
        yield path, {field.encode_name for field in described.fields}, set(properties(schema))
        for field in described.fields:
            inner = properties(schema).get(field.encode_name, {})
            item = getattr(field.type, "item_type", getattr(field.type, "value_type", field.type))
            if isinstance(item, msgspec.inspect.StructType):
                inside = inner.get(
                    "items", inner if properties(inner) else inner.get("additionalProperties", {})
                )
                yield from walk_struct(item.cls, inside, f"{path}{field.encode_name}.")


@pytest.mark.parametrize(("kind", "name"), [(Entry, "manifest-entry"), (TrajectoryRecord, "trajectory")])
def test_lines_of_files_and_their_schemas_name_the_same_keys(kind: type, name: str) -> None:
    seen = 0
    for path, fields, keys in walk_struct(kind, load_schema(name)):
        assert fields == keys, path
        seen += 1
    assert seen == {"manifest-entry": 2, "trajectory": 6}[name]
