"""execute_code: scripts in a real sandbox that call the other tools."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.tools import code as code_tool
from tests.tools.place import OtherShell

if TYPE_CHECKING:
    from hermes_run.core.answers import InnerCall
    from hermes_run.core.contracts import ExecResult, Sandbox
    from tests.tools.place import Place


class WithoutPython(OtherShell):
    """A sandbox in which there is no python3."""

    def __init__(self, inner: Sandbox) -> None:
        super().__init__(inner, "bash")

    async def exec(self, command: str, **options: Any) -> ExecResult:
        hidden, options["stdin"] = "no_python3_here", options.get("stdin", b"")
        options["stdin"] = options["stdin"].replace(b"python3", hidden.encode())
        return await super().exec(command.replace("python3", hidden), **options)


def run(place: Place, code: str) -> dict[str, Any]:
    return place.call("execute_code", code=code)


def inner(place: Place) -> list[InnerCall]:
    return place.kit.take_aside().calls


def test_script_prints_and_the_output_comes_back(place: Place) -> None:
    assert run(place, "import sys\nprint('to stdout', flush=True)\nprint('to stderr', file=sys.stderr)") == {
        "status": "success",
        "output": "to stdout\nto stderr\n",
        "exit_code": 0,
        "tool_calls_made": 0,
        "duration_seconds": 0,
        "error": None,
    }


@pytest.mark.parametrize("kind", ["bash", pytest.param("sh", marks=pytest.mark.slow), "local"])
def test_other_tools_are_functions_that_return_dicts(shared: Any, kind: str) -> None:
    place = shared(kind)
    result = run(
        place,
        """
from hermes_tools import read_file, terminal, write_file
print(write_file("a/b.txt", content="one\\ntwo\\n")["bytes_written"])
print(read_file(path="a/b.txt")["content"])
answer = terminal("exit 3")
print(answer["exit_code"], answer["error"])
""",
    )
    assert result["output"] == "8\n1|one\n2|two\n3 None\n"
    assert result["tool_calls_made"] == 3
    assert [(c.name, c.failed) for c in inner(place)] == [
        ("write_file", False),
        ("read_file", False),
        ("terminal", False),
    ]
    assert place.get("a/b.txt") == b"one\ntwo\n"


def test_working_directory_is_that_of_the_terminal_and_its_modules_can_be_imported(place: Place) -> None:
    place.call("terminal", command="mkdir sub && cd sub && echo 'x = 5' >mine.py && export WORD=carried")
    result = run(place, "import mine, os\nprint(mine.x, os.path.basename(os.getcwd()), os.environ['WORD'])")
    assert result["output"] == "5 sub carried\n"


def test_exit_code_of_a_script_is_its_own_business(place: Place) -> None:
    result = run(place, "print('before')\nraise ValueError('odd')")
    assert (result["status"], result["exit_code"], result["error"]) == ("error", 1, None)
    assert result["output"].startswith("before\nTraceback")
    assert result["output"].endswith("ValueError: odd\n")
    assert run(place, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")["exit_code"] == 137


def test_invented_names_and_wrong_arguments_are_answered_as_in_the_loop(place: Place) -> None:
    result = run(
        place,
        """
from hermes_tools import no_such_tool, read_file
import hermes_tools
print(no_such_tool(x=1)["error"])
print(read_file(pth="x")["error"])
print(read_file(path="nowhere.txt")["error"])
print(hermes_tools.execute_code("1")["error"])
try:
    read_file("a", path="b")
except TypeError as error:
    print(error)
""",
    )
    lines = result["output"].splitlines()
    assert lines[0].startswith('there is no tool "no_such_tool". Tools: ')
    assert ", execute_code, " in lines[0]
    assert lines[1].startswith('read_file: unknown parameter "pth"')
    assert lines[2].startswith("there is no file nowhere.txt")
    assert lines[3].startswith("execute_code cannot call itself")
    assert lines[4] == "read_file() got path twice"
    assert [(c.name, c.failed, c.known) for c in inner(place)] == [
        ("no_such_tool", True, False),
        ("read_file", True, True),
        ("read_file", True, True),
        ("execute_code", True, True),
    ]


def test_fifty_calls_and_no_more(place: Place) -> None:
    result = run(
        place,
        "from hermes_tools import todo\nanswers = [todo() for _ in range(53)]\n"
        "print([i for i, a in enumerate(answers) if 'error' in a], answers[-1]['error'])",
    )
    assert result["output"].startswith("[50, 51, 52] a script may call tools 50 times")
    assert result["tool_calls_made"] == 50
    assert len(inner(place)) == 50


def test_threads_and_processes_of_a_script_take_turns(place: Place) -> None:
    result = run(
        place,
        """
import subprocess, sys, threading
from hermes_tools import terminal
found = []
def call(n):
    found.append(terminal(f"echo {n}")["output"])
threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
[t.start() for t in threads]
child = "from hermes_tools import terminal; print(terminal('echo child'))"
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout.count("child"))
[t.join() for t in threads]
print("".join(sorted(found)).split())
""",
    )
    assert result["output"] == "1\n['0', '1', '2', '3', '4', '5', '6', '7']\n"


def test_long_output_is_cut_in_its_middle(place: Place) -> None:
    result = run(place, "print('begin')\nfor i in range(100000): print('line', i)\nprint('end')")
    assert len(result["output"].encode()) <= 50_000
    assert result["output"].startswith("begin\nline 0\n")
    assert result["output"].endswith("line 99999\nend\n")
    assert "bytes left out here" in result["output"]


def test_bytes_and_large_texts_pass_both_ways(place: Place) -> None:
    place.put("odd.txt", b"caf\xe9\n")
    result = run(
        place,
        """
from hermes_tools import read_file, write_file
text = read_file("odd.txt")["content"].split("|", 1)[1]
print(text)
write_file("copy.txt", text + "\\n")
print(write_file("large.txt", "x" * 2_000_000)["bytes_written"])
print(write_file("larger.txt", "x" * 5_000_000)["error"])
""",
    )
    assert place.get("copy.txt") == b"caf\xe9\n"
    assert "\n2000000\nthe arguments are larger than" in result["output"]


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("shutil.rmtree(os.path.dirname(__file__)); print('gone')", "gone\n"),
        ("sys.stdout.buffer.write(b'a\\0b\\xff\\n')", "a\0b\U0010dcff\n"),
        ("sys.stdout.close(); sys.stderr.close(); os.closerange(0, 64)", ""),
        ("os.fork() or os._exit(0); print('parent')", "parent\n"),
        ("os.setsid(); print('detached')", ""),
        ("os.execvp('echo', ['echo', 'another program'])", "another program\n"),
    ],
)
def test_odd_scripts_end_and_are_answered(place: Place, code: str, output: str) -> None:
    result = run(place, f"import os, shutil, sys\n{code}")
    assert output in result["output"]
    assert run(place, "print(1)")["output"] == "1\n"


def test_script_reads_no_input(place: Place) -> None:
    assert "EOFError" in run(place, "input()")["output"]


def test_what_a_script_leaves_in_the_background_holds_nobody_up(place: Place) -> None:
    began = time.monotonic()
    result = run(place, "import subprocess\nsubprocess.Popen(['sleep', '97'])\nprint('done')")
    assert result["output"] == "done\n"
    assert time.monotonic() - began < 60


def alive(place: Place, seconds: str) -> bool:
    found = place.sh(
        'for p in /proc/[0-9]*; do tr "\\0" " " <$p/cmdline 2>/dev/null; echo; done; true'
    ).decode()
    return f"sleep {seconds} " in found


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        "subprocess.Popen(['sleep', '7213'], start_new_session=True)",
        "terminal('sleep 7213')",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); subprocess.run(['sleep', '7213'])",
    ],
)
def test_script_over_its_time_is_killed_with_all_it_started(
    place: Place, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(code_tool, "LIMIT_S", 1.5)
    answer = place.answer(
        "execute_code",
        json.dumps(
            {
                "code": "import signal, subprocess, time\nfrom hermes_tools import terminal\n"
                f"print('so far', flush=True)\n{how}\ntime.sleep(7213)"
            }
        ),
    )
    result = json.loads(answer.text)
    assert answer.failed
    assert (result["status"], result["exit_code"], result["output"]) == ("timeout", 124, "so far\n")
    assert result["error"].startswith("timed out after 1.5 s")
    assert not alive(place, "7213")
    assert run(place, "print(1)")["output"] == "1\n"


@pytest.mark.parametrize(
    "how",
    ["os.kill(os.getppid(), signal.SIGKILL)", "os.kill(-1, signal.SIGKILL)"],
)
def test_script_that_ends_what_it_runs_under_gets_an_error_and_the_tool_goes_on(
    own_place: Place, how: str
) -> None:
    assert "the script has ended what it ran under" in own_place.error(
        "execute_code", code=f"import os, signal, time\n{how}\ntime.sleep(2)"
    )
    assert run(own_place, "print(1)")["output"] == "1\n"


END = {"end": True, "timed_out": False, "exit_code": 0, "seconds": 0.0, "head": "", "tail": "", "omitted": 0}
OWN_WORDS = """
import json, os, socket
place = os.path.dirname(os.path.abspath(__file__))
def say(request):
    to = socket.socket(socket.AF_UNIX)
    to.connect(place + "/calls")
    to.sendall(b"%d\\n" % len(request) + request)
    answer = to.makefile("rb")
    return json.loads(answer.read(int(answer.readline())))
"""


@pytest.mark.parametrize(
    "request_",
    [
        b'{"end": true, "timed_out": false}',
        b"no JSON",
        b"[" * 5000,
        b'{"name": [1]}',
        b"5",
        b'{"a": 1}, "end": true',
    ],
)
def test_script_that_speaks_for_itself_is_answered(place: Place, request_: bytes) -> None:
    result = run(place, f"{OWN_WORDS}\nprint('error' in say({request_!r}))")
    assert (result["output"], result["exit_code"]) == ("True\n", 0)


@pytest.mark.parametrize(
    "message",
    [
        '{"end": true}',
        json.dumps({**END, "seconds": float("nan")}),
        json.dumps({**END, "omitted": -1}),
        "[1]",
        "{",
    ],
)
def test_script_that_speaks_for_what_it_runs_under_gets_an_error(place: Place, message: str) -> None:
    where = "os.path.dirname(os.path.abspath(__file__)) + '/from'"
    code = f"import os\nwith open({where}, 'w') as out:\n    out.write({message!r})\n"
    assert "ended what it ran under" in place.error("execute_code", code=code)
    assert run(place, "print(1)")["output"] == "1\n"


def test_sandbox_without_python_is_told_to_the_model(own_place: Place) -> None:
    own_place.use(WithoutPython(own_place.box))
    assert "no python3 in this sandbox" in own_place.error("execute_code", code="print(1)")


def test_empty_code_is_refused(place: Place) -> None:
    assert "code is empty" in place.error("execute_code", code=" \n")
