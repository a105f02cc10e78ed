"""Type hints in a file of Python, as they are written -> JSON Schema. Nothing is executed."""

from __future__ import annotations

import ast
from typing import Any

KNOWN = "str, int, float, bool, list, dict, Literal[...], Optional[...] and X | Y"

_PLAIN = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "List": "array",
    "dict": "object",
    "Dict": "object",
    "None": "null",
}


class NoSchema(Exception):
    """A hint that is none of `KNOWN`."""


def schema_of(hint: ast.expr) -> dict[str, Any]:
    """The schema that a hint means. Raises NoSchema."""
    if isinstance(hint, ast.Constant):
        if hint.value is None:
            return {"type": "null"}
        if isinstance(hint.value, str):
            return _of_text(hint.value)
    if isinstance(hint, ast.BinOp) and isinstance(hint.op, ast.BitOr):
        return _any_of([schema_of(hint.left), schema_of(hint.right)])
    if isinstance(hint, ast.Subscript):
        inner = hint.slice.elts if isinstance(hint.slice, ast.Tuple) else [hint.slice]
        return _of_subscript(_last_name(hint.value), inner)
    name = _last_name(hint)
    if name == "Any":
        return {}
    if name not in _PLAIN:
        raise NoSchema(ast.unparse(hint))
    return {"type": _PLAIN[name]}


def _of_text(text: str) -> dict[str, Any]:
    try:
        return schema_of(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError:
        raise NoSchema(text) from None


def _last_name(node: ast.expr) -> str:
    """`Optional` of `typing.Optional`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _of_subscript(name: str, inner: list[ast.expr]) -> dict[str, Any]:
    if name == "Literal":
        return _of_literal(inner)
    if name == "Annotated":
        return schema_of(inner[0])
    parts = [schema_of(each) for each in inner]
    if name == "Optional" and len(parts) == 1:
        return _any_of([*parts, {"type": "null"}])
    if name == "Union":
        return _any_of(parts)
    if name in ("list", "List") and len(parts) == 1:
        return {"type": "array", "items": parts[0]}
    if name in ("dict", "Dict") and len(parts) == 2 and parts[0] == {"type": "string"}:
        return {"type": "object", "additionalProperties": parts[1]}
    raise NoSchema(f"{name or 'that'}[{', '.join(map(ast.unparse, inner))}]")


def _of_literal(inner: list[ast.expr]) -> dict[str, Any]:
    values = [each.value for each in inner if isinstance(each, ast.Constant)]
    kinds = {str: "string", bool: "boolean", int: "integer", type(None): "null"}
    if len(values) < len(inner) or any(type(value) not in kinds for value in values):
        raise NoSchema(f"Literal[{', '.join(map(ast.unparse, inner))}]")
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
