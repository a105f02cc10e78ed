"""The Sandbox contract, over every backend that works here; gated by what each says it cannot do."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import sys
import time
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.contracts import SandboxRequest
from hermes_run.core.registry import BACKENDS, load
from hermes_run.core.text import clean_bytes, restore_bytes
from hermes_run.errors import BackendMissing, SandboxError, ToolError
from hermes_run.spec.model import Settings
from tests.conftest import require
from tests.contracts.shell_commands import COMMANDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from hermes_run.core.contracts import Backend, ExecResult, Sandbox

_MARKED = {"bubblewrap", "docker", "singularity", "modal"}
_NAMES = [
    pytest.param(name, marks=[getattr(pytest.mark, name)] if name in _MARKED else [])
    for name, row in BACKENDS.items()
    if row.path
]
_MISSING: dict[str, tuple[str, ...] | str] = {}


def new_backend(name: str) -> Backend:
    made: Backend = load("sandbox backend", BACKENDS, name)("contract-run", Settings())
    return made


async def _what_is_missing(name: str) -> tuple[str, ...] | str:
    backend = new_backend(name)
    try:
        return await backend.check()
    except BackendMissing as error:
        return str(error)
    finally:
        await backend.aclose()


@pytest.fixture(params=_NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """A backend that works here."""
    backend: str = request.param
    if backend not in _MISSING:
        _MISSING[backend] = asyncio.run(_what_is_missing(backend))
    reason = _MISSING[backend]
    if isinstance(reason, str):
        require(backend, reason)
    return backend


def can(name: str, *promises: str) -> None:
    """Skip what a backend says that it cannot promise here."""
    lacking = sorted(set(promises) & set(_MISSING[name]))
    if lacking:
        pytest.skip(f"{name} cannot promise {', '.join(lacking)} here")


@asynccontextmanager
async def opened(name: str, **request: Any) -> AsyncIterator[Sandbox]:
    backend = new_backend(name)
    try:
        async with backend.open(SandboxRequest(run="contract-run", key="k#0", **request)) as box:
            yield box
    finally:
        await backend.aclose()


def within(name: str, work: Callable[[Sandbox], Awaitable[None]], **request: Any) -> None:
    """Run `work` in a fresh sandbox."""

    async def main() -> None:
        async with opened(name, **request) as box:
            await work(box)

    asyncio.run(main())


async def sh(box: Sandbox, command: str, **options: Any) -> ExecResult:
    return await box.exec(command, **{"timeout_s": 20.0, **options})


async def text(box: Sandbox, command: str, **options: Any) -> str:
    return (await sh(box, command, **options)).output.decode()


# ---------------------------------------------------------------- like bash -c


def _comparable(result: ExecResult) -> tuple[bytes, int]:
    """Without what names the way in (`-c:`, `eval:`), line numbers of messages and process ids."""
    output = re.sub(rb"(?<=bash: )(?:-c: |eval: )?line \d+", b"line", result.output)
    return re.sub(rb"line: +\d+ (?=[A-Z])", b"line: ", output), result.exit_code


@pytest.mark.parametrize("keep_state", [False, True])
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
            quoted = "'" + command.replace("'", "'\\''") + "'"
            expected = _comparable(await sh(box, f"exec bash -c {quoted}", workdir=box.info.cwd))
            result = _comparable(await sh(box, command, workdir=box.info.cwd, keep_state=keep_state))
            if keep_state:
                await sh(box, start_over, keep_state=True)
            if result != expected:
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
        import hashlib

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
        import hashlib

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
        listed = clean_bytes((await sh(box, "ls")).output).strip()
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
        await sh(box, "export V=lost; kill -9 $BASHPID", keep_state=True)
        assert await text(box, "echo $V", keep_state=True) == "before\n"

    within(name, work)


def test_huge_variables_carry_over_or_are_dropped_but_break_nothing(name: str) -> None:
    async def work(box: Sandbox) -> None:
        await sh(box, "export V=$(head -c 100000 /dev/zero | tr '\\0' v)", keep_state=True)
        assert await text(box, "echo ${#V}", keep_state=True) == "100000\n"
        await sh(box, "x=$V$V$V$V$V$V$V$V$V$V; export W=$x$x$x$x$x$x$x$x$x$x", keep_state=True)
        assert await text(box, "echo ok") == "ok\n"

    within(name, work)


# ---------------------------------------------------------------- ends of calls


@pytest.mark.parametrize(
    "command",
    [
        "kill -9 $PPID",
        "kill -9 -1",
        "kill 0",
        "kill -9 0",
        "eval 'kill -9 $'$; sleep 0.2",
        "kill -STOP $PPID; exit",
        "pkill -9 bash",
        "exec <&- >&- 2>&-; rm -rf /proc /run /dev /tmp/.[!.]* 2>/dev/null; exit 1",
        "echo 1 2 > /proc/$PPID/fd/1; echo 99 0 > /proc/$PPID/fd/0",
    ],
)
def test_what_kills_its_own_shell_ends_only_its_own_call(name: str, command: str) -> None:
    if name == "local":
        pytest.skip("without process isolation these reach the host")

    async def work(box: Sandbox) -> None:
        await sh(box, "cd /usr; export V=1; sleep 1234 >/dev/null 2>&1 &", keep_state=True)
        started = time.monotonic()
        await sh(box, command, timeout_s=1.5)
        assert time.monotonic() - started < 1.5 + 2
        assert await text(box, "pwd; echo $V", timeout_s=5) == "/usr\n1\n"

    within(name, work)


def test_late_output_never_reaches_the_next_call(name: str) -> None:
    async def work(box: Sandbox) -> None:
        first = await text(box, "(sleep 0.5; echo late1; echo late2 >&2; sleep 60) & echo first")
        assert first == "first\n"
        second = await text(box, "sleep 1; echo second")
        assert second == "second\n"

    within(name, work)


def test_background_server_outlives_its_call_and_is_not_killed_by_its_output(name: str) -> None:
    async def work(box: Sandbox) -> None:
        script = "i=0; while [ $i -lt 400 ]; do printf '%02000d\\n' 0 || exit 1; i=$((i+1)); sleep 0.001; done; echo done > finished; sleep 60"
        started = time.monotonic()
        await sh(box, f"({script}) & echo started")
        assert time.monotonic() - started < 2
        result = await sh(
            box,
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do [ -f finished ] && break; sleep 0.5; done; cat finished",
        )
        assert result.output == b"done\n"

    within(name, work)


def test_calls_queue(name: str) -> None:
    async def work(box: Sandbox) -> None:
        results = await asyncio.gather(*(text(box, f"sleep 0.02; echo {n}") for n in range(8)))
        assert results == [f"{n}\n" for n in range(8)]

    within(name, work)


# ---------------------------------------------------------------- timeouts


@pytest.mark.parametrize(
    "command",
    [
        "sleep 600",
        "sleep 600 & sleep 600",
        "trap '' TERM INT HUP; while :; do sleep 600; done",
        "setsid sleep 600 & (setsid sh -c 'trap \"\" TERM; (sleep 600 & sleep 600) & sleep 600' &) ; sleep 600",
        "nohup sh -c 'exec 1>&- 2>&-; sleep 600' & sleep 600",
        "python3 -c 'import os,time\nfor i in range(3):\n    if os.fork(): os._exit(0) if i else time.sleep(600)\n    os.setsid()\ntime.sleep(600)'",
        "while :; do :; done",
        "cat /dev/zero | sleep 600",
        "exec sleep 600",
        "kill -STOP $BASHPID",
        "echo $$ > /dev/null; sleep 600",
    ],
)
def test_timeout_kills_everything_that_the_call_started(name: str, command: str) -> None:
    async def work(box: Sandbox) -> None:
        await sh(box, "sleep 4321 >/dev/null 2>&1 & (setsid sleep 4322 >/dev/null 2>&1 &)")
        before = await _sleepers(box)
        assert {"4321", "4322"} <= set(before)
        started = time.monotonic()
        result = await sh(box, f"echo so far; {command}", timeout_s=0.5)
        assert time.monotonic() - started < 0.5 + 2
        assert (result.timed_out, result.exit_code, result.output) == (True, 124, b"so far\n")
        assert await _sleepers(box) == before

    within(name, work)


async def _sleepers(box: Sandbox) -> list[str]:
    """Arguments of the living `sleep`s of this sandbox's folder: what was started and is not gone."""
    found = await text(
        box,
        'for p in /proc/[0-9]*; do [ "$(readlink $p/cwd)" = "$PWD" ] || continue;'
        " tr '\\0' ' ' < $p/cmdline; echo; done | grep ^sleep | cut -d' ' -f2 | sort",
    )
    return found.split()


def test_twelve_timeouts_in_a_row_leave_room_for_the_next_command(name: str) -> None:
    async def work(box: Sandbox) -> None:
        for number in range(12):
            hard = ("trap '' TERM; ", "setsid ", "")[number % 3]
            started = time.monotonic()
            result = await sh(box, f"{hard}sh -c 'sleep 600 & sleep 600' & sleep 600", timeout_s=0.3)
            assert result.timed_out
            assert time.monotonic() - started < 0.3 + 2
        started = time.monotonic()
        assert await text(box, "echo ok") == "ok\n"
        assert time.monotonic() - started < 1

    within(name, work, pids=64)


def test_fork_bomb_ends_with_its_own_call(name: str) -> None:
    can(name, "pids")

    async def work(box: Sandbox) -> None:
        started = time.monotonic()
        result = await sh(box, "bomb() { bomb | bomb & }; bomb; sleep 600", timeout_s=1)
        assert time.monotonic() - started < 1 + 2
        assert result.timed_out
        started = time.monotonic()
        assert await text(box, "echo ok") == "ok\n"
        assert time.monotonic() - started < 1

    within(name, work, pids=64)


# ---------------------------------------------------------------- output


def test_long_output_is_cut_to_head_and_tail_and_kept_whole(name: str) -> None:
    async def work(box: Sandbox) -> None:
        result = await sh(box, "seq 1 200000; exit 7", max_output=1000)
        whole = "".join(f"{n}\n" for n in range(1, 200001)).encode()
        assert result.exit_code == 7
        assert result.output == whole[:400] + whole[-600:]
        assert (result.head, result.omitted) == (400, len(whole) - 1000)
        kept = await sh(box, f"cat '{result.full_path}'", max_output=10_000_000)
        assert kept.output == whole

    within(name, work)


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 1002, 65536, 65537])
def test_output_is_cut_exactly_at_its_limit(name: str, size: int) -> None:
    async def work(box: Sandbox) -> None:
        result = await sh(box, f"head -c {size} /dev/zero | tr '\\0' x", max_output=1000)
        assert len(result.output) == min(size, 1000)
        assert result.omitted == max(0, size - 1000)
        assert result.head == (size if size <= 1000 else 400)
        assert bool(result.full_path) == (size > 1000)

    within(name, work)


def test_no_output_may_be_asked_for(name: str) -> None:
    async def work(box: Sandbox) -> None:
        result = await sh(box, "echo x; exit 2", max_output=0)
        assert (result.output, result.omitted, result.exit_code) == (b"", 2, 2)

    within(name, work)


def test_hundred_mebibytes_do_not_grow_the_runner(name: str) -> None:
    async def work(box: Sandbox) -> None:
        await sh(box, "head -c 10000000 /dev/zero", max_output=50_000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await sh(
            box, "head -c 104857600 /dev/zero | tr '\\0' x; exit 5", max_output=50_000, timeout_s=60
        )
        assert result.exit_code == 5
        assert result.omitted == 104_857_600 - 50_000
        assert await text(box, f"wc -c < {result.full_path}") == "104857600\n"
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10  # KiB

    within(name, work)


def test_endless_output_ends_in_time(name: str) -> None:
    async def work(box: Sandbox) -> None:
        started = time.monotonic()
        result = await sh(box, "yes", timeout_s=1, max_output=1000)
        assert time.monotonic() - started < 1 + 2
        assert result.timed_out
        assert len(result.output) == 1000
        assert result.omitted > 1_000_000
        assert await text(box, "echo ok") == "ok\n"

    within(name, work)


# ---------------------------------------------------------------- the place


@pytest.mark.parametrize(
    "cwd", ["", "/testbed", "/home/some one/x", "sub/folder", "/tmp/☃ 'q' \"d\" $x", "/workspace/a/../b"]
)
def test_cwd_is_made_and_can_be_written(name: str, cwd: str) -> None:
    async def work(box: Sandbox) -> None:
        assert (await text(box, "pwd")).rstrip("\n") == box.info.cwd
        assert await text(box, "echo x > f && mkdir d && cat f") == "x\n"
        assert box.info.cwd.endswith(os.path.normpath(cwd).lstrip("/") if cwd else "workspace")

    within(name, work, cwd=cwd)


def test_environment_has_nothing_of_the_runner(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_CANARY_KEY", "canary-of-the-environment")
    monkeypatch.setenv("OPENROUTER_API_KEY", "canary-of-the-environment")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("BASH_ENV", "/canary-of-the-environment")

    async def work(box: Sandbox) -> None:
        assert "canary" not in await text(
            box, "env; set; export -p; cat /proc/self/environ; cat /proc/$PPID/environ"
        )
        assert "PATH" in await text(box, "env")

    within(name, work)


def test_runner_descriptors_do_not_reach_the_sandbox(name: str, tmp_path: Any) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary-of-a-file")
    descriptor = os.open(secret, os.O_RDONLY)
    os.set_inheritable(descriptor, True)

    async def work(box: Sandbox) -> None:
        seen = await text(box, "ls -l /proc/self/fd /proc/$PPID/fd; ls -l /proc/1/fd 2>/dev/null || true")
        assert "secret" not in seen

    try:
        within(name, work)
    finally:
        os.close(descriptor)


def test_files_of_the_host_are_invisible(name: str, tmp_path: Any) -> None:
    can(name, "files")
    (tmp_path / "canary").write_text("canary-of-a-file")

    async def work(box: Sandbox) -> None:
        home = os.path.expanduser("~")
        seen = await sh(
            box,
            f"cat {tmp_path}/canary {__file__} /etc/shadow /etc/hostname; ls {home} {os.getcwd()} /var/log",
        )
        assert b"canary-of-a-file" not in seen.output
        assert b"canary" not in (await sh(box, f"ls -R /proc/1/root{tmp_path} /proc/1/cwd/../tmp")).output
        host = os.uname().nodename
        assert host not in await text(box, "hostname; cat /etc/hostname /etc/hosts; uname -n")
        for folder in (
            "/",
            "/usr",
            "/usr/bin",
            "/etc",
            "/dev",
            "/lib",
            "/run",
            "/run/hermes-run",
            "/proc",
            "/var",
        ):
            assert (await sh(box, f"touch {folder}/x")).exit_code != 0, folder

    within(name, work)


def test_processes_of_the_host_are_invisible(name: str) -> None:
    can(name, "processes")

    async def work(box: Sandbox) -> None:
        assert (await sh(box, f"kill -0 {os.getpid()}")).exit_code != 0 or os.getpid() < 20
        assert int(await text(box, "ls -d /proc/[0-9]* | wc -l")) < 10

    within(name, work)


def test_there_is_no_network_unless_asked(name: str) -> None:
    can(name, "network")

    async def serve(network: str) -> str:
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"from the host\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, opened(name, network=network) as box:
            return await text(box, f"exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3")

    assert "from the host" not in asyncio.run(serve("none"))
    assert "from the host" in asyncio.run(serve("full"))


def test_two_sandboxes_never_see_each_other(name: str) -> None:
    can(name, "files", "processes")

    async def main() -> None:
        async with opened(name) as one, opened(name) as other:
            await sh(one, "echo secret-of-one | tee /tmp/f /dev/shm/f f; sleep 777 & disown", timeout_s=5)
            seen = await text(other, "cat /tmp/f /dev/shm/f f /proc/*/cmdline; ls -R /workspace /tmp /run")
            assert "secret-of-one" not in seen
            assert "777" not in await text(other, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")

    asyncio.run(main())


# ---------------------------------------------------------------- limits


def test_memory_bomb_ends_with_its_own_call(name: str) -> None:
    can(name, "memory")
    bomb = "python3 -c 'a = []\nwhile True: a.append(bytearray(10_000_000))'"

    async def main() -> None:
        async with opened(name, memory_mb=128) as box, opened(name, memory_mb=128) as other:
            await sh(box, "cd /usr", keep_state=True)
            result, calm = await asyncio.gather(
                sh(box, bomb, timeout_s=30), text(other, "sleep 0.3; echo calm")
            )
            assert result.exit_code == 137
            assert calm == "calm\n"
            assert await text(box, "pwd") == "/usr\n"

    asyncio.run(main())


def test_disk_filler_meets_a_full_disk(name: str) -> None:
    can(name, "files", "memory")

    async def work(box: Sandbox) -> None:
        for place in (".", "/tmp", "/dev/shm"):
            result = await sh(box, f"head -c 500000000 /dev/zero > {place}/big; echo $?", timeout_s=30)
            assert b"No space left" in result.output
        assert await text(box, "echo ok; rm big; echo fine > f; cat f") == "ok\nfine\n"

    within(name, work, memory_mb=256)


def test_process_limit_counts_what_commands_start(name: str) -> None:
    can(name, "pids")

    async def work(box: Sandbox) -> None:
        result = await sh(box, "exec sh -c 'while sleep 3 & do echo x; done'", timeout_s=2)
        assert 20 < result.output.count(b"x") <= 32
        assert await text(box, "echo ok") == "ok\n"

    within(name, work, pids=32)


def test_cpu_limit_slows_two_burners_down(name: str) -> None:
    can(name, "cpus")

    async def work(box: Sandbox) -> None:
        burn = "timeout 1 sh -c 'while :; do :; done' & timeout 1 sh -c 'while :; do :; done' & wait"
        used = await text(box, f"{burn}; times | tail -1")
        minutes_seconds = [float(s) for s in re.findall(r"m([\d.]+)s", used)]
        assert sum(minutes_seconds) < 0.9

    within(name, work, cpus=0.5)


# ---------------------------------------------------------------- life


def test_loss_is_noticed_at_once(name: str) -> None:
    async def work(box: Sandbox) -> None:
        waiting = asyncio.create_task(sh(box, "echo going; sleep 600", timeout_s=300))
        await asyncio.sleep(0.3)
        started = time.monotonic()
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(SandboxError) as raised:
            await waiting
        assert raised.value.reason == "sandbox_lost"
        assert time.monotonic() - started < 1
        with pytest.raises(SandboxError) as again:
            await sh(box, "echo x")
        assert again.value.reason == "sandbox_lost"

    within(name, work)


def _children() -> list[int]:
    """Processes that this process has started."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def test_cancelled_command_is_killed_and_the_sandbox_goes_on(name: str) -> None:
    async def work(box: Sandbox) -> None:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await sh(box, "echo x; sleep 601 & sleep 601", timeout_s=60)
            assert await text(box, "echo ok", timeout_s=5) == "ok\n"
        assert "601" not in await _sleepers(box)

    within(name, work)


def _traces() -> Iterator[str]:
    """What sandboxes leave outside the runner's process."""
    for folder in (
        "/tmp",
        "/dev/shm",
        *(f"/sys/fs/cgroup/{kind}" for kind in ("memory", "pids", "cpu", ".")),
    ):
        if os.path.isdir(folder):
            yield from (
                f"{folder}/{entry}" for entry in os.listdir(folder) if entry.startswith("hermes-run-")
            )


def test_nothing_is_left_after_success_failure_and_cancellation(name: str) -> None:
    async def succeed() -> None:
        async with opened(name) as box:
            await sh(box, "sleep 888 & mkdir -p a/b; chmod 0 a; echo x")

    async def fail() -> None:
        async with opened(name) as box:
            await sh(box, "setsid sleep 888 >/dev/null 2>&1 &")
            raise ZeroDivisionError

    async def be_cancelled(delay_s: float) -> None:
        async with asyncio.timeout(delay_s), opened(name) as box:
            await sh(box, "sleep 888", timeout_s=100)

    before = set(_traces())
    asyncio.run(succeed())
    with pytest.raises(ZeroDivisionError):
        asyncio.run(fail())
    for delay_s in (0.0001, 0.001, 0.003, 0.006, 0.012, 0.02, 0.1):
        with pytest.raises(TimeoutError):
            asyncio.run(be_cancelled(delay_s))
    mine = {trace for trace in set(_traces()) - before if _is_mine(trace)}
    assert mine == set()
    assert _children() == []


_DYING_RUN = """
import asyncio, sys
from hermes_run.core.contracts import SandboxRequest
from hermes_run.core.registry import BACKENDS, load
from hermes_run.spec.model import Settings

async def main():
    backend = load("sandbox backend", BACKENDS, sys.argv[1])(sys.argv[2], Settings())
    async with backend.open(SandboxRequest(run=sys.argv[2], key="k", row_id="row-1")) as box:
        nap = f"sleep 9{sys.argv[3]}"
        command = f"echo x > f; setsid {nap} >/dev/null 2>&1 & echo on; {nap}"
        call = asyncio.create_task(box.exec(command, timeout_s=600))
        await asyncio.sleep(0.5)
        print("ready", flush=True)
        await call

asyncio.run(main())
"""


def test_what_a_killed_run_leaves_is_found_and_removed_and_nothing_else(name: str) -> None:
    run = f"killed-{os.getpid()}"

    async def main() -> None:
        dying = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _DYING_RUN, name, run, str(os.getpid()), stdout=PIPE
        )
        assert dying.stdout is not None
        assert await dying.stdout.readline() == b"ready\n"
        backend = new_backend(name)
        try:
            assert [left for left in backend.leftovers() if left.run == run] == []
            os.kill(dying.pid, signal.SIGKILL)
            await dying.wait()
            async with opened(name) as living:
                await asyncio.sleep(0.2)
                left = backend.leftovers()
                assert {leftover.run for leftover in left} >= {run}
                assert all(leftover.run != "contract-run" for leftover in left if run in leftover.what)
                for leftover in left:
                    if leftover.run == run:
                        assert leftover.what
                        backend.remove(leftover)
                        backend.remove(leftover)
                assert await text(living, "echo alive") == "alive\n"
            assert [leftover for leftover in backend.leftovers() if leftover.run == run] == []
            assert not _processes_saying(b"sleep\x009%d\0" % os.getpid())
            marks = [leftover.handle.rpartition("-")[2] for leftover in left if leftover.run == run]
            assert [trace for trace in _traces() if any(mark in trace for mark in marks)] == []
        finally:
            await backend.aclose()

    asyncio.run(main())


def test_same_run_started_again_removes_what_its_killed_self_left(name: str) -> None:
    run = f"again-{os.getpid()}"

    async def main() -> None:
        dying = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _DYING_RUN, name, run, str(os.getpid()), stdout=PIPE
        )
        assert dying.stdout is not None
        assert await dying.stdout.readline() == b"ready\n"
        os.kill(dying.pid, signal.SIGKILL)
        await dying.wait()
        backend: Backend = load("sandbox backend", BACKENDS, name)(run, Settings())
        async with backend.open(SandboxRequest(run=run, key="k")) as box:
            assert [leftover for leftover in backend.leftovers() if leftover.run == run] == []
            assert await text(box, "echo ok") == "ok\n"
        await backend.aclose()

    asyncio.run(main())


def test_interpreter_that_leaves_without_closing_leaves_nothing(name: str) -> None:
    run = f"leaving-{os.getpid()}"
    program = _DYING_RUN.replace("await call", "import sys; loop = asyncio.get_running_loop(); loop.stop()")
    program = program.replace("asyncio.run(main())", "asyncio.new_event_loop().run_until_complete(main())")

    async def main() -> None:
        leaving = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, name, run, str(os.getpid()), stdout=PIPE, stderr=PIPE
        )
        await leaving.communicate()
        assert not _processes_saying(b"sleep\x009%d\0" % os.getpid())
        assert [leftover for leftover in new_backend(name).leftovers() if leftover.run == run] == []

    asyncio.run(main())


def _processes_saying(word: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and word in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def _is_mine(trace: str) -> bool:
    """Other test processes run at the same time: theirs are locked by them."""
    try:
        with open(f"{trace}/run", encoding="utf-8") as file:
            return f'"pid": {os.getpid()}' in file.read()
    except OSError:
        return False
