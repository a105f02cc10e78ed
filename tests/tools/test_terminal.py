"""terminal in real sandboxes: what carries over, what a timeout leaves, what of a long output is shown."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_run.tools.output import MAX_CHARS
from tests.tools.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable


def test_result_has_output_and_exit_code(any_shell: Place) -> None:
    assert any_shell.call("terminal", command="echo out; echo err >&2; exit 3") == {
        "output": "out\nerr\n",
        "exit_code": 3,
        "error": None,
    }
    assert any_shell.call("terminal", command="true") == {"output": "", "exit_code": 0, "error": None}
    assert any_shell.call("terminal", command="no_such_command_x")["exit_code"] == 127


def test_directory_and_exports_carry_over_and_the_rest_does_not(any_shell: Place) -> None:
    any_shell.call("terminal", command="mkdir a && cd a && export X='one two' && y=1 && f() { echo f; }")
    result = any_shell.call("terminal", command='basename "$PWD"; echo "$X:$y"; f')
    assert result["output"].startswith("a\none two:\n")
    assert result["exit_code"] == 127


def test_workdir_is_entered_first_or_the_command_does_not_run(own_shell: Place) -> None:
    own_shell.sh("mkdir -p -- '-a b/ü'")
    assert own_shell.call("terminal", command="pwd", workdir="-a b/ü")["output"].endswith("/-a b/ü\n")
    assert own_shell.call("terminal", command="pwd", workdir="/tmp")["output"] == "/tmp\n"
    error = own_shell.error("terminal", command="touch ran", workdir="/no/such")
    assert "cannot enter workdir /no/such" in error
    assert own_shell.call("terminal", command="ls ran; pwd")["output"].endswith("/tmp\n")
    assert own_shell.sh("[ -e /tmp/ran ] || echo none") == b"none\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"command": ""}, "command is empty"),
        ({"command": " \n\t"}, "command is empty"),
        ({"command": "echo a\0b"}, "NUL character"),
        ({"command": "ls", "workdir": "a\0"}, "NUL character"),
        ({"command": "ls", "timeout": 0}, "timeout must be more than 0 seconds, not 0"),
        ({"command": "ls", "timeout": -5}, "timeout must be more than 0 seconds"),
        ({"command": "ls", "timeout": "soon"}, 'parameter "timeout" must be a number'),
        ({"command": ["ls", "-l"]}, 'parameter "command" must be text, not a list'),
        ({"cmd": "ls"}, 'unknown parameter "cmd"'),
        ({"background": True}, 'missing parameter "command" (text)'),
    ],
)
def test_bad_arguments_are_refused(place: Place, arguments: dict[str, object], said: str) -> None:
    assert said in place.error("terminal", **arguments)


def test_numbers_and_flags_as_text_are_understood(place: Place) -> None:
    result = place.call("terminal", command="echo x", timeout="30", background="false")
    assert result["output"] == "x\n"
    assert place.call("terminal", command="echo y", timeout=100_000)["exit_code"] == 0


def test_timeout_says_so_and_keeps_the_output_so_far(any_shell: Place) -> None:
    begin = time.monotonic()
    answer = any_shell.answer(
        "terminal",
        json.dumps({"command": "echo begun; (sleep 61 &) ; setsid sleep 62 & sleep 63", "timeout": 1.5}),
    )
    assert time.monotonic() - begin < 1.5 + 2
    assert answer.failed
    assert json.loads(answer.text) == {
        "output": "begun\n",
        "exit_code": 124,
        "error": "timed out after 1.5 s",
    }
    ps = (
        "for p in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$p; echo; done 2>/dev/null | grep '^sleep 6[123]'; :"
    )
    assert any_shell.sh(ps) == b""
    assert any_shell.call("terminal", command="echo ok")["output"] == "ok\n"


@pytest.mark.slow
def test_twelve_timeouts_leave_the_sandbox_as_it_was(own_place: Place) -> None:
    stubborn = (
        "trap '' TERM; (trap '' TERM; sleep 600) & setsid sh -c 'trap \"\" TERM; sleep 600' & sleep 600"
    )
    for _ in range(12):
        begin = time.monotonic()
        assert "timed out after 1 s" in own_place.error("terminal", command=stubborn, timeout=1)
        assert time.monotonic() - begin < 1 + 2
    begin = time.monotonic()
    assert own_place.call("terminal", command="echo ok")["output"] == "ok\n"
    assert time.monotonic() - begin < 1
    assert int(own_place.sh("ls -d /proc/[0-9]* | wc -l")) < 8


def test_long_output_is_cut_and_the_whole_is_kept(own_shell: Place) -> None:
    result = own_shell.call(
        "terminal", command="i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo line $i; done; exit 5"
    )
    assert result["exit_code"] == 5
    output = result["output"]
    assert len(output) <= MAX_CHARS
    head, _, rest = output.partition("\n[... ")
    sentence, _, tail = rest.partition(" ...]\n")
    assert head.startswith("line 1\nline 2\n")
    assert tail.endswith("line 19999\nline 20000\n")
    assert len(tail) * 4 == pytest.approx(len(head) * 6, rel=0.02)
    omitted, _, path = sentence.partition(" bytes left out here; the whole output is in ")
    whole = own_shell.sh(f"cat '{path}'")
    assert len(head) + int(omitted) + len(tail) == len(whole)
    assert whole.count(b"\n") == 20_000
    shown = own_shell.call("read_file", path=path, offset=10_000, limit=1)
    assert shown["content"] == "10000|line 10000"


@pytest.mark.parametrize("letter", ["ä", "€", "😀"])
def test_cut_output_has_whole_characters_only(place: Place, letter: str) -> None:
    place.put("f", ("x" + letter * 60_000).encode())
    output = place.call("terminal", command="cat f")["output"]
    head, _, rest = output.partition("\n[... ")
    assert set(head[1:]) == {letter}
    assert set(rest.partition("...]\n")[2]) == {letter}


def test_what_is_no_text_stays_valid_and_can_be_traced_back(place: Place) -> None:
    from hermes_run.core.text import restore_bytes

    data = (
        bytes(range(1, 13)) + bytes(range(14, 27)) + bytes(range(28, 256)) + b"\0\xed\xa0\x80 \xe2\x80\xa8\n"
    )
    place.put("f", data.replace(b"\b", b""))
    answer = place.answer("terminal", json.dumps({"command": "cat f"}))
    answer.text.encode()
    assert "\n" not in answer.text
    assert restore_bytes(json.loads(answer.text)["output"]) == data.replace(b"\b", b"")


def test_colours_and_progress_bars_are_gone(place: Place) -> None:
    colours = r"printf '\033[1;31mred\033[0m \033]0;title\007text\n'"
    progress = r"for i in 1 2 3; do printf '\r%d0%%' $i; done; echo"
    assert place.call("terminal", command=f"{colours}; {progress}")["output"] == "red text\n30%\n"


def test_command_may_hold_anything_but_nul(place: Place) -> None:
    odd = "echo 'ä \U0001f600 \u2028'; cat <<'E'\n$x `y` \\\nE\necho \"it's\" # comment"
    assert place.call("terminal", command=odd)["output"] == "ä \U0001f600 \u2028\n$x `y` \\\nit's\n"
    assert place.call("terminal", command="printf '\udce9' | od -An -tx1")["output"].strip() == "e9"
    assert place.call("terminal", command="cd /tmp; export Y='\udce9'")["exit_code"] == 0
    assert place.call("terminal", command='printf %s "$Y" | od -An -tx1; pwd')["output"].split() == [
        "e9",
        "/tmp",
    ]
    assert place.call("terminal", command="echo '\ud83d\ude00'")["output"] == "\U0001f600\n"


def test_stdin_is_empty(place: Place) -> None:
    assert place.call("terminal", command="cat; read x; echo $?", timeout=5)["output"] == "1\n"


@pytest.mark.slow
def test_hundred_megabytes_are_cut_in_the_sandbox(own_place: Place) -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = own_place.call("terminal", command="head -c 104857600 /dev/zero | tr '\\0' x; exit 9")
    assert result["exit_code"] == 9
    assert len(result["output"]) <= MAX_CHARS
    assert "104808" in result["output"]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.fixture(scope="module")
def one_place() -> object:
    with Place() as place:
        yield place


@given(st.binary(max_size=60).filter(lambda data: b"\0" not in data))
@settings(max_examples=40)
def test_result_is_valid_json_whatever_is_printed(one_place: Place, data: bytes) -> None:
    octal = "".join(f"\\{byte:03o}" for byte in data)
    answer = one_place.answer("terminal", json.dumps({"command": f"printf '{octal}'"}))
    assert json.loads(answer.text)["exit_code"] == 0
    assert answer.text.encode()


@given(st.text(max_size=30))
@settings(max_examples=40)
def test_any_text_as_a_command_gets_an_answer(one_place: Place, text: str) -> None:
    answer = one_place.answer("terminal", json.dumps({"command": f": '{text}", "timeout": 10}))
    assert json.loads(answer.text)
    assert answer.text.encode()
    assert answer.valid


def test_equal_calls_give_equal_texts(shared: Callable[[str], Place]) -> None:
    texts = []
    for _ in range(2):
        place = shared("bash")
        texts.append(
            [
                place.answer(name, json.dumps(arguments)).text
                for name, arguments in (
                    ("terminal", {"command": "seq 1 30000"}),
                    ("write_file", {"path": "a.py", "content": "x = 1\n"}),
                    ("patch", {"path": "a.py", "old_string": "1", "new_string": "2"}),
                    ("search_files", {"pattern": "x"}),
                    ("read_file", {"path": "b.py"}),
                    ("terminal", {"command": ") ("}),
                )
            ]
        )
    texts = [[text.replace("/1.", "/N.") for text in some] for some in texts]
    assert texts[0][1:] == texts[1][1:]
