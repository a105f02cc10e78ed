"""Shell text for the sandbox, written so that any POSIX shell with coreutils or busybox runs it.

Inside of tools, text is what `bytes_of` and `text_of` convert: a byte that is no UTF-8 is a lone surrogate
(`surrogateescape`). The toolkit restores what the model wrote and cleans what it reads, once for all
tools (`core.text`), so a name or a content that was read can be given back as it was.
"""

from __future__ import annotations

import difflib
import re
import secrets
from typing import TYPE_CHECKING

from msgspec import structs

from hermes_run.core.text import clean
from hermes_run.errors import ToolError

if TYPE_CHECKING:
    from hermes_run.core.contracts import ExecResult, Sandbox

FILE_TIMEOUT_S = 60.0
"""How long a file tool's commands may take."""

_NOISE_BYTES = 10_000
_SIMILAR = 5
_NO_BYTES = re.compile("[\ud800-\udc7f\udd00-\udfff]+")
_MAX_NAME = 255  # bytes; every file system in use

PRELUDE = """
LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/local/bin:/usr/bin:/bin; unset CDPATH LD_PRELOAD; nl='
'; IFS=" \t$nl"
"""
"""Bytes are bytes, and the tools are found whatever the kept shell has exported."""

_EXPLAIN = r"""
explain() {
  if [ -d "$p" ]; then exit 71; elif [ -e "$p" ]; then exit 72; elif [ -L "$p" ]; then
    readlink "$p"; exit 74; fi
  d=$p
  while :; do
    c=${d##*/}; d=${d%/*}; [ -n "$d" ] || d=/
    [ -d "$d" ] && break
    case $d in */*) ;; *) break ;; esac
  done
  [ -x "$d" ] || exit 73
  printf '%s\0%s\0' "$d" "$c"
  for f in "$d"/* "$d"/.[!.]*; do
    if [ -e "$f" ] || [ -L "$f" ]; then printf '%s\0' "${f##*/}"; fi
  done | head -c 200000
  exit 70
}
"""
"""`explain` ends the script with the reason why "$p" is no file to work with; see `refuse`."""


def quote(data: bytes) -> str:
    """One word of shell text that means exactly `data`, whatever its bytes are.

    A command is text, so what is no plain UTF-8 is written by the shell's own printf.
    """
    text = plain_text(data)
    if text is None:
        body = data.rstrip(b"\n")  # a command substitution drops newlines at the end
        newlines = "\n" * (len(data) - len(body))
        octal = "".join(f"\\{byte:03o}" for byte in body)
        return f"\"$(printf '{octal}')\"" + (f"'{newlines}'" if newlines else "")
    return "'" + text.replace("'", "'\\''") + "'"


def plain_text(data: bytes) -> str | None:
    """The bytes as text that every sandbox takes as it is, or None when they are none.

    None also for text with the private characters that `core.text` gives a meaning.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if clean(text) == text else None


def path_word(path: str) -> str:
    """A path of the model as one shell word that begins with / or ./ (so never an option).

    `~` and `~/...` are the sandbox's home. Raises ToolError for what can be no path.
    """
    raw = bytes_of(path)
    if not raw:
        raise ToolError("path is empty; give the path of a file")
    if b"\0" in raw:
        raise ToolError("path holds a NUL character; no file can have that name")
    if any(len(part) > _MAX_NAME for part in raw.split(b"/")):
        raise ToolError(f"path has a name of more than {_MAX_NAME} bytes; no file can have it")
    if raw == b"~" or raw.startswith(b"~/"):
        return '"${HOME:-/}"' + (quote(raw[1:]) if raw[1:] else "")
    return quote(raw if raw.startswith(b"/") else b"./" + raw)


def file_script(path: str, body: str) -> str:
    """A script with the path in `$p` and the function `explain`, then `body`."""
    return f"{PRELUDE}p={path_word(path)}{_EXPLAIN}{body}"


def mark() -> str:
    """A line that no file holds by chance or by intent: separates parts of one output."""
    return f"@@{secrets.token_hex(12)}@@"


def bytes_of(text: str) -> bytes:
    """The bytes meant by a text: lone surrogates that stand for bytes become them, others 3 bytes."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        pieces: list[bytes] = []
        at = 0
        for match in _NO_BYTES.finditer(text):
            pieces.append(text[at : match.start()].encode("utf-8", "surrogateescape"))
            pieces.append(match[0].encode("utf-8", "surrogatepass"))
            at = match.end()
        return b"".join([*pieces, text[at:].encode("utf-8", "surrogateescape")])


def text_of(data: bytes) -> str:
    """Bytes of the sandbox as text; the toolkit cleans it."""
    return data.decode("utf-8", "surrogateescape")


async def run_script(
    sandbox: Sandbox, script: str, *, stdin: bytes = b"", timeout_s: float = FILE_TIMEOUT_S, max_output: int
) -> ExecResult:
    """Run a script that leaves the kept shell as it is.

    What the shell itself says before it begins (that an exported locale is not there, say) is no part
    of the output. `max_output` has to be enough for all of it.

    Raises ToolError when it takes too long.
    """
    begin = mark()
    result = await sandbox.exec(
        f"echo {begin}\n{script}", timeout_s=timeout_s, stdin=stdin, max_output=max_output + _NOISE_BYTES
    )
    if result.timed_out:
        raise ToolError(f"gave up after {timeout_s:g} s; use the terminal tool for something this large")
    before, begun, output = result.output.partition(f"{begin}\n".encode())
    return structs.replace(result, output=output if begun else before)


_BESIDE = re.compile(r"\.hermes-[0-9a-f]{12}\.(?:tmp|gone)")
"""The names that files have for a moment; they are others each time, so no message holds one."""


def refuse(path: str, result: ExecResult) -> ToolError:
    """The error for an exit code of `explain`, or for any other failure of a script."""
    said = text_of(result.output).strip()
    match result.exit_code:
        case 70:
            return ToolError(_missing(path, result.output.split(b"\0")[:-1]))
        case 71:
            return ToolError(f"{path} is a directory; search_files or ls in the terminal lists it")
        case 72:
            return ToolError(f"{path} is no regular file (a device, pipe or socket)")
        case 73:
            return ToolError(f"permission denied: {path}")
        case 74:
            target = f" -> {said}" if said else ""
            return ToolError(f"{path} is a broken symbolic link{target}")
    return ToolError(_failed(path, said or f"the shell ended with exit code {result.exit_code}"))


def _failed(path: str, said: str) -> str:
    ours = next((line for line in said.split("\n") if _BESIDE.search(line)), "")
    return f"{path} cannot be changed: {ours.rpartition(': ')[2]}" if ours else f"{path}: {said}"


def _missing(path: str, parts: list[bytes]) -> str:
    folder, wanted, *names = (text_of(part) for part in parts)
    text = f"there is no file {path}"
    if wanted != path.rstrip("/").rsplit("/", 1)[-1]:
        text += f' (no "{wanted}" in {folder.removeprefix("./")})'
    similar = _similar(wanted, names)
    if similar:
        text += ". Similar names there: " + ", ".join(similar)
    return text


def _similar(wanted: str, names: list[str]) -> list[str]:
    """Up to five names like the wanted one: by letters without case, then by what contains it."""
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(wanted.lower(), by_lower, n=_SIMILAR, cutoff=0.6)
    stem = wanted.lower().rsplit(".", 1)[0]
    near += [low for low in sorted(by_lower) if stem and stem in low and low not in near]
    return [by_lower[low] for low in near[:_SIMILAR]]
