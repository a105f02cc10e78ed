"""The Sandbox contract, over every backend that works here: what a call does."""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING

import pytest

from hermes_run.core.text import clean_bytes, restore_bytes
from hermes_run.errors import ToolError
from tests.contracts.sandboxes import sh, text, within
from tests.contracts.shell_commands import COMMANDS

if TYPE_CHECKING:
    from hermes_run.core.contracts import ExecResult, Sandbox


# ---------------------------------------------------------------- like bash -c


_TRIES = 3
"""Some commands race with their own background children, on a busy machine."""


def _comparable(result: ExecResult) -> tuple[bytes, int]:
    """Without what names the way in (`-c:`, `eval:`), line numbers of messages and process ids."""
    output = re.sub(rb"(?<=bash: )(?:-c: |eval: )?line \d+", b"line", result.output)
    return re.sub(rb"line: +\d+ (?=[A-Z])", b"line: ", output), result.exit_code


@pytest.mark.parametrize("keep_state", [pytest.param(False, marks=pytest.mark.slow), True])
def test_commands_do_what_they_do_under_bash(name: str, keep_state: bool) -> None:
    # `set -v` shows the state being kept: the one thing that is seen of it.
    commands = {title: command for title, command in COMMANDS.items() if not keep_state or title != "set -v"}
    assert len(commands) > 200

    async def work(box: Sandbox) -> None:
        if box.info.shell != "bash":
            pytest.skip("this sandbox has no bash")
        wrong = {}
        first = await text(box, "export -p")
        start_over = f"for v in $(compgen -e); do unset -v $v; done\n{first}\ncd {box.info.cwd}"
        for title, command in commands.items():
            for _ in range(_TRIES):
                quoted = "'" + command.replace("'", "'\\''") + "'"
                expected = _comparable(await sh(box, f"exec bash -c {quoted}", workdir=box.info.cwd))
                result = _comparable(await sh(box, command, workdir=box.info.cwd, keep_state=keep_state))
                if keep_state:
                    await sh(box, start_over, keep_state=True)
                if result == expected:
                    break
            else:
                wrong[title] = (result, expected)
        assert wrong == {}

    within(name, work)


def test_output_has_stdout_and_stderr_in_the_order_written(name: str) -> None:
    async def work(box: Sandbox) -> None:
        command = "for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done"
        assert (await text(box, command)).split() == [f"{kind}{i}" for i in range(1, 6) for kind in "oe"]

    within(name, work)


def test_stdin_is_what_was_given_and_then_ends(name: str) -> None:
    big = os.urandom(10_000_000)

    async def work(box: Sandbox) -> None:
        assert (await sh(box, "cat", stdin=b"a\0b\xff\n")).output == b"a\0b\xff\n"
        assert (await sh(box, "cat | md5sum; echo end", stdin=big, timeout_s=60)).output.endswith(b"end\n")
        digest = hashlib.md5(big).hexdigest().encode()
        assert (await sh(box, "md5sum", stdin=big, timeout_s=60)).output == digest + b"  -\n"
        assert (await sh(box, "head -c 3", stdin=big)).output == big[:3]
        assert (await sh(box, "true", stdin=big)).exit_code == 0
        assert (await sh(box, "read a; read b; echo $b$a", stdin=b"1\n2\n")).output == b"21\n"
        assert (await sh(box, "cat")).output == b""

    within(name, work)


def test_binary_output_comes_back_as_it_is(name: str) -> None:
    async def work(box: Sandbox) -> None:
        every = bytes(range(256)) * 300
        assert (await sh(box, "cat", stdin=every)).output == every
        assert (await sh(box, "printf 'caf\\351\\000\\r\\033[1m'")).output == b"caf\xe9\0\r\x1b[1m"

    within(name, work)


def test_command_of_a_megabyte_runs(name: str) -> None:
    async def work(box: Sandbox) -> None:
        lines = "\n".join(f'line {number} it\'s "quoted" $HOME `no` \\' for number in range(30_000))
        result = await sh(box, f"cat <<'END_OF_IT' | md5sum\n{lines}\nEND_OF_IT")
        assert result.output.split()[0].decode() == hashlib.md5(f"{lines}\n".encode()).hexdigest()
        own = await sh(box, f"[ $$ -gt 1 ] && wc -c <<'END_OF_IT'\n{lines}\nEND_OF_IT")
        assert own.output.strip() == str(len(lines) + 1).encode()

    within(name, work)


def test_command_with_nul_is_refused_with_a_reason(name: str) -> None:
    async def work(box: Sandbox) -> None:
        with pytest.raises(ToolError, match="NUL"):
            await sh(box, "echo a\0b")
        assert await text(box, "echo still here") == "still here\n"

    within(name, work)


def test_names_that_are_not_text_survive_the_round_trip(name: str) -> None:
    async def work(box: Sandbox) -> None:
        await sh(box, "printf x > \"$(printf 'caf\\351')\"")
        listed = clean_bytes((await sh(box, "printf '%s' *")).output)
        assert restore_bytes(listed) == b"caf\xe9"
        assert await text(box, f"cat '{listed}'") == "x"

    within(name, work)


# ---------------------------------------------------------------- state


def test_directory_and_exported_variables_carry_over(name: str) -> None:
    async def work(box: Sandbox) -> None:
        start = box.info.cwd
        assert (await text(box, "pwd")).strip() == start
        await sh(
            box, "mkdir 'a b'; cd 'a b'; export A=\"x y\n'q' \\$HOME\" B=☃; C=no; f() { :; }", keep_state=True
        )
        shown = await text(box, 'pwd; printf \'%s|\' "$A" "$B" "$C"; type f 2>&1 | head -1', keep_state=True)
        assert shown.startswith(f"{start}/a b\nx y\n'q' $HOME|☃||")
        assert "not found" in shown
        await sh(box, "unset A PATH; cd ..", keep_state=True)
        assert await text(box, 'echo "[${A-unset}][${PATH-unset}]"; pwd') == f"[unset][unset]\n{start}\n"

    within(name, work)


@pytest.mark.parametrize(
    "ending",
    [
        "exit 3",
        "set -e; false; echo no",
        "set -euo pipefail; echo $nowhere",
        "trap 'echo bye' EXIT; exit 1",
        "trap 'echo bye' EXIT",
        "trap 'cd /' EXIT INT; trap - EXIT; exit",
        "exec >/dev/null 2>&1 <&-",
        "exec >&- 2>&-; exit 2",
        "kill -0 $$; exit 4",
        "set -C; exit",
        "set -x; exit",
        "cd() { echo mine; }; pwd() { echo mine; }; export() { echo mine; }; printf() { echo mine; }",
        "(cd /; exit 3)",
        "false",
    ],
)
def test_state_is_kept_however_the_command_ends(name: str, ending: str) -> None:
    async def work(box: Sandbox) -> None:
        if box.info.shell != "bash":
            pytest.skip("a plain sh keeps no state of a command with its own EXIT trap")
        await sh(box, f"mkdir d; cd d; export V=kept\n{ending}", keep_state=True)
        assert (await text(box, "echo $V ${PWD##*/}", keep_state=True)) == "kept d\n"

    within(name, work)


def test_state_is_left_alone_without_keep_state(name: str) -> None:
    async def work(box: Sandbox) -> None:
        await sh(box, "cd /; export V=1; unset HOME")
        assert await text(box, 'echo "$PWD ${V-unset} ${HOME:+home}"') == f"{box.info.cwd} unset home\n"

    within(name, work)


def test_cd_dash_and_readonly_variables_carry_over_as_plain_state(name: str) -> None:
    async def work(box: Sandbox) -> None:
        await sh(box, "cd /usr; cd /; readonly R=1; export R", keep_state=True)
        assert await text(box, "cd - >/dev/null; pwd; R=2; echo $R", keep_state=True) == "/usr\n2\n"

    within(name, work)


def test_vanished_directory_is_replaced_by_the_first_one(name: str) -> None:
    async def work(box: Sandbox) -> None:
        await sh(box, "mkdir gone; cd gone; rmdir ../gone", keep_state=True)
        result = await sh(box, "pwd; echo ok", keep_state=True)
        assert result.output.decode() == f"{box.info.cwd}\nok\n"

    within(name, work)


def test_directory_that_cannot_be_entered_any_more_is_not_spoken_of(name: str) -> None:
    """Only by commands that want it: what the shell does before them is none of theirs."""

    async def work(box: Sandbox) -> None:
        await sh(
            box,
            'mkdir -p a/b; cd a/b; rm -rf ../../a; chmod 0 "$(dirname "$OLDPWD")/${OLDPWD##*/}"',
            keep_state=True,
        )
        assert (await text(box, "echo ok; export V=1", keep_state=True)) == "ok\n"
        assert (await text(box, "echo $V")) == "1\n"

    within(name, work)


def test_workdir_counts_from_the_kept_directory_for_this_call_only(name: str) -> None:
    async def work(box: Sandbox) -> None:
        start = box.info.cwd
        await sh(box, "mkdir -p a/b ./-x 'q\"'\\''$'; cd a", keep_state=True)
        assert await text(box, "pwd", workdir="b") == f"{start}/a/b\n"
        assert await text(box, "pwd", workdir="../-x") == f"{start}/-x\n"
        assert await text(box, "pwd", workdir=f"{start}/q\"'$") == f"{start}/q\"'$\n"
        assert await text(box, "pwd") == f"{start}/a\n"
        await sh(box, "true", workdir="b", keep_state=True)
        assert await text(box, "pwd") == f"{start}/a/b\n"
        await sh(box, "cd ..; export CDPATH=/usr", keep_state=True)
        assert await text(box, "pwd", workdir="-x") != "/usr\n"
        missing = await sh(box, "echo never", workdir="no such folder")
        assert missing.exit_code != 0
        assert b"no such folder" in missing.output
        assert b"never" not in missing.output

    within(name, work)


def test_interrupted_state_does_not_spoil_the_next_call(name: str) -> None:
    async def work(box: Sandbox) -> None:
        await sh(box, "export V=before", keep_state=True)
        result = await sh(box, "export V=after; sleep 60", keep_state=True, timeout_s=0.3)
        assert result.timed_out
        assert await text(box, "echo $V", keep_state=True) == "before\n"
        await sh(box, "export V=lost; sh -c 'kill -9 $PPID'", keep_state=True)
        assert await text(box, "echo $V", keep_state=True) == "before\n"

    within(name, work)


def test_huge_variables_carry_over_or_are_dropped_but_break_nothing(name: str) -> None:
    async def work(box: Sandbox) -> None:
        await sh(box, "export V=$(head -c 100000 /dev/zero | tr '\\0' v)", keep_state=True)
        assert await text(box, "echo ${#V}", keep_state=True) == "100000\n"
        await sh(box, "x=$V$V$V$V$V$V$V$V$V$V; export W=$x$x$x$x$x$x$x$x$x$x", keep_state=True)
        assert await text(box, "echo ok") == "ok\n"

    within(name, work)
