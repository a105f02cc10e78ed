"""What travels on the wire of a stream shell arrives as it was, in every shell."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_run.sandboxes._stream_script import call_line, exported_names, on_one_line, printf_of, program

_SHELLS = {"bash": ["bash"], "dash": ["dash"], "busybox": ["busybox", "sh"]}
_HARD = st.one_of(
    st.binary(max_size=200),
    st.text(alphabet="'\"\\$`\n !%#\t\r~*é☃a", max_size=60).map(str.encode),
)


def _evaluated(shell: str, line: bytes) -> bytes:
    """What a shell prints that reads `line` as the kept shell does."""
    if shutil.which(_SHELLS[shell][0]) is None:
        pytest.skip(f"no {shell} here")
    text = "__e=$(printf '\\nx'); __e=${__e%x}; IFS= read -r l; eval \"$l\""
    done = subprocess.run(
        [*_SHELLS[shell], "-c", text], input=line + b"\n", capture_output=True, check=True, timeout=20
    )
    return done.stdout


@pytest.mark.parametrize("shell", _SHELLS)
@settings(max_examples=40)
@given(text=_HARD)
def test_any_text_fits_on_one_line(shell: str, text: bytes) -> None:
    text = text.replace(b"\0", b"")
    line = on_one_line(text)
    assert b"\n" not in line
    assert _evaluated(shell, b'v=%b; printf %%s "$v"' % line) == text


@pytest.mark.parametrize("shell", _SHELLS)
@settings(max_examples=40)
@given(data=_HARD)
def test_builtins_print_any_bytes(shell: str, data: bytes) -> None:
    line = printf_of(data)
    assert b"\n" not in line
    assert _evaluated(shell, line) == data


@pytest.mark.parametrize("shell", _SHELLS)
def test_every_byte_is_printed_as_itself(shell: str) -> None:
    every = bytes(range(256)) * 3
    assert _evaluated(shell, printf_of(every)) == every


@pytest.mark.parametrize("shell", _SHELLS)
def test_names_of_exported_variables_are_read_whatever_their_values(shell: str) -> None:
    said = _evaluated(shell, b'export A=1 B="x${__e}export C=2"; NO=1; export -p')
    names = exported_names(said)
    assert {"A", "B", "PATH"} <= set(names)
    assert "NO" not in names


def test_a_request_is_one_line_and_the_program_is_too() -> None:
    line = call_line(7, b"a\nb'c", stdin=b"x\0\n", in_file=True)
    assert b"\n" not in line
    assert line.endswith(b"__n=7")
    text = program("token", "/a 'folder'", "/with\na newline")
    assert text.count(b"\n") == 1
    for shell in _SHELLS.values():
        if shutil.which(shell[0]):
            subprocess.run([*shell, "-n"], input=text, check=True, timeout=20)
