"""A call's arguments: JSON text from the model -> values that fit the tool's JSON Schema, or an error.

What can be meant in one way only is coerced: `"42"` where an integer is wanted, `"true"` where a
boolean is, a bare value where a list is, a number where text is, the JSON text of a list or an object
where one is wanted; `null` for an optional parameter counts as leaving it out. Everything else is
answered with an error that names the parameter: a tool never runs with arguments it was not given.

Of JSON Schema this knows type, enum, minimum, maximum, items, minItems, maxItems, properties, required,
additionalProperties (at the top level unknown parameters are refused unless it allows them) and anyOf;
other keywords are left to the tool.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from hermes_run.core.registry import which_are_known
from hermes_run.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Schema = Mapping[str, Any]

_AROUND = 30  # characters shown on each side of a fault in JSON text
_OF_OBJECTS = frozenset({"properties", "required", "additionalProperties"})
_WHOLE = re.compile(r"[+-]?\d{1,400}(\.0*)?")
_REAL = re.compile(r"[+-]?(\d{1,400}(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")


class BadArguments(ToolError):
    """The arguments are no JSON object or do not fit; the text is the model's answer."""


def parse_arguments(text: str, schema: Schema) -> dict[str, Any]:
    """The arguments of a call.

    Args:
        text: the JSON text that the model wrote.
        schema: JSON Schema of the tool's parameters (an object).

    Raises:
        BadArguments: with the fault and its place, or with all parameters that do not fit.
    """
    value = _decode(text)
    if not isinstance(value, dict):
        raise BadArguments(
            f"arguments must be a JSON object such as {_example(schema)}, not {_kind(value)}: {_quote(value)}"
        )
    faults: list[str] = []
    arguments = _fit_object(value, {"additionalProperties": False, **schema}, "", faults)
    if faults:
        raise BadArguments("; ".join(faults))
    return arguments


def _decode(text: str) -> Any:
    if not text.strip():
        raise BadArguments("arguments are empty; write a JSON object, {} when there is nothing to say")
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        before = text[max(0, error.pos - _AROUND) : error.pos]
        after = text[error.pos : error.pos + _AROUND]
        raise BadArguments(
            f"arguments are not valid JSON: {error.msg} at line {error.lineno}, column {error.colno} "
            f"(character {error.pos}), here: {before}<<<HERE>>>{after}"
        ) from None
    except RecursionError:
        raise BadArguments("arguments are not usable: they are nested too deeply") from None
    except ValueError as error:  # an integer of more digits than Python reads
        raise BadArguments(f"arguments are not valid JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise BadArguments(f"arguments are not valid JSON: {name} is no JSON value")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadArguments(f'arguments are ambiguous: "{twice}" is given twice')
    return found


def _example(schema: Schema) -> str:
    names = schema.get("required") or list(schema.get("properties", {}))[:1]
    return "{" + ", ".join(f'"{name}": ...' for name in names) + "}"


def _kind(value: Any) -> str:
    kinds: dict[type, str] = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "an object",
    }
    return kinds.get(type(value), "null")


def _quote(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:80] + "…"


def _wanted(schema: Schema) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(json.dumps(option, ensure_ascii=False) for option in schema["enum"])
    names = {
        "string": "text",
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "array": "a list",
        "object": "an object",
        "null": "null",
    }
    return " or ".join(names.get(name, name) for name in _types(schema))


def _types(schema: Schema) -> Sequence[str]:
    declared = schema.get("type", ())
    return (declared,) if isinstance(declared, str) else tuple(declared)


def _takes_null(schema: Schema) -> bool:
    types = _types(schema)
    choices = schema.get("anyOf", ())
    return "null" in types or any(map(_takes_null, choices)) or not (types or choices)


class _Unfit(Exception):
    """A value does not fit and cannot be coerced."""


def _fit_object(value: dict[str, Any], schema: Schema, where: str, faults: list[str]) -> dict[str, Any]:
    known: Schema = schema.get("properties", {})
    required = schema.get("required", ())
    extra = schema.get("additionalProperties", True)
    fitted: dict[str, Any] = {}
    for name, item in value.items():
        place = f"{where}.{name}" if where else name
        if name in known:
            if item is None and name not in required and not _takes_null(known[name]):
                continue
            fitted[name] = _fit(item, known[name], place, faults)
        elif extra is False:
            ending = which_are_known(name, known) if known else "; there are none"
            faults.append(f'unknown parameter "{place}"{ending}')
        else:
            fitted[name] = _fit(item, extra, place, faults) if isinstance(extra, dict) else item
    for name in required:
        if name not in value:
            place = f"{where}.{name}" if where else name
            faults.append(f'missing parameter "{place}" ({_wanted(known.get(name, {})) or "required"})')
    return fitted


def _fit(value: Any, schema: Schema, place: str, faults: list[str]) -> Any:
    """The value as the schema wants it; what is wrong goes to `faults`."""
    if "anyOf" in schema:
        return _fit_any(value, schema["anyOf"], place, faults)
    try:
        coerced = _coerce(value, schema)
    except _Unfit:
        faults.append(f'parameter "{place}" must be {_wanted(schema)}, not {_kind(value)}: {_quote(value)}')
        return value
    if isinstance(coerced, dict) and not _OF_OBJECTS.isdisjoint(schema):
        return _fit_object(coerced, schema, place, faults)
    if isinstance(coerced, list) and "array" in _types(schema):
        _check_length(coerced, schema, place, faults)
        items = schema.get("items", {})
        return [_fit(item, items, f"{place}[{i}]", faults) for i, item in enumerate(coerced)]
    _check_range(coerced, schema, place, faults)
    return coerced


def _fit_any(value: Any, choices: Sequence[Schema], place: str, faults: list[str]) -> Any:
    """The first choice that takes the value as it is, else the first that it can be coerced to."""
    first: list[str] = []
    coerced: list[Any] = []
    for choice in choices:
        trial: list[str] = []
        fitted = _fit(value, choice, place, trial)
        if trial:
            first = first or trial
        elif type(fitted) is type(value) and fitted == value:
            return fitted
        else:
            coerced.append(fitted)
    if coerced:
        return coerced[0]
    faults.extend(first)
    return value


def _check_length(value: list[Any], schema: Schema, place: str, faults: list[str]) -> None:
    if len(value) < schema.get("minItems", 0):
        faults.append(f'parameter "{place}" needs at least {schema["minItems"]} items')
    if len(value) > schema.get("maxItems", len(value)):
        faults.append(f'parameter "{place}" takes at most {schema["maxItems"]} items, not {len(value)}')


def _check_range(value: Any, schema: Schema, place: str, faults: list[str]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if value < schema.get("minimum", value):
        faults.append(f'parameter "{place}" must be at least {schema["minimum"]}, not {value}')
    if value > schema.get("maximum", value):
        faults.append(f'parameter "{place}" must be at most {schema["maximum"]}, not {value}')


def _coerce(value: Any, schema: Schema) -> Any:
    """The value in one of the schema's types: as it is if it can be, else converted.

    Raises _Unfit.
    """
    types = _types(schema)
    fits = not types or any(_is(value, name) for name in types)
    if not fits:
        for name in types:
            converted = _COERCIONS[name](value) if name in _COERCIONS else None
            if converted is not None:
                value = converted
                break
        else:
            raise _Unfit
    if "enum" in schema and value not in schema["enum"]:
        raise _Unfit
    return int(value) if isinstance(value, float) and "integer" in types and value.is_integer() else value


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if name == "number":
        return isinstance(value, int | float)
    kinds: dict[str, type] = {"string": str, "array": list, "object": dict, "null": type(None)}
    return name in kinds and isinstance(value, kinds[name])


def _to_text(value: Any) -> str | None:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _to_whole(value: Any) -> int | None:
    text = value.strip() if isinstance(value, str) else ""
    return int(text.partition(".")[0]) if _WHOLE.fullmatch(text) else None


def _to_number(value: Any) -> int | float | None:
    text = value.strip() if isinstance(value, str) else ""
    if _WHOLE.fullmatch(text) and "." not in text:
        return int(text)
    if not _REAL.fullmatch(text):
        return None
    number = float(text)
    return number if abs(number) != float("inf") else None


def _to_boolean(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return None


def _from_json_text(value: Any, kind: type) -> Any:
    if not isinstance(value, str) or not value.lstrip().startswith("[" if kind is list else "{"):
        return None
    try:
        decoded = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, kind) else None


def _to_list(value: Any) -> list[Any] | None:
    if value is None:
        return None
    inner = _from_json_text(value, list)
    return inner if inner is not None else [value]


_COERCIONS: dict[str, Callable[[Any], Any]] = {
    "string": _to_text,
    "integer": _to_whole,
    "number": _to_number,
    "boolean": _to_boolean,
    "array": _to_list,
    "object": lambda value: _from_json_text(value, dict),
}
"""How a value becomes one of a type that it is not; None when it cannot."""
