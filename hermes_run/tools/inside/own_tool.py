"""Calls one function of a file: a frame on stdin says which, the result goes out after a mark.

What the function prints, and what it reads, goes nowhere.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import traceback
import types
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
        sys.path.insert(0, order["folder"])
    module = types.ModuleType(order["module"])
    module.__file__ = order["file"]
    sys.modules[order["module"]] = module
    exec(compile(order["source"], order["name"], "exec"), module.__dict__)  # noqa: S102 - what this is for
    result = getattr(module, order["function"])(**order["arguments"])
    if inspect.isawaitable(result):
        result = asyncio.run(_wait(result))
    out.say({"returned": result})


async def _wait(result: Any) -> Any:
    return await result


def fail(out: Out, name: str, error: BaseException, trace: types.TracebackType | None) -> None:
    """Say what was raised, and in which line of the file."""
    steps = [step for step in traceback.extract_tb(trace) if step.filename == name]
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    out.say({"raised": text, "line": steps[-1].lineno if steps else 0})


if __name__ == "__main__":
    main()
