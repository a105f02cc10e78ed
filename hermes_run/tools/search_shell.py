r"""The shell text of searches: ripgrep where the sandbox has it, else find and grep.

Both look at the same files (hidden ones too, ignore files aside, binary ones not) and say the same. All
of it runs in the folder searched, so names come as `./a/b`. Output is bounded by `head -c`; what does
not fit is asked for again in sorted order, so that what is seen never depends on chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hermes_run.tools.patterns import Regex
from hermes_run.tools.shell import bytes_of, file_script, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

SKIPPED = (".git", ".hg", ".svn", "node_modules", "__pycache__")
"""Names of folders that are not searched unless the search starts in them."""

MAX_BYTES = 1_000_000
"""What is fetched of one search."""

_LINE_BYTES = 4096 + 2_200  # a path and what is shown of a line

_ENTER = r"""
if [ -d "$p" ]; then
  [ -r "$p" ] || exit 73
  cd "$p" || exit 73
  f=
  set -- .
  echo D
else
  [ -f "$p" ] || explain
  [ -r "$p" ] || exit 73
  f=${p##*/}; d=${p%/*}
  cd "${d:-/}" || exit 73
  set -- "./$f"
  echo F
fi
"""
"""Goes where is searched, and says whether that is a directory (D) or a file (F)."""

# A single file is searched as part of its folder: then ripgrep treats binary files as everywhere else.
_RIPGREP = r"""
if command -v rg >/dev/null 2>&1; then
  if [ -n "$f" ]; then
    g=$(printf '%s\n' "$f" | sed 's/[][*?{{}}\\!]/\\&/g')
    set -- --max-depth 1 --follow -g "/$g" .
  else
    set -- {globs} .
  fi
  {{ rg --no-config --no-messages --no-ignore --hidden --color never --encoding none {options} \
    -e {pattern} "$@" 2>&1; printf '\n%s%s\n' {mark} $?; }} | {cut}head -c {most}
  exit 0
fi
"""

# Most greps can end names with NUL and tell text from binary; where they cannot (busybox), files are
# looked at one by one.
_GREP = r"""
export re={pattern} M={mark} nl fast=1
printf '' | grep --null -I {flags} -e "$re" >/dev/null 2>&1
if [ $? -gt 1 ]; then
  fast=
  printf '' | grep {flags} -e "$re" 2>&1
  [ $? -le 1 ] || exit 65
fi
{{ {find}; printf '\n%s0\n' {mark}; }} | {cut}head -c {most}
"""

# Runs with a batch of files as "$@". First it is asked which match, for all at once. A batch that holds
# a name with a newline goes file by file where names cannot end with NUL.
_BATCH = r"""
export LC_ALL=C.UTF-8
if [ -n "$fast" ]; then
  grep -l --null {flags} -e "$re" "$@" | LC_ALL=C xargs -0 grep -l --null -I -e "" |
    xargs -0 grep -H --null {flags} {options} -e "$re"
  exit
fi
emit() {{
  tr -dc "\000" <"$1" | tr "\000" "\n" | read -r _ && return
  {emit}
}}
case "$*" in
  *"$nl"*) for f do grep -q {flags} -e "$re" "$f" && emit "$f"; done ;;
  *) grep -l {flags} -e "$re" "$@" | while IFS= read -r f; do emit "$f"; done ;;
esac
"""
_EMIT_LINES = r'printf "%s%s%s\n" "$M" "$1" "$M"; grep {flags} {options} -e "$re" "$1"'
_EMIT_COUNT = r'printf "%s\0%s\n" "$1" "$(grep {flags} {options} -e "$re" "$1")"'

# Sorted by the parts of the path, as ripgrep sorts: the slash comes before every other character.
_SORTED = r"tr / '\001' | sort -z | tr '\001' /"


class Asked(Struct, frozen=True):
    """One search.

    Attributes:
        path: where.
        regex: what for.
        names: patterns of file names, as `globs.Glob` has them.
        mark: a line that no file holds.
        context: lines around each match; None asks for counts instead of lines.
        most: when not 0, what is found comes in order, and only so many matches of each file.
    """

    path: str
    regex: Regex
    names: tuple[str, ...]
    mark: str
    context: int | None
    most: int = 0

    @property
    def cut(self) -> str:
        """The part of a pipe that cuts long lines."""
        return "" if self.context is None else f"cut -b 1-{_LINE_BYTES} | "


def _find(names: Sequence[str], kinds: str) -> str:
    skipped = " -o ".join(f"-name {name}" for name in SKIPPED)
    wanted = " -o ".join(f"-name {quote(bytes_of(name))}" for name in names)
    return f'find -H "$@" \\( {skipped} \\) -prune -o \\( {kinds} \\) \\( {wanted} \\)'


def files_script(path: str, names: Sequence[str], *, in_order: bool) -> str:
    """Names of files, each followed by NUL."""
    find = _find(names, "-type f -o -type l") + " -print0 2>/dev/null"
    order = f" | {_SORTED}" if in_order else ""
    return file_script(path, f"{_ENTER}{find}{order} | head -c {MAX_BYTES}\n")


def ripgrep_script(asked: Asked) -> str:
    r"""Matches by ripgrep; exit code 69 where there is none.

    A match is `<path><mark>m<number><mark>m<line>`, a line beside one has c for m; a count is
    `<path>\0<number>`. At the end, if it fits, the mark and ripgrep's exit code.
    """
    globs = [quote(bytes_of(name)) for name in asked.names] if "*" not in asked.names else []
    shown = [f"-g {glob}" for glob in globs] + [f"-g '!{name}'" for name in SKIPPED]
    options = "-c -H -0"
    if asked.context is not None:
        options = (
            f"-n -H --no-heading --no-context-separator -C {asked.context} "
            f"--field-match-separator={asked.mark}m --field-context-separator={asked.mark}c"
        )
    body = _RIPGREP.format(
        globs=" ".join(shown),
        options=options + (" --sort path" if asked.most else "") + _bound(asked),
        pattern=quote(bytes_of(asked.regex.rust)),
        mark=asked.mark,
        cut=asked.cut,
        most=MAX_BYTES,
    )
    return file_script(asked.path, f"{_ENTER}{body}exit 69\n")


def grep_script(asked: Asked) -> str:
    r"""Matches by grep.

    Most greps: a match is `<path>\0<number>:<line>`, a line beside one has - for the colon. Others: each
    file's part begins with `<mark><path><mark>`, then come lines without the path. A count is
    `<path>\0<number>`. At the end, if it fits, the mark and 0.
    """
    flags = "-a -E" + (" -i" if asked.regex.ignore_case else "")
    options = "-c" if asked.context is None else "-n" + (f" -C {asked.context}" if asked.context else "")
    options += _bound(asked)
    emit = (_EMIT_COUNT if asked.context is None else _EMIT_LINES).format(flags=flags, options=options)
    batch = quote(_BATCH.format(emit=emit, flags=flags, options=options).encode())
    find = _find(asked.names, "-type f")
    if asked.most:
        find = f"{find} -print0 2>/dev/null | {_SORTED} | xargs -0 sh -c {batch} sh 2>/dev/null"
    else:
        find = f"{find} -exec sh -c {batch} sh {{}} + 2>/dev/null"
    body = _GREP.format(
        pattern=quote(bytes_of(asked.regex.posix)),
        mark=asked.mark,
        flags=flags,
        find=find,
        cut=asked.cut,
        most=MAX_BYTES,
    )
    return file_script(asked.path, _ENTER + body)


def _bound(asked: Asked) -> str:
    """The option by which both engines stop after so many matches of a file."""
    return f" -m {asked.most}" if asked.most and asked.context is not None else ""
