"""The tools of this rollout as functions: `from hermes_tools import terminal, read_file`.

Arguments are those of the tool, by name or in order. What comes back is the tool's result, a dict; a
call that failed has its reason under "error".
"""

from __future__ import annotations

import json
import os
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_FOLDER = os.path.dirname(os.path.abspath(__file__))

_LONGEST_NAME = 100  # of a socket, in bytes


def _connect() -> socket.socket:
    there = os.path.join(_FOLDER, "calls")
    connection = socket.socket(socket.AF_UNIX)
    if len(os.fsencode(there)) <= _LONGEST_NAME:
        connection.connect(there)
        return connection
    folder = os.open(_FOLDER, os.O_RDONLY)
    try:
        connection.connect(f"/proc/self/fd/{folder}/calls")
    finally:
        os.close(folder)
    return connection


def _call(name: str, arguments: dict[str, Any]) -> Any:
    request = json.dumps({"name": name, "arguments": arguments}).encode()
    with _connect() as connection, connection.makefile("rwb") as stream:
        stream.write(b"%d\n" % len(request) + request)
        stream.flush()
        line = stream.readline()
        if not line:
            raise RuntimeError("the time for this code is over: tools cannot be called any more")
        return json.loads(stream.read(int(line)))


def _function(name: str, tool: str, parameters: list[str], description: str) -> Callable[..., Any]:
    def call(*values: Any, **named: Any) -> Any:
        if len(values) > len(parameters):
            raise TypeError(f"{name}() takes {len(parameters)} arguments, not {len(values)}")
        given = dict(zip(parameters, values))
        twice = [key for key in named if key in given]
        if twice:
            raise TypeError(f"{name}() got {', '.join(twice)} twice")
        return _call(tool, {**given, **named})

    call.__name__ = call.__qualname__ = name
    call.__doc__ = description
    return call


_list = os.path.join(_FOLDER, "hermes_tools.json")
if os.path.exists(_list):
    with open(_list, encoding="utf-8") as _file:
        for _name, _tool in json.load(_file).items():
            globals()[_name] = _function(_name, _tool["tool"], _tool["parameters"], _tool["description"])


def __getattr__(name: str) -> Callable[..., Any]:
    """A name that is no tool: calling it is answered as any invented name is."""
    if name.startswith("_"):
        raise AttributeError(name)
    return lambda *_values, **named: _call(name, named)
