"""A user's own functions as tools, from the spec to the record."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import ModelServer, says

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.flow.lab import Lab

TOOL = '''
import asyncio, os, sys
open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "was_imported"), "w").close()

def weather(city: str, days: int = 1, tags: list[str] | None = None) -> dict:
    """Weather of a city.

    Args:
        city: which one.
    """
    print("this is printed"); sys.stderr.write("and this")
    os.system("echo and this too")
    return {"city": city, "days": days, "tags": tags, "in": os.getcwd()}

async def slow(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"

def breaks(how: str) -> object:
    """Break."""
    if how == "raise":
        raise ValueError("odd " + how)
    if how == "exit":
        sys.exit("no such page")
    if how == "end":
        os._exit(3)
    if how == "error":
        return {"error": "it does not work", "detail": 1}
    if how == "set":
        return {1, 2}
    if how == "nan":
        return float("nan")
    return "x" * 300_000

def where() -> str:
    """Where it runs."""
    return os.environ.get("ONLY_ON_THE_HOST", "no such variable")
'''


def calls(*made: tuple[str, Any]) -> dict[str, Any]:
    turns = [
        {"reasoning": "r", "calls": [{"tool": name, "arguments": arguments}]} for name, arguments in made
    ]
    return {"conversations": [{"turns": [*turns, {"reasoning": "r", "text": "done"}]}]}


def prepare(lab: Lab, *custom: Any, made: dict[str, Any]) -> None:
    (lab.folder / "my_tool.py").write_text(TOOL)
    lab.write_prompts("do it")
    lab.write_tape(made)
    lab.spec["tools"] = {"custom": list(custom)}


def results(lab: Lab) -> list[dict[str, Any]]:
    (line,) = lab.lines()
    return [json.loads(turn["value"]) for turn in line["conversations"] if turn["from"] == "tool"]


def test_a_typed_function_becomes_a_tool_that_runs_in_the_sandbox(lab: Lab) -> None:
    made = calls(("weather", {"city": "Rome", "days": "2"}), ("slow", {"seconds": 0.1}), ("weather", {}))
    prepare(lab, "my_tool.py:weather", "my_tool.py:slow", made=made)
    result = lab.run()
    assert result.code == 0, result.err
    assert results(lab) == [
        {"city": "Rome", "days": 2, "tags": None, "in": "/workspace"},
        {"result": "waited"},
        {"error": 'weather: missing parameter "city" (text)'},
    ]
    (line,) = lab.lines()
    assert line["tool_stats"]["weather"] == {"count": 2, "success": 1, "failure": 1}
    assert list(line["tool_stats"])[-2:] == ["weather", "slow"]
    assert line["tool_error_counts"]["weather"] == 1
    offered = {
        t["function"]["name"]: t["function"] for t in json.loads((lab.run_dir / "tools.json").read_text())
    }
    assert offered["weather"]["description"] == "Weather of a city."
    assert offered["weather"]["parameters"]["required"] == ["city"]
    assert offered["weather"]["parameters"]["properties"]["city"]["description"] == "which one."
    assert not (lab.folder / "was_imported").exists()
    assert "weather" in (lab.run_dir / "README.md").read_text()
    lab.assert_sound()


def test_a_function_that_breaks_is_answered_and_counts_as_failed(lab: Lab) -> None:
    hows = ("raise", "exit", "error", "set", "nan", "long", "end")
    prepare(lab, "my_tool.py:breaks", made=calls(*[("breaks", {"how": how}) for how in hows]))
    result = lab.run()
    assert result.code == 0, result.err
    errors = [answer["error"] for answer in results(lab)]
    assert errors[0] == "ValueError: odd raise (my_tool.py, line 23)"
    assert errors[1] == "SystemExit: no such page (my_tool.py, line 25)"
    assert errors[2] == "it does not work"
    assert "not JSON serializable" in errors[3]
    assert "not JSON compliant" in errors[4]
    assert "more than 200000" in errors[5]
    assert "ended without a result" in errors[6]
    assert lab.lines()[0]["tool_stats"]["breaks"] == {"count": 7, "success": 0, "failure": 7}


def test_host_code_wants_leave_and_then_runs_outside(lab: Lab) -> None:
    lab.env["ONLY_ON_THE_HOST"] = "seen"
    host = {"tool": "my_tool.py:where", "host": True}
    prepare(lab, host, made=calls(("where", {})))
    for words in ((), ("--dry-run",)):
        refused = lab.run(*words)
        assert refused.code == 2
        assert "wants to run outside the sandbox" in refused.err
        assert "--allow-host-code" in refused.err
    assert not (lab.folder / "was_imported").exists()
    assert not lab.run_dir.exists()
    result = lab.run("--allow-host-code")
    assert result.code == 0, result.err
    assert results(lab) == [{"result": "seen"}]
    assert (lab.folder / "was_imported").exists()


def test_keys_of_the_run_are_in_no_result_of_host_code(lab: Lab, server: ModelServer) -> None:
    lab.env["ONLY_ON_THE_HOST"] = "sk-test-12345678"
    prepare(lab, {"tool": "my_tool.py:where", "host": True}, made=calls())
    lab.spec["model"] = {"name": "m", "base_url": server.url, "api_key_env": "ONLY_ON_THE_HOST"}
    server.script("do it", says(calls=[("where", {})], reasoning="r"), says("done", reasoning="r"))
    result = lab.run("--allow-host-code")
    assert result.code == 0, result.err
    assert results(lab) == [{"result": "[redacted]"}]
    assert server.requests[0].headers["authorization"] == "Bearer sk-test-12345678"


DEEP = '''
def deep(n: int, x: object = None) -> object:
    """Deep."""
    found = []
    for _ in range(n):
        found = [found]
    return found
'''


def test_what_is_nested_too_deeply_is_an_answer(lab: Lab, server: ModelServer) -> None:
    lab.env["THE_KEY"] = "sk-test-12345678"
    prepare(lab, "deep.py:deep", made=calls())
    (lab.folder / "deep.py").write_text(DEEP)
    lab.spec["model"] = {"name": "m", "base_url": server.url, "api_key_env": "THE_KEY"}
    nested = '{"n": 1, "x": ' + "[" * 900 + "]" * 900 + "}"
    made = says(calls=[("deep", {"n": 600}), ("deep", nested), ("deep", {"n": 2})], reasoning="r")
    server.script("do it", made, says("done", reasoning="r"))
    result = lab.run()
    assert result.code == 0, result.err
    *deep, flat = results(lab)
    assert all("nested too deeply" in answer["error"] for answer in deep), deep
    assert flat == {"result": [[[]]]}


def test_validate_and_dry_run_execute_nothing(lab: Lab) -> None:
    prepare(lab, "my_tool.py:weather", {"tool": "my_tool.py:where", "host": True}, made=calls())
    assert lab.call("validate", str(lab.write_spec())).code == 0
    assert lab.run("--dry-run", "--allow-host-code").code == 0
    assert not (lab.folder / "was_imported").exists()


MISTAKES = {
    "weahter": 'there is no function "weahter" at its top level; did you mean "weather"?',
    "untyped": ':2: untyped: parameter "x" has no type hint',
    "undocumented": ":6: undocumented: has no docstring",
    "starred": ":9: starred: *args cannot be offered",
    "todo": ":13: todo: is the name of a built-in tool",
    "odd": ':17: odd: parameter "x" has the type set[int]',
    "not-a-name": "is no name of a function",
}


@pytest.mark.parametrize("function", MISTAKES)
def test_every_mistake_is_told_with_file_and_line(lab: Lab, function: str) -> None:
    prepare(lab, f"bad.py:{function}", made=calls())
    (lab.folder / "bad.py").write_text(
        '''
def untyped(x):
    """Say."""


def undocumented(x: int): pass


def starred(*args: int):
    """Say."""


def todo():
    """Say."""


def odd(x: set[int]):
    """Say."""


def weather():
    """Say."""
'''
    )
    found = lab.call("validate", str(lab.write_spec()))
    assert found.code == 2
    assert MISTAKES[function] in found.err
    assert "spec.yaml:" in found.err
    assert "tools.custom[0]" in found.err


@pytest.mark.parametrize(
    ("custom", "text"),
    [
        ("my_tool.py", "must be file.py:function"),
        ("none.py:weather", "does not exist"),
        ("broken.py:weather", "broken.py:2: is no Python"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(lab: Lab, custom: str, text: str) -> None:
    prepare(lab, custom, made=calls())
    (lab.folder / "broken.py").write_text("x = 1\ndef weather(:\n")
    found = lab.call("validate", str(lab.write_spec()))
    assert (found.code, text in found.err) == (2, True), found.err


def test_two_of_one_name_are_refused(lab: Lab) -> None:
    prepare(lab, "my_tool.py:weather", {"tool": "my_tool.py:weather"}, made=calls())
    assert "there is an own tool weather already" in lab.call("validate", str(lab.write_spec())).err


def test_content_of_the_file_is_part_of_the_work(lab: Lab) -> None:
    prepare(lab, "my_tool.py:weather", made=calls(("weather", {"city": "Rome"})))
    assert lab.run().code == 0
    lab.write_prompts("do it", "and this")
    (lab.folder / "my_tool.py").write_text(TOOL + "\n# changed\n")
    refused = lab.run()
    assert refused.code == 2
    assert "tools.custom.weather" in refused.err
    lab.spec["tools"]["custom"].append("my_tool.py:slow")
    assert lab.run("--accept-spec-change").code == 0
    first, second = lab.lines()
    assert list(first["tool_stats"]) == list(second["tool_stats"])
    assert "slow" in first["tool_stats"]
    lab.assert_sound()


def test_effective_spec_of_the_run_directory_can_be_run_again(lab: Lab) -> None:
    prepare(lab, "my_tool.py:weather", made=calls(("weather", {"city": "Rome"})))
    assert lab.run().code == 0
    assert lab.call("run", str(lab.run_dir / "spec.yaml")).code == 0


SHAPED = '''
import enum, typing
from dataclasses import dataclass, field

Unit = typing.Literal["celsius", "fahrenheit"]

class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"

@dataclass
class Place:
    city: str
    colours: "list[Colour]" = field(default_factory=list)

def shaped(
    place: Place, unit: Unit, colour: typing.Optional[Colour] = None, pair: "tuple[int, ...]" = ()
) -> dict:
    """Say what came."""
    assert all(isinstance(each, Colour) for each in place.colours)
    hint = shaped.__annotations__["place"]
    return {"place": repr(place), "unit": unit, "colour": repr(colour), "pair": repr(pair), "hint": str(hint)}
'''


def test_names_of_the_file_are_types_and_arrive_as_such(lab: Lab) -> None:
    place = {"city": "Rome", "colours": ["red"]}
    made = calls(
        ("shaped", {"place": place, "unit": "celsius", "colour": "blue", "pair": ["1", 2]}),
        ("shaped", {"place": {"city": "Oslo"}, "unit": "celsius"}),
        ("shaped", {"place": {"town": "Oslo"}, "unit": "kelvin", "colour": "green"}),
    )
    prepare(lab, "my_tool.py:shaped", made=made)
    (lab.folder / "my_tool.py").write_text(SHAPED)
    result = lab.run()
    assert result.code == 0, result.err
    first, second, third = results(lab)
    assert first == {
        "place": "Place(city='Rome', colours=[<Colour.RED: 'red'>])",
        "unit": "celsius",
        "colour": "<Colour.BLUE: 'blue'>",
        "pair": "(1, 2)",
        "hint": "<class 'my_tool.Place'>",  # the runner's own __future__ imports are not the file's
    }
    assert (second["colour"], second["pair"]) == ("None", "()")
    for part in ('unknown parameter "place.town"', 'missing parameter "place.city"', '"unit" must be one of'):
        assert part in third["error"]


WAITING = '''
import os, time
def wait() -> str:
    """Wait."""
    open("began", "w").write(str(os.getpid()))
    time.sleep(600)
    return ""
'''


def test_code_on_the_host_ends_with_a_run_that_is_killed(lab: Lab) -> None:
    prepare(lab, {"tool": "my_tool.py:wait", "host": True}, made=calls(("wait", {})))
    (lab.folder / "my_tool.py").write_text(WAITING)
    run = lab.start("--allow-host-code")
    began = lab.folder / "began"
    _until(lambda: began.exists() and began.read_text() != "")
    run.send_signal(signal.SIGKILL)
    run.communicate(timeout=60)
    pid = int(began.read_text())
    _until(lambda: not Path(f"/proc/{pid}").exists() or b") Z" in Path(f"/proc/{pid}/stat").read_bytes())


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
