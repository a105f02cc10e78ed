"""Calls one function of a file: a frame on stdin says which, the result goes out after a mark.

What the function prints, and what it reads, goes nowhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import os
import sys
import traceback
import types
import typing
from typing import Any


class Out:
    """The way the result takes: a copy of stdout that nobody else knows."""

    def __init__(self, mark: str) -> None:
        self.file = os.dup(1)
        self.mark = mark
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)

    def say(self, what: dict[str, Any]) -> None:
        """Give the result and end."""
        data = (f"{self.mark}{json.dumps(what, allow_nan=False)}{self.mark}").encode()
        while data:
            data = data[os.write(self.file, data) :]
        os._exit(0)


def end_with_the_runner() -> None:
    """Be killed when the runner is: on the host nobody else would end this."""
    with contextlib.suppress(ImportError, OSError, AttributeError):  # where there is no such thing
        import ctypes

        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL


def main() -> None:
    """Read, call, answer."""
    order = json.loads(sys.stdin.buffer.read())
    out = Out(order["mark"])
    sys.excepthook = lambda _, error, trace: fail(out, order["name"], error, trace)
    try:
        answer(order, out)
    except SystemExit as error:  # which no hook is told of
        fail(out, order["name"], error, error.__traceback__)


def answer(order: dict[str, Any], out: Out) -> None:
    """Make the file a module, call its function, give its result."""
    if order["folder"]:
        end_with_the_runner()
        sys.path.insert(0, order["folder"])
    module = types.ModuleType(order["module"])
    module.__file__ = order["file"]
    sys.modules[order["module"]] = module
    program = compile(order["source"], order["name"], "exec", dont_inherit=True)
    exec(program, module.__dict__)  # noqa: S102 - what this is for
    function = getattr(module, order["function"])
    result = function(**meant(function, order["arguments"]))
    if hasattr(result, "__await__"):
        import asyncio  # which takes longer than many a function

        result = asyncio.run(_wait(result))
    out.say({"returned": result})


def hints_of(thing: Any) -> dict[str, Any]:
    """Its type hints; none where this Python cannot read them."""
    try:
        return typing.get_type_hints(thing)
    except (NameError, TypeError, AttributeError, SyntaxError, ValueError):
        return {}


def meant(thing: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Arguments as the function's hints say: what JSON has no form for is made of what it has."""
    hints = hints_of(thing)
    return {name: shaped(hints.get(name), value) for name, value in values.items()}


def shaped(hint: Any, value: Any) -> Any:
    """A value of JSON as a hint says: members of Enums, dataclasses, tuples; also inside of others."""
    kind, inner = getattr(hint, "__origin__", None), list(getattr(hint, "__args__", ()))
    if kind is None and isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    if value is not None and (kind is typing.Union or type(hint).__name__ == "UnionType"):
        return _first(inner, value)
    if isinstance(value, list):
        return _listed(tuple in (kind, hint), inner, value)
    if isinstance(value, dict) and kind is None and dataclasses.is_dataclass(hint):
        return typing.cast("Any", hint)(**meant(hint, value))
    if isinstance(value, dict) and len(inner) == 2:
        return {name: shaped(inner[1], item) for name, item in value.items()}
    return value


def _listed(is_tuple: bool, inner: list[Any], value: list[Any]) -> Any:
    """The items of a list, each as its hint says."""
    if is_tuple and inner[1:] != [...]:
        return tuple(shaped(part, item) for part, item in zip([*inner, *[None] * len(value)], value))
    items = [shaped(inner[0] if inner else None, item) for item in value]
    return tuple(items) if is_tuple else items


def _first(hints: Any, value: Any) -> Any:
    """A value as the first of some hints that changes it, or as it is."""
    for hint in hints:
        try:
            changed = shaped(hint, value)
        except (TypeError, ValueError):
            continue
        if type(changed) is not type(value):
            return changed
    return value


async def _wait(result: Any) -> Any:
    return await result


def fail(out: Out, name: str, error: BaseException, trace: types.TracebackType | None) -> None:
    """Say what was raised, and in which line of the file."""
    steps = [step for step in traceback.extract_tb(trace) if step.filename == name]
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    out.say({"raised": text, "line": steps[-1].lineno if steps else 0})


if __name__ == "__main__":
    main()
