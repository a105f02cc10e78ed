"""The file of prefill messages: a JSON list of {role, content}."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hermes_run.core.registry import did_you_mean
from hermes_run.spec.locate import Mistakes, Place, Source, shown, shown_path
from hermes_run.spec.reading import read_text

if TYPE_CHECKING:
    from pathlib import Path

ROLES = ("user", "assistant", "system")


def read_prefill(path: Path, mistakes: Mistakes) -> tuple[dict[str, str], ...]:
    """The messages; mistakes name the file, and the message by its number from 1."""
    source = Source(shown_path(path), path.parent, order=600)
    text = read_text(path, source, mistakes)
    if text is None:
        return ()
    try:
        messages = json.loads(text)
    except json.JSONDecodeError as error:
        place = Place(source, error.lineno, error.colno)
        mistakes.add(place, (), f"is no JSON: {error.msg}; it must be a list of {{role, content}}")
        return ()
    except RecursionError:
        mistakes.add(Place(source), (), "is nested too deeply; it must be a list of {role, content}")
        return ()
    if not isinstance(messages, list):
        mistakes.add(Place(source), (), f"must be a JSON list of {{role, content}}, not {shown(messages)}")
        return ()
    for number, message in enumerate(messages, 1):
        for problem in _problems(message):
            mistakes.add(Place(source), (), f"message {number}: {problem}")
    return tuple(messages)


def _problems(message: Any) -> list[str]:
    if not isinstance(message, dict):
        return [f"must be {{role, content}}, not {shown(message)}"]
    problems = []
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        hint = did_you_mean(role, ROLES) if isinstance(role, str) else ""
        problems.append(f"role must be one of {', '.join(ROLES)}, not {shown(role)}{hint}")
    if not isinstance(content, str):
        problems.append(f"content must be text, not {shown(content)}")
    problems += [
        f"unknown key {shown(name)}; known: role, content"
        for name in message
        if name not in {"role", "content"}
    ]
    return problems
