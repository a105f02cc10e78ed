"""A file of the sandbox, read and written whole with one command each: shell text, nothing else.

Writing is atomic (a temporary file in the same folder, then a rename), goes through symbolic links to
the file meant, and keeps what the old file had: its mode and owner, its byte order mark, its line ends.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes_run.errors import ToolError
from hermes_run.tools.shell import file_script, refuse, run_script

if TYPE_CHECKING:
    from hermes_run.core.contracts import Sandbox

BOM = b"\xef\xbb\xbf"

_READ = r"""
[ -f "$p" ] || explain
[ -r "$p" ] || exit 73
exec head -c {limit} "$p"
"""

# Exit 77: the old file has another style than the content was written for; nothing was written.
# `cp -p` gives the temporary file the old one's mode and owner.
_WRITE = r"""
if [ -L "$p" ]; then
  q=$(readlink -f "$p" && printf x) || exit 74
  p=${{q%??}}
fi
case $p in */) [ -d "$p" ] && exit 71; echo 'the path names a directory'; exit 75 ;; esac
d=${{p%/*}}; d=${{d:-/}}; t=$d/.hermes-{token}.tmp; made=0
if [ -e "$p" ]; then
  [ -f "$p" ] || explain
  {{ [ -w "$p" ] && [ -r "$p" ]; }} || exit 73
  {{ h=$(head -c 65536 "$p"; printf x); }} 2>/dev/null
  cr=$(printf '\r'); bom=$(printf '\357\273\277')
  case $h in "$bom"*) b=bom ;; *) b=plain ;; esac
  case $h in *"$cr$nl"*) e=crlf ;; *"$nl"*) e=lf ;; *) e=none ;; esac
  case " {styles} " in *" $b-$e "*) ;; *) echo "$b-$e"; exit 77 ;; esac
  cp -p "$p" "$t" || exit 75
elif [ ! -d "$d" ]; then
  mkdir -p "$d" || exit 75
  made=1
fi
cat >"$t" && mv -f "$t" "$p" || {{ rm -f "$t"; exit 75; }}
echo $made
"""

_ALL_STYLES = "plain-none plain-lf plain-crlf bom-none bom-lf bom-crlf"


class Written(Struct, frozen=True):
    """What a write did: bytes in the file now, and whether folders were made for it."""

    size: int
    made_folders: bool


async def read_start(sandbox: Sandbox, path: str, limit: int) -> bytes:
    """The first `limit` bytes of a file. Raises ToolError with the reason when there is none."""
    result = await run_script(
        sandbox, file_script(path, _READ.format(limit=limit)), max_output=max(limit, 500_000)
    )
    if result.exit_code:
        raise refuse(path, result)
    return result.output


async def write_whole(sandbox: Sandbox, path: str, content: bytes) -> Written:
    """Make `content` the file's, keeping the old file's mode, byte order mark and line ends.

    One command unless the old file has a byte order mark or other line ends than `content`.
    Raises ToolError when it cannot be written; the old file is then as it was.
    """
    has_bom = content.startswith(BOM)
    fits = {"bom-none"} if has_bom else {"plain-none"}
    if b"\n" not in content:
        fits |= {"bom-lf", "bom-crlf"} if has_bom else {"plain-lf", "plain-crlf"}
    elif b"\r\n" not in content:
        fits.add("bom-lf" if has_bom else "plain-lf")
    try:
        return await write_exactly(sandbox, path, content, styles=" ".join(sorted(fits)))
    except _OtherStyle as other:
        bom, ends = other.style.split("-")
    if bom == "bom" and not has_bom:
        content = BOM + content
    if ends != "none":
        content = content.replace(b"\r\n", b"\n")
    if ends == "crlf":
        content = content.replace(b"\n", b"\r\n")
    return await write_exactly(sandbox, path, content)


class _OtherStyle(Exception):
    """The old file has this style; nothing was written."""

    def __init__(self, style: str) -> None:
        super().__init__(style)
        self.style = style


async def write_exactly(sandbox: Sandbox, path: str, content: bytes, *, styles: str = _ALL_STYLES) -> Written:
    """Make exactly these bytes the file's. Raises ToolError when it cannot be written."""
    if path.endswith("/"):
        raise ToolError(f"{path} names a directory; give the path of a file")
    script = file_script(path, _WRITE.format(token=secrets.token_hex(6), styles=styles))
    result = await run_script(sandbox, script, stdin=content, max_output=500_000)
    if result.exit_code == 77:
        raise _OtherStyle(result.output.decode("ascii").strip())
    if result.exit_code:
        raise refuse(path, result)
    return Written(len(content), result.output.strip() == b"1")
