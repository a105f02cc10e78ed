"""A tree against its JSON Schema: mistakes in our own words, and the tree without what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hermes_run.core.registry import did_you_mean
from hermes_run.spec.locate import KeyPath, Mistakes, Node, dotted, shown
from hermes_run.spec.scalars import is_number_text
from hermes_run.spec.schema import load_schema, validator

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_KINDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "array": "a list",
    "object": "a map",
    "null": "null",
}
_TYPE_FIRST = ("type", "enum")
MACHINE = "hermes.yaml"
"""What stands for a key of the machine's settings among the other names of a spec's keys."""
_NEARLY = 0.9
"""So near, a neighbour is meant rather than the same name in another place."""
SENT_AS_IT_IS: KeyPath = ("model", "extra_body")
"""The one map in which x- keys are not the user's own but the provider's."""
KEY_NAMES = {
    "apikey",
    "key",
    "secret",
    "token",
    "authorization",
    "accesstoken",
    "authtoken",
    "apitoken",
    "password",
}
_MCP: KeyPath = ("tools", "mcp")


def no_keys_here(path: KeyPath) -> str:
    """What to do with a key that was written at `path`."""
    named = "env: [MY_KEY]" if path[: len(_MCP)] == _MCP else "api_key_env: MY_KEY"
    return (
        "a key itself is never written down here; put it into an environment variable and name that variable:"
        f" {named}"
    )


def check_shape(
    tree: Node,
    name: str,
    mistakes: Mistakes,
    *,
    told: Collection[KeyPath] = (),
    other_names: Mapping[str, str] | None = None,
) -> tuple[Node, frozenset[KeyPath]]:
    """Note every difference from the schema `name`.

    Returns the tree without the wrong parts and without x- keys, and the paths of the wrong parts.

    Args:
        tree: a map.
        name: of the schema.
        mistakes: what is wrong is added here.
        told: paths of values whose mistake is noted already; they are taken out too.
        other_names: names that people use for keys -> the dotted key that is meant.
    """
    wrong: dict[KeyPath, list[Any]] = {}
    for error in validator(name).iter_errors(tree.plain()):
        wrong.setdefault(tuple(error.absolute_path), []).append(error)
    explain = _Explainer(tree, load_schema(name), mistakes, other_names or {})
    bad: set[KeyPath] = set(told)
    for path, errors in wrong.items():
        if path in bad:
            continue
        bad.update(explain.tell(path, errors))
    return _without(tree, {_whole_key(path) for path in bad}), frozenset(bad)


def _whole_key(path: KeyPath) -> KeyPath:
    """The path up to its first list: a list with a wrong item is wrong as a whole."""
    for index, step in enumerate(path):
        if isinstance(step, int):
            return path[:index]
    return path


def _without(node: Node, bad: set[KeyPath], path: KeyPath = ()) -> Node:
    if not isinstance(node.value, dict):
        return node
    kept = {
        name: _without(child, bad, (*path, name))
        for name, child in node.value.items()
        if (*path, name) not in bad and (not name.startswith("x-") or path[:2] == SENT_AS_IT_IS)
    }
    return replace(node, value=kept)


class _Explainer:
    """Says in our words what jsonschema found at one path."""

    def __init__(
        self, tree: Node, schema: dict[str, Any], mistakes: Mistakes, other_names: Mapping[str, str]
    ) -> None:
        self.tree = tree
        self.schema = schema
        self.mistakes = mistakes
        self.other_names = other_names

    def tell(self, path: KeyPath, errors: list[Any]) -> Iterator[KeyPath]:
        """Note what is wrong at `path`; yields the paths that cannot be used."""
        inside = [e for e in errors if e.validator in {"additionalProperties", "required"}]
        for error in inside:
            yield from (
                self._unknown(path, error) if error.validator != "required" else self._missing(path, error)
            )
        others = [e for e in errors if e not in inside]
        if others:
            first = min(
                others, key=lambda e: _TYPE_FIRST.index(e.validator) if e.validator in _TYPE_FIRST else 9
            )
            node = self.tree.find(path) or self.tree
            self.mistakes.add(node.place, path, explain_value(path, node, first))
            yield path

    def _missing(self, path: KeyPath, error: Any) -> Iterator[KeyPath]:
        for name in error.validator_value:
            if name not in error.instance:
                about = error.schema["properties"][name].get("description", "")
                text = f"is required and missing; add {name}: …" + (
                    f" ({about.rstrip('.')})" if about else ""
                )
                self.mistakes.add(self.tree.key_place_of(path), (*path, name), text)
        if any(isinstance(step, int) for step in path):
            yield path

    def _unknown(self, path: KeyPath, error: Any) -> Iterator[KeyPath]:
        known = error.schema["properties"]
        for name in error.instance:
            if name not in known and not name.startswith("x-"):
                at = (*path, name)
                self.mistakes.add(self.tree.key_place_of(at), at, self._what_was_meant(path, name, known))
                yield at

    def _what_was_meant(self, path: KeyPath, name: str, known: Mapping[str, Any]) -> str:
        if name.replace("-", "").replace("_", "").lower() in KEY_NAMES:
            return no_keys_here(path)
        meant = self.other_names.get(name, "")
        if meant.startswith("--"):
            return f"unknown key; it is an option of the command line: {meant}"
        if meant == MACHINE and not path:
            return f"unknown key; it describes the machine, not the run, and belongs into {MACHINE}"
        if meant and meant not in (MACHINE, dotted((*path, name))):
            return f"unknown key; write it as {meant}"
        places = {place: dotted(place) for place in key_paths(self.schema)}
        elsewhere = [shown_place for place, shown_place in places.items() if place[-1] == name]
        if elsewhere and not did_you_mean(name, known, _NEARLY):
            return f"unknown key here; it belongs at {' or '.join(elsewhere)}"
        return "unknown key" + _nearest(name, known, places)


def _nearest(name: str, known: Mapping[str, Any], places: Mapping[tuple[str, ...], str]) -> str:
    """The nearest name among the neighbours, else anywhere, else all neighbours."""
    near = did_you_mean(name, known)
    far = "" if near else did_you_mean(name, {place[-1] for place in places})
    if far:
        meant = next(text for place, text in places.items() if f'"{place[-1]}"' in far)
        return f'; did you mean "{meant}"?'
    return near or f"; known here: {', '.join(known)}; your own keys begin with x-"


def key_paths(schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every named key of a schema, lists and free names left out."""
    for name, inside in schema.get("properties", {}).items():
        yield (*path, name)
        yield from key_paths(inside, (*path, name))


def explain_value(path: KeyPath, node: Node, error: Any) -> str:
    """What is wrong with a value, and the cure, in one line."""
    kind, limit, value = error.validator, error.validator_value, node.value
    if kind == "type":
        return _wrong_type(node, [limit] if isinstance(limit, str) else limit, error.schema)
    if kind == "enum":
        return _wrong_word(path, value, limit)
    if kind == "pattern":
        return f"{error.schema.get('patternErrorMessage', f'must match {limit}')}, unlike {shown(value)}"
    texts = {
        "minimum": f"must be {limit} or more, not {shown(value)}",
        "maximum": f"must be {limit} or less, not {shown(value)}",
        "exclusiveMinimum": f"must be more than {limit}, not {shown(value)}",
        "minLength": "must not be empty; write a value or take the key out",
        "minItems": "must not be an empty list; write a value or take the key out",
        "minProperties": "must not be an empty map; write a value or take the key out",
    }
    return texts.get(kind) or str(error.message)


def _wrong_type(node: Node, types: list[str], schema: Mapping[str, Any]) -> str:
    value = node.value
    wanted = " or ".join(_KINDS[kind] for kind in types)
    if isinstance(value, bool) and "string" in types:
        return _unquoted_boolean(node, schema)
    if isinstance(value, int | float) and "string" in types:
        number = node.written or str(value)
        return f'must be {wanted}, and {number} without quotes is a number; write "{number}"'
    if value is None:
        return f"must be {wanted}, and is empty; write a value or take the key out"
    if isinstance(value, str):
        return f"must be {wanted}, not the text {shown(value)}; {_cure_of_text(value, types)}"
    return f"must be {wanted}, not {shown(value)}"


def _cure_of_text(value: str, types: list[str]) -> str:
    if "array" in types:
        return f"write [{shown(value)}]"
    if "boolean" in types:
        return "write true or false without quotes"
    if "object" in types:
        return "write keys below it"
    return "take the quotes away" if is_number_text(value) else "write a number without a unit"


def _unquoted_boolean(node: Node, schema: Mapping[str, Any]) -> str:
    word = node.written or shown(node.value)
    reading = f"YAML reads {word} without quotes as {shown(node.value)}"
    choices = schema.get("enum", ())
    if "none" in choices and not node.value:
        return f"{reading}; write none to switch it off, or null to leave it unset"
    if choices:
        return f"{reading}; write one of {_words(choices)}"
    return f'{reading}; write "{word}" in quotes'


def _wrong_word(path: KeyPath, value: Any, choices: list[Any]) -> str:
    words = [choice for choice in choices if isinstance(choice, str)]
    text = f"must be one of {_words(choices)}, not {shown(value)}"
    if not isinstance(value, str):
        return text
    if path[-1] == "effort" and value.lower() in {"off", "no", "false", "disabled", "disable"}:
        return f"{text}; write none to switch reasoning off"
    return text + did_you_mean(value.lower(), words)


def _words(choices: Any) -> str:
    return ", ".join("null" if choice is None else str(choice) for choice in choices)
