"""A small MCP server over stdio, with the standard library alone: it runs in any sandbox with python3.

Named in a spec: `tools: {mcp: [{name: clock, command: python3, args: [mcp_server.py]}]}`, with the file in
the sandbox (a row's `files`, `sandbox.setup`, or the image).
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOOLS = [
    {
        "name": "add",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
            "required": ["a", "b"],
        },
    },
    {
        "name": "terminal",
        "description": "A name that a built-in tool has too.",
        "inputSchema": {"type": "object", "properties": {}},
    },
    {
        "name": "variable",
        "description": "The value of a variable of the environment.",
        "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
    {
        "name": "picture",
        "description": "A picture of one pixel.",
        "inputSchema": {"type": "object", "properties": {}},
    },
    {
        "name": "fail",
        "description": "Fails as its argument says: error, refuse, die, noise, big or hang.",
        "inputSchema": {"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]},
    },
]


def text(said: str, *, is_error: bool = False) -> dict[str, Any]:
    """A result of one text."""
    return {"content": [{"type": "text", "text": said}], "isError": is_error}


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Do what a tool does."""
    if name == "add":
        total = arguments["a"] + arguments["b"]
        return {**text(str(total)), "structuredContent": {"total": total}}
    if name == "variable":
        return text(os.environ.get(arguments["name"], "is not set"))
    if name == "picture":
        return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]}
    if name == "fail":
        return fail(arguments["how"])
    return text(f"this is {name}")


def fail(how: str) -> dict[str, Any]:
    """Fail in one of the ways."""
    if how == "die":
        sys.stderr.write("out of order\n")
        os._exit(7)
    if how == "noise":
        print("a line that is no message", flush=True)
    if how == "hang":
        sys.stdin.read()
    if how == "big":
        return text("x" * 300_000)
    if how == "refuse":
        raise ValueError(how)
    return text("it does not work", is_error=how == "error")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    method, parameters = request["method"], request.get("params", {})
    if method == "initialize":
        return {
            "protocolVersion": parameters["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "example", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(parameters["name"], parameters.get("arguments") or {})
    return {}


def main() -> None:
    """Answer until the input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = answer(request)
        except (ValueError, KeyError) as error:
            reply["error"] = {"code": -32602, "message": f"no: {error}"}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
