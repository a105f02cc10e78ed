"""A user's own tools: `file.py:function` -> how it is offered, read from the source, never executed."""

from __future__ import annotations

import ast
import keyword
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_run.core.contracts import ToolSpec
from hermes_run.core.keys import digest
from hermes_run.core.registry import TOOLS, did_you_mean
from hermes_run.spec.docstrings import read_docstring
from hermes_run.spec.draft import absolute, file_problem
from hermes_run.spec.hints import KNOWN, NoSchema, names_of, schema_of
from hermes_run.spec.locate import shown, shown_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hermes_run.spec.draft import Draft
    from hermes_run.spec.locate import Place
    from hermes_run.spec.model import Spec

MAX_FILE_BYTES = 1_048_576
MAX_NAME = 64


class Mistaken(Exception):
    """What is wrong with an own tool; one mistake a line, each with file and line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTool:
    """One of them.

    Attributes:
        spec: how it is offered.
        path: the file that it stands in.
        source: the file's text.
        host: whether it runs on the host.
    """

    spec: ToolSpec
    path: Path
    source: str
    host: bool

    @property
    def content(self) -> str:
        """The file by content, for the work fingerprint."""
        return f"xxh3:{digest(self.source.encode('utf-8', 'surrogatepass'))}"


def split_reference(text: str) -> tuple[str, str]:
    """File and function of `file.py:function`. Raises Mistaken."""
    file, colon, function = text.rpartition(":")
    if not colon or not file or not function:
        raise Mistaken(f"must be file.py:function, such as ../examples/my_tool.py:weather, not {shown(text)}")
    if not function.isidentifier() or keyword.iskeyword(function):
        raise Mistaken(f"{shown(function)} is no name of a function; write file.py:function")
    return file, function


def read_own_tool(path: Path, function: str, *, host: bool, is_in_file: bool = True) -> OwnTool:
    """A tool from the source of a file, named in a spec or on the command line. Raises Mistaken."""
    problem = file_problem(path, is_in_file=is_in_file)
    if problem:
        raise Mistaken(problem)
    source = _text(path)
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise Mistaken(f"{shown_path(path)}:{error.lineno or 1}: is no Python: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise Mistaken(f"{shown_path(path)}:1: is no Python: {error}") from None
    node = _find(tree, path, function)
    names = names_of(tree)
    faults = [f"{shown_path(path)}:{line}: {function}: {what}" for line, what in _faults(node, names)]
    if faults:
        raise Mistaken("\n".join(faults))
    return OwnTool(spec=_spec(node, names), path=path, source=source, host=host)


def written_tools(draft: Draft) -> list[tuple[str, bool]]:
    """(`/path/of/file.py:function`, host) of every own tool, paths counted from the file they are in."""
    found = []
    for place, text, host in _written(draft):
        file, _, function = text.rpartition(":")
        found.append((f"{absolute(place.source.folder, file)}:{function}", host))
    return found


def _written(draft: Draft) -> Iterator[tuple[Place, str, bool]]:
    node = draft.tree.find(("tools", "custom"))
    for each in node.value if node is not None else ():
        plain = each.plain()
        is_map = isinstance(plain, dict)
        yield each.place, plain["tool"] if is_map else plain, bool(is_map and plain.get("host", False))


def check_own_tools(draft: Draft) -> None:
    """Every own tool can be read, and no two have one name."""
    seen: set[str] = set()
    for at, (place, text, host) in enumerate(_written(draft)):
        path = ("tools", "custom", at)
        try:
            file, function = split_reference(text)
            source = place.source
            read_own_tool(absolute(source.folder, file), function, host=host, is_in_file=source.is_file)
        except Mistaken as why:
            for line in str(why).splitlines():
                draft.note(path, line)
            continue
        if function in seen:
            draft.note(path, f"there is an own tool {function} already; give one of them another name")
        seen.add(function)


def work_of_own_tools(spec: Spec) -> dict[str, Any]:
    """The part of the work fingerprint that own tools are; empty where there are none.

    Raises OSError when a file cannot be read any more.
    """
    try:
        own = own_tools(spec)
    except Mistaken as why:
        raise OSError(str(why)) from why
    return {f"tools.custom.{each.spec.name}": f"{each.content}{', on the host' * each.host}" for each in own}


def own_tools(spec: Spec) -> tuple[OwnTool, ...]:
    """The own tools of a spec that was loaded. Raises Mistaken when a file has changed since."""
    found = []
    for each in spec.tools.custom:
        file, function = split_reference(each.tool)
        found.append(read_own_tool(Path(file), function, host=each.host))
    return tuple(found)


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Mistaken(f"{shown_path(path)} cannot be read: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise Mistaken(f"{shown_path(path)} is larger than {MAX_FILE_BYTES} bytes; is this the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Mistaken(f"{shown_path(path)}:{line}: is not UTF-8; save it as UTF-8") from None


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _find(tree: ast.Module, path: Path, function: str) -> _Function:
    functions = {node.name: node for node in tree.body if isinstance(node, _Function)}
    if function in functions:
        return functions[function]
    hint = did_you_mean(function, functions) or f"; functions there: {', '.join(functions) or 'none'}"
    raise Mistaken(f'{shown_path(path)}:1: there is no function "{function}" at its top level{hint}')


def _faults(node: _Function, names: Mapping[str, ast.AST]) -> Iterator[tuple[int, str]]:
    """(line, what is wrong and the cure)."""
    if node.name in TOOLS:
        yield node.lineno, "is the name of a built-in tool; give the function another name"
    if not node.name.isascii() or len(node.name) > MAX_NAME:
        yield node.lineno, f"a tool's name has at most {MAX_NAME} ASCII letters, digits and _; rename it"
    if not (ast.get_docstring(node) or "").strip():
        yield node.lineno, 'has no docstring, which tells the model what it is for; add """..."""'
    arguments = node.args
    for star in (arguments.vararg, arguments.kwarg):
        if star is not None:
            mark = "*" if star is arguments.vararg else "**"
            yield star.lineno, f"{mark}{star.arg} cannot be offered to a model; write parameters with names"
    for each in arguments.posonlyargs:
        yield each.lineno, f'parameter "{each.arg}" is positional only; take the / out'
    for parameter in (*arguments.args, *arguments.kwonlyargs):
        if not parameter.arg.isascii() or len(parameter.arg) > MAX_NAME:
            what = f"has at most {MAX_NAME} ASCII letters, digits and _; rename it"
            yield parameter.lineno, f'parameter "{parameter.arg}": a parameter {what}'
        if parameter.annotation is None:
            yield parameter.lineno, f'parameter "{parameter.arg}" has no type hint; known: {KNOWN}'
            continue
        try:
            schema_of(parameter.annotation, names)
        except NoSchema as hint:
            yield parameter.lineno, f'parameter "{parameter.arg}" has the type {hint}; known: {KNOWN}'
    if any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in _own_nodes(node.body)):
        yield node.lineno, "yields values; a tool returns one: write return"


def _own_nodes(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a function without those of functions inside it."""
    for node in body:
        if not isinstance(node, _Function | ast.Lambda | ast.ClassDef):
            yield node
            yield from _own_nodes(ast.iter_child_nodes(node))


def _spec(node: _Function, names: Mapping[str, ast.AST]) -> ToolSpec:
    arguments = node.args
    defaults: dict[str, ast.expr] = {}
    if arguments.defaults:
        named = [each.arg for each in arguments.args][-len(arguments.defaults) :]
        defaults |= dict(zip(named, arguments.defaults, strict=True))
    for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if value is not None:
            defaults[each.arg] = value
    parameters = [*arguments.args, *arguments.kwonlyargs]
    docstring = ast.get_docstring(node) or ""
    about, words = read_docstring(docstring, [each.arg for each in parameters])
    properties: dict[str, Any] = {}
    for each in parameters:
        schema = schema_of(each.annotation, names) if each.annotation is not None else {}
        if each.arg in words:
            schema = schema | {"description": words[each.arg]}
        properties[each.arg] = schema | _default(defaults.get(each.arg))
    required = [each.arg for each in parameters if each.arg not in defaults]
    return ToolSpec(node.name, about, {"type": "object", "properties": properties, "required": required})


def _default(value: ast.expr | None) -> dict[str, Any]:
    """`default`, where it is a value of JSON."""
    if value is None:
        return {}
    try:
        literal = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return {}
    return {"default": literal} if _is_json(literal) else {}


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return value == value and abs(value) != float("inf")  # noqa: PLR0124 - NaN
    return isinstance(value, str | int | bool)
