"""What must not stand in the texts of a spec: variables that nobody fills in, and keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hermes_run.spec.keys_and_hosts import holds_key, is_surely_key, is_variable_name, looks_like_key
from hermes_run.spec.shape import KEY_NAMES, SENT_AS_IT_IS, no_keys_here

if TYPE_CHECKING:
    from collections.abc import Collection

    from hermes_run.spec.locate import KeyPath, Mistakes, Node

_INTERPOLATED = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)([:?+=-][^}]*)?\}")
_BARE = re.compile(r"\$(?P<name>[A-Za-z_]\w*)(?=/|$)")
_VARIABLES = ("api_key_env", "variable")
"""Keys, of specs and of hermes.yaml, that want the name of a variable."""
_FREE: tuple[KeyPath, ...] = (
    ("sandbox", "setup"),
    ("agent", "system_prompt"),
    ("agent", "ephemeral_system_prompt"),
    ("model", "sampling", "stop"),
)
"""Texts for a shell or a model, in which ${NAME} means itself."""


def refuse_variables(tree: Node, mistakes: Mistakes) -> set[KeyPath]:
    """Note every `${NAME}` that seems to wait for a value; returns where they stand."""
    found: set[KeyPath] = set()
    for path, node in tree.walk():
        text = node.value
        if not isinstance(text, str) or _is_own(path) or any(path[: len(free)] == free for free in _FREE):
            continue
        whole_only = path[:2] == SENT_AS_IT_IS
        match = (
            _INTERPOLATED.fullmatch(text) if whole_only else _INTERPOLATED.search(text) or _BARE.match(text)
        )
        if match is None:
            continue
        found.add(path)
        cure = f"write the value itself, or give it on the command line: --set {_key(path)}=VALUE"
        if path[-1] == "api_key_env":
            cure = f"this key wants the variable's name: write {match['name']}"
        mistakes.add(
            node.place, path, f"{match[0]} would not be replaced, there is no variable interpolation; {cure}"
        )
    return found


def _is_own(path: KeyPath) -> bool:
    return any(isinstance(step, str) and step.startswith("x-") for step in path) and path[:2] != SENT_AS_IT_IS


def _key(path: KeyPath) -> str:
    names = [step for step in path if isinstance(step, str)]
    return ".".join(names)


def refuse_keys(tree: Node, mistakes: Mistakes, told: Collection[KeyPath] = ()) -> set[KeyPath]:
    """Note every API key that stands in the tree itself, without repeating it; returns where.

    `told` are paths of values that are refused already.
    """
    found: set[KeyPath] = set()
    for path, node in tree.walk():
        text = node.value
        if not isinstance(text, str) or not path or path in told:
            continue
        problem = ""
        if _is_key(path, text):
            problem = f"looks like an API key; {no_keys_here(path)}"
        elif path[-1] in _VARIABLES and not is_variable_name(text):
            problem = "must be the name of an environment variable (letters, digits and _), such as MY_KEY"
        if problem:
            found.add(path)
            mistakes.add(node.place, path, problem)
    return found


def _is_key(path: KeyPath, text: str) -> bool:
    name = str(path[-1])
    if name in _VARIABLES:
        return looks_like_key(text)
    if path[:2] == SENT_AS_IT_IS:
        return (_is_key_name(name) and name != "key" and bool(text)) or is_surely_key(text)
    is_told_as_a_key = not _is_own(path) and _is_key_name(name)  # an unknown key: shape.py says so
    return holds_key(text) and not is_told_as_a_key


def _is_key_name(name: str) -> bool:
    return re.sub(r"[_-]", "", name).lower() in KEY_NAMES
