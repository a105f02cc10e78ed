"""Type hints in a file of Python, as they are written -> JSON Schema. Nothing is executed.

What a hint names is looked for among the file's own statements: another name for a hint, an Enum, a
dataclass, a TypedDict.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

KNOWN = (
    "str, int, float, bool, list, tuple, dict, Any, Literal[...], Optional[...], X | Y, and what the same "
    "file has of Enums, dataclasses and TypedDicts"
)

_PLAIN = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "None": "null",
    **dict.fromkeys(("list", "List", "tuple", "Tuple", "Sequence", "Iterable", "Collection"), "array"),
    **dict.fromkeys(("dict", "Dict", "Mapping"), "object"),
}
_ANYTHING = frozenset({"Any", "object"})
_LISTS = frozenset({"list", "List", "Sequence", "Iterable", "Collection"})
_MAPS = frozenset({"dict", "Dict", "Mapping"})
_DEEPEST = 8


class NoSchema(Exception):
    """A hint that is none of `KNOWN`."""


def names_of(tree: ast.Module) -> dict[str, ast.AST]:
    """What the names of a file that a hint may hold stand for: a class, or another hint."""
    found: dict[str, ast.AST] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = node
        elif (
            isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        ):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = node.value
        elif type(node).__name__ == "TypeAlias":  # Python 3.12 knows `type X = ...`
            found[node.name.id] = node.value  # type: ignore[attr-defined]
    return found


def schema_of(hint: ast.expr, names: Mapping[str, ast.AST] | None = None) -> dict[str, Any]:
    """The schema that a hint means. Raises NoSchema.

    Args:
        hint: as it is written.
        names: what its names may stand for (`names_of`).
    """
    return _Hints(names or {}).schema(hint)


class _Hints:
    def __init__(self, names: Mapping[str, ast.AST]) -> None:
        self._names = names
        self._depth = 0

    def schema(self, hint: ast.expr) -> dict[str, Any]:
        """The schema of a hint. Raises NoSchema."""
        if isinstance(hint, ast.Constant) and isinstance(hint.value, str):
            return self._of_text(hint.value)
        if isinstance(hint, ast.BinOp) and isinstance(hint.op, ast.BitOr):
            return _any_of([self.schema(hint.left), self.schema(hint.right)])
        if isinstance(hint, ast.Subscript):
            inner = hint.slice.elts if isinstance(hint.slice, ast.Tuple) else [hint.slice]
            return self._of_subscript(_last_name(hint.value), inner)
        name = "None" if isinstance(hint, ast.Constant) and hint.value is None else _last_name(hint)
        if name in self._names:
            return self._of_name(name, hint)
        if name not in _PLAIN and name not in _ANYTHING:
            raise NoSchema(ast.unparse(hint))
        return {"type": _PLAIN[name]} if name in _PLAIN else {}

    def _of_text(self, text: str) -> dict[str, Any]:
        try:
            return self.schema(ast.parse(text.strip(), mode="eval").body)
        except SyntaxError:
            raise NoSchema(text) from None

    def _of_name(self, name: str, hint: ast.expr) -> dict[str, Any]:
        """What a name of the file stands for."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NoSchema(f"{name}, which holds itself")
        node = self._names[name]
        try:
            if isinstance(node, ast.ClassDef):
                return self._of_class(node, hint)
            return self.schema(node) if isinstance(node, ast.expr) else {}
        finally:
            self._depth -= 1

    def _of_class(self, node: ast.ClassDef, hint: ast.expr) -> dict[str, Any]:
        bases = [_last_name(base) for base in node.bases]
        if bases and bases[-1] in {"Enum", "StrEnum", "IntEnum"}:
            values = [
                each.value for each in node.body if isinstance(each, ast.Assign) and not _is_private(each)
            ]
            return _of_literal(values, ast.unparse(hint))
        decorators = {
            _last_name(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list
        }
        if bases == ["TypedDict"] or (not bases and "dataclass" in decorators):
            is_total = not any(word.arg == "total" and _is_false(word.value) for word in node.keywords)
            return self._of_fields(node, is_total=is_total)
        raise NoSchema(ast.unparse(hint))

    def _of_fields(self, node: ast.ClassDef, *, is_total: bool) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        required: list[str] = []
        for each, hint, may_be_left_out in _fields(node):
            properties[each] = self.schema(hint)
            if is_total and not may_be_left_out:
                required.append(each)
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    def _of_subscript(self, name: str, inner: Sequence[ast.expr]) -> dict[str, Any]:
        whole = f"{name or 'that'}[{', '.join(map(ast.unparse, inner))}]"
        if not inner and name not in ("tuple", "Tuple"):
            raise NoSchema(whole)
        if name == "Literal":
            return _of_literal(inner, whole)
        if name == "Annotated":
            return self.schema(inner[0]) | _words(inner[1:])
        if name in ("tuple", "Tuple"):
            return self._of_tuple(inner)
        parts = [self.schema(each) for each in inner]
        if name == "Union" or (name == "Optional" and len(parts) == 1):
            return _any_of([*parts, {"type": "null"}] if name == "Optional" else parts)
        if name in _LISTS and len(parts) == 1:
            return {"type": "array", "items": parts[0]}
        if name not in _MAPS or len(parts) != 2 or parts[0] != {"type": "string"}:
            raise NoSchema(whole)
        return {"type": "object", "additionalProperties": parts[1]}

    def _of_tuple(self, inner: Sequence[ast.expr]) -> dict[str, Any]:
        is_open = len(inner) == 2 and isinstance(inner[1], ast.Constant) and inner[1].value is Ellipsis
        if is_open:
            return {"type": "array", "items": self.schema(inner[0])}
        parts = [self.schema(each) for each in inner]
        different = [part for at, part in enumerate(parts) if part not in parts[:at]]
        items = _any_of(different) if len(different) > 1 else (different or [{}])[0]
        return {"type": "array", "items": items, "minItems": len(parts), "maxItems": len(parts)}


def _words(said: Sequence[ast.expr]) -> dict[str, str]:
    """`description`, where Annotated holds a text."""
    texts = (each.value for each in said if isinstance(each, ast.Constant))
    words = next((text.strip() for text in texts if isinstance(text, str) and text.strip()), "")
    return {"description": words} if words else {}


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr, bool]]:
    """(name, hint, whether it may be left out) of the fields of a dataclass or TypedDict."""
    for each in node.body:
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name):
            continue
        hint, name = each.annotation, ""
        if isinstance(hint, ast.Subscript):
            name = _last_name(hint.value)
        if name == "ClassVar":
            continue
        if isinstance(hint, ast.Subscript) and name in {"NotRequired", "Required"}:
            hint = hint.slice
        has_default = each.value is not None
        if isinstance(each.value, ast.Call) and _last_name(each.value.func) == "field":
            words = {word.arg: word.value for word in each.value.keywords}
            if "init" in words and _is_false(words["init"]):
                continue  # nothing that is given
            has_default = not words.keys().isdisjoint({"default", "default_factory"})
        yield each.target.id, hint, has_default or name == "NotRequired"


def _is_private(node: ast.Assign) -> bool:
    return not isinstance(node.targets[0], ast.Name) or node.targets[0].id.startswith("_")


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _last_name(node: ast.expr) -> str:
    """`Optional` of `typing.Optional`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _of_literal(inner: Sequence[ast.expr], whole: str) -> dict[str, Any]:
    values = [each.value for each in inner if isinstance(each, ast.Constant)]
    kinds = {str: "string", bool: "boolean", int: "integer", type(None): "null"}
    if not values or len(values) < len(inner) or any(type(value) not in kinds for value in values):
        raise NoSchema(whole)
    types = list(dict.fromkeys(kinds[type(value)] for value in values))
    return {"type": types[0] if len(types) == 1 else types, "enum": values}


def _any_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One schema for several: a list of types where they say no more than their type."""
    if all(set(part) == {"type"} for part in parts):
        types = [
            t for part in parts for t in (part["type"] if isinstance(part["type"], list) else [part["type"]])
        ]
        types = list(dict.fromkeys(types))
        return {"type": types[0] if len(types) == 1 else types}
    flat = [choice for part in parts for choice in part.get("anyOf", [part])]
    return {"anyOf": flat}
