"""JSON Schemas that others wrote, made such that arguments can be fitted to them."""

from __future__ import annotations

from typing import Any

_NUMBERS = ("minimum", "maximum", "minItems", "maxItems")
_DEEPEST = 20


def sound_schema(schema: Any, depth: int = 0) -> dict[str, Any]:
    """A schema whose keywords have the types that `tools.arguments` reads; what is odd is left out.

    `true`, which allows anything, is `{}`. Keywords that are not read here stay as they are.
    """
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return {}
    found = {name: value for name, value in schema.items() if isinstance(name, str) and name != "$schema"}
    for name, is_odd in _ODD.items():
        if name in found and is_odd(found[name]):
            del found[name]
    if "properties" in found:
        found["properties"] = {
            name: sound_schema(inner, depth + 1) for name, inner in found["properties"].items()
        }
    if "items" in found:
        found["items"] = sound_schema(found["items"], depth + 1)
    if "anyOf" in found:
        found["anyOf"] = [sound_schema(choice, depth + 1) for choice in found["anyOf"]]
    if isinstance(found.get("additionalProperties"), dict):
        found["additionalProperties"] = sound_schema(found["additionalProperties"], depth + 1)
    return found


def _no_texts(value: Any) -> bool:
    return not isinstance(value, list) or not all(isinstance(item, str) for item in value)


_ODD: dict[str, Any] = {
    "type": lambda value: not isinstance(value, str) and _no_texts(value),
    "enum": lambda value: not isinstance(value, list) or not value,
    "required": _no_texts,
    "properties": lambda value: not isinstance(value, dict),
    "items": lambda value: not isinstance(value, dict | bool),
    "anyOf": lambda value: not isinstance(value, list) or not value,
    "additionalProperties": lambda value: not isinstance(value, dict | bool),
    **{
        name: lambda value: isinstance(value, bool) or not isinstance(value, int | float) for name in _NUMBERS
    },
}
"""Keyword -> whether a value of it is none."""
