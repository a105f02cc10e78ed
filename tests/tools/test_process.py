"""Background commands in real sandboxes: started by terminal, looked after by process."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.tools.output import ASKED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.tools.place import Place


def start(place: Place, command: str, **more: Any) -> str:
    result = place.call("terminal", command=command, background=True, **more)
    assert result["exit_code"] == 0
    assert result["error"] is None
    assert isinstance(result["pid"], int)
    return str(result["session_id"])


def until(holds: Callable[[], bool]) -> None:
    """Wait for something to hold, for 10 s at most."""
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def wait(place: Place, session: str, timeout: float = 20) -> dict[str, Any]:
    result = place.call("process", action="wait", session_id=session, timeout=timeout)
    assert result["status"] == "exited", result
    return result


def test_life_of_a_background_command(any_shell: Place) -> None:
    session = start(any_shell, 'echo begun; read name; echo "hello $name"; cat; sleep 0.2; exit 7')
    assert session == "bg_1"
    until(lambda: b"begun" in any_shell.sh('cat "${TMPDIR:-/tmp}"/.hermes-*/bg_1/log'))
    assert any_shell.call("process", action="poll", session_id=session) == {
        "session_id": "bg_1",
        "status": "running",
        "exit_code": None,
        "output": "begun\n",
    }
    written = any_shell.call("process", action="submit", session_id=session, data="Jürgen")
    assert written == {"session_id": "bg_1", "bytes_written": 8}
    any_shell.call("process", action="write", session_id=session, data="more\nand more")
    any_shell.call("process", action="close", session_id=session)
    result = wait(any_shell, session)
    assert result["exit_code"] == 7
    assert result["output"] == "hello Jürgen\nmore\nand more"
    assert result["timed_out"] is False
    assert any_shell.call("process", action="log", session_id=session) == {
        "session_id": "bg_1",
        "status": "exited",
        "exit_code": 7,
        "output": "begun\nhello Jürgen\nmore\nand more",
        "offset": 1,
        "total_lines": 4,
        "next_offset": None,
    }
    assert any_shell.call("process", action="poll", session_id=session)["output"] == ""


def test_start_returns_at_once_and_other_calls_go_on(any_shell: Place) -> None:
    begin = time.monotonic()
    first = start(any_shell, "sleep 30; echo never")
    second = start(any_shell, "echo two")
    assert (first, second) == ("bg_1", "bg_2")
    assert any_shell.call("terminal", command="echo three")["output"] == "three\n"
    wait(any_shell, second)
    assert time.monotonic() - begin < 8
    assert any_shell.call("process", action="list") == {
        "sessions": [
            {"session_id": "bg_1", "command": "sleep 30; echo never", "status": "running", "exit_code": None},
            {"session_id": "bg_2", "command": "echo two", "status": "exited", "exit_code": 0},
        ]
    }
    any_shell.call("process", action="kill", session_id=first)


def test_it_starts_where_the_shell_is_with_what_it_exported(any_shell: Place) -> None:
    any_shell.call("terminal", command="mkdir sub; cd sub; export WHO='you & me'")
    session = start(any_shell, 'basename "$PWD"; echo "$WHO"; unset WHO; cd /')
    assert wait(any_shell, session)["output"] == "sub\nyou & me\n"
    assert any_shell.call("terminal", command='basename "$PWD"')["output"] == "sub\n"
    session = start(any_shell, "pwd", workdir="..")
    assert wait(any_shell, session)["output"] == any_shell.cwd + "\n"
    assert "cannot enter workdir" in any_shell.error(
        "terminal", command="pwd", background=True, workdir="/no/such"
    )


@pytest.mark.parametrize(
    "command",
    [
        "sleep 98171 & sleep 98172",
        "trap '' TERM HUP INT; sleep 98173; sleep 98174",
        "(setsid sleep 98175 &); setsid sh -c 'trap \"\" TERM; sleep 98176' & sleep 98177",
        "trap '' HUP; sh -c 'sleep 98178 & sleep 98179' >/dev/null 2>&1 & wait",
        "env -i sleep 98170",
    ],
)
def test_kill_ends_everything_it_started(any_shell: Place, command: str) -> None:
    mark = str(100_000 + os.getpid())  # on the host's own shell, other tests' processes are seen too
    command = command.replace("9817", mark)
    other = start(any_shell, "sleep 98166")
    session = start(any_shell, command)
    until(lambda: f"sleep {mark}".encode() in any_shell.sh(PS))
    result = any_shell.call("process", action="kill", session_id=session)
    assert result["status"] == "exited"
    assert result["exit_code"] in {137, 143}
    assert f"sleep {mark}".encode() not in any_shell.sh(PS)
    assert any_shell.call("process", action="poll", session_id=other)["status"] == "running"
    any_shell.call("process", action="kill", session_id=other)
    assert any_shell.call("process", action="kill", session_id=session)["status"] == "exited"


PS = (
    "for p in /proc/[0-9]*; do case $(sed 's/.*) //' $p/stat) in Z*) ;;"
    " *) tr '\\0' ' ' <$p/cmdline; echo;; esac; done 2>/dev/null | grep 'sleep [0-9]' | grep -v proc; :"
)


def test_exit_code_is_the_commands_own(any_shell: Place) -> None:
    codes = {
        "exit 0": 0,
        "exit 200": 200,
        "false": 1,
        "no_such_command_x": 127,
        "kill -9 $$": 137,
        "if then": 2,
        "exec sh -c 'exit 4'": 4,
        "kill -USR1 $$": 138,
    }
    sessions = {start(any_shell, command): code for command, code in codes.items()}
    for session, code in sessions.items():
        assert wait(any_shell, session)["exit_code"] in ({code, 1} if code == 2 else {code})


def test_wait_gives_up_after_its_time_and_the_command_goes_on(any_shell: Place) -> None:
    session = start(any_shell, "echo a; sleep 30")
    until(lambda: any_shell.call("process", action="log", session_id=session)["output"] == "a\n")
    begin = time.monotonic()
    result = any_shell.call("process", action="wait", session_id=session, timeout=1)
    assert 0.9 < time.monotonic() - begin < 4
    assert result == {
        "session_id": session,
        "status": "running",
        "exit_code": None,
        "output": "a\n",
        "timed_out": True,
    }
    assert any_shell.call("process", action="poll", session_id=session)["status"] == "running"
    any_shell.call("process", action="kill", session_id=session)


def test_input_that_cannot_be_given_is_an_error(any_shell: Place) -> None:
    session = start(any_shell, "cat; sleep 20")
    any_shell.call("process", action="close", session_id=session)
    any_shell.call("process", action="close", session_id=session)
    error = any_shell.error("process", action="write", session_id=session, data="x")
    assert error == "the input of bg_1 is closed"
    any_shell.call("process", action="kill", session_id=session)
    session = start(any_shell, "exit 3")
    wait(any_shell, session)
    error = any_shell.error("process", action="submit", session_id=session, data="x")
    assert "bg_2 cannot be written to: it has ended with exit code 3" in error


def test_input_is_given_byte_for_byte(place: Place) -> None:
    session = start(place, "od -An -tx1")
    place.call("process", action="write", session_id=session, data="\udce9\x00\r\n\u20ac")
    place.call("process", action="write", session_id=session, data="")
    place.call("process", action="close", session_id=session)
    assert wait(place, session)["output"].split() == ["e9", "00", "0d", "0a", "e2", "82", "ac"]


@pytest.mark.slow
def test_input_that_nobody_reads_ends_with_an_error(place: Place) -> None:
    session = start(place, "sleep 60")
    error = place.error("process", action="write", session_id=session, data="x" * 200_000)
    assert "has not read all its input within 10 s" in error
    assert place.call("process", action="poll", session_id=session)["status"] == "running"
    assert place.call("process", action="kill", session_id=session)["exit_code"] == 143


def test_log_is_read_in_pages_of_lines(any_shell: Place) -> None:
    session = start(any_shell, "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo line $i; done; printf end")
    wait(any_shell, session)
    last = any_shell.call("process", action="log", session_id=session)
    assert last["total_lines"] == 1001
    assert last["offset"] == 802
    assert last["output"].startswith("line 802\n")
    assert last["output"].endswith("line 1000\nend")
    page = any_shell.call("process", action="log", session_id=session, offset=10, limit=2)
    assert page["output"] == "line 10\nline 11\n"
    assert page["next_offset"] == 12
    assert any_shell.call("process", action="log", session_id=session, offset=5000)["output"] == ""


def test_much_output_is_bounded_and_says_so(place: Place) -> None:
    session = start(place, "i=0; while [ $i -lt 9000 ]; do i=$((i+1)); echo ääää $i; done")
    result = wait(place, session)
    assert len(result["output"].encode()) < 20_100
    assert result["output"].startswith("[... ")
    assert "bytes left out here; action log shows all ...]\n" in result["output"]
    assert result["output"].endswith("ääää 9000\n")
    assert all(char < "\U0010d7ff" for char in result["output"])
    lines = 0
    offset: int | None = 1
    while offset is not None:
        page = place.call("process", action="log", session_id=session, offset=offset, limit=2000)
        assert len(page["output"].encode()) <= ASKED_BYTES
        assert page["output"].startswith(f"ääää {offset}\n")
        lines += page["output"].count("\n")
        offset = page["next_offset"]
    assert lines == 9000


def test_character_that_is_half_there_comes_with_the_next_poll(place: Place) -> None:
    session = start(place, "printf 'a\\303'; read x; printf '\\244b'")
    until(lambda: place.call("process", action="log", session_id=session)["output"] == "a")
    assert place.call("process", action="poll", session_id=session)["output"] == "a"
    place.call("process", action="submit", session_id=session, data="")
    assert wait(place, session)["output"] == "äb"


def test_command_may_be_long_and_odd(any_shell: Place) -> None:
    command = "cat <<'E'\n" + "x" * 300_000 + " 'quoted' \"$y\" ä\nE\nprintf '\udce9' | od -An -tx1"
    session = start(any_shell, command)
    wait(any_shell, session)
    log = any_shell.call("process", action="log", session_id=session, offset=2)
    assert log["output"].strip() == "e9"
    assert len(any_shell.call("process", action="list")["sessions"][0]["command"]) == 201


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"action": "poll"}, "session_id is missing. Sessions: none"),
        ({"action": "kill", "session_id": "bg_9"}, 'there is no session "bg_9". Sessions: none'),
        ({"action": "start"}, 'parameter "action" must be one of "list", "poll"'),
        ({}, 'missing parameter "action"'),
        ({"action": "log", "session_id": "x", "offset": 0}, 'parameter "offset" must be at least 1'),
    ],
)
def test_bad_arguments_are_named(place: Place, arguments: dict[str, Any], said: str) -> None:
    assert said in place.error("process", **arguments)


def test_bad_arguments_for_a_session_are_named(place: Place) -> None:
    session = start(place, "sleep 20")
    assert "data is missing" in place.error("process", action="write", session_id=session)
    error = place.error("process", action="wait", session_id=session, timeout=0)
    assert "timeout must be more than 0" in error
    assert "Sessions: bg_1" in place.error("process", action="poll", session_id="bg_2")
    place.call("process", action="kill", session_id=session)


def test_messages_of_the_shell_are_the_same_in_every_run(any_shell: Place) -> None:
    session = start(any_shell, "no_such_command_x")
    output = wait(any_shell, session)["output"]
    assert "no_such_command_x" in output
    assert "hermes" not in output


def test_without_sessions_the_list_is_empty(place: Place) -> None:
    assert place.call("process", action="list") == {"sessions": []}


def test_command_that_was_lost_says_so(place: Place) -> None:
    pid = place.call("terminal", command="echo a; sleep 88", background=True)["pid"]
    until(lambda: place.call("process", action="log", session_id="bg_1")["output"] == "a\n")
    place.sh(f"kill -9 $(sed 's/.*) . //; s/ .*//' /proc/{pid}/stat) {pid}")  # its recorder, and itself
    poll = place.call("process", action="poll", session_id="bg_1")
    assert poll == {"session_id": "bg_1", "status": "lost", "exit_code": None, "output": "a\n"}


def test_sessions_do_not_see_each_other_across_rollouts(place: Place, own_place: Place) -> None:
    start(place, "sleep 5")
    assert own_place.call("process", action="list") == {"sessions": []}
    assert start(own_place, "echo x") == "bg_1"
    place.call("process", action="kill", session_id="bg_1")
