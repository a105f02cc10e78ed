r"""The shell text that runs inside a sandbox, for bash and for any POSIX sh.

The first process is the supervisor. It forks the kept shell (the main loop), and forks it again when
a command has killed it. For each request `<number> <output> <stdin>` the kept shell forks a subshell
that reads the mailbox (the call's text, written by the runner), evaluates the command with its
output on its own named pipe, and answers `<number> <exit status>`. The kept shell itself never runs
user text, so nothing but what the runner kept of the last call's state reaches the next one.

- Everything stands on one line, so that the shell's messages say `line 1` as those of `bash -c` do.
- `eval` is not inside a function, so that `local`, `return` and `declare` mean what they mean there.
- The state goes back through the mailbox, by its path: whatever descriptors the command has closed.
- `$$` in a forked subshell is the first shell's id. A command that asks for it is run by a fresh
  shell put in the subshell's place (`own_shell`): then `kill $$` and traps meet the right process.
"""

from __future__ import annotations

import re

READY = b"ready"
GONE = b"gone"

_STATE_BEGIN = b"#state\n"
_STATE_END = b"#end\n"
_MOST_STATE = 4 << 20
"""Bytes of exported variables that are carried; more than the kernel lets any program be started with."""

_WANTS_OWN_SHELL = re.compile(r"\$\$|\$\{[#!]?\$|PPID|SECONDS|BASH_SUBSHELL")
_WANTS_TRAP = re.compile(r"\btrap\b")
_READONLY = re.compile(rb"^declare -([a-zA-Z]*)r([a-zA-Z]*) ", re.MULTILINE)

_TRAP_FUNCTION = rb"""trap() {
[ "${1-}" = -- ] && shift
case $#:${1-} in 0:*|*:-[lpP]*) command trap "$@"; return;; 1:EXIT|1:0) set -- - EXIT;;
1:*) command trap "$@"; return;; esac
__a=$1; shift; __r=0
for __g; do case $__g in
EXIT|exit|SIGEXIT|0) case $__a in -) command trap "$__k" EXIT;; *) command trap "$__k
$__a" EXIT;; esac;;
*) command trap -- "$__a" "$__g" || __r=$?;; esac; done
return $__r; }"""
"""Stands in for `trap` in commands that use it, so that their own EXIT trap does not displace ours."""


def supervisor(mailbox: str, *, first: str = "", own_group: bool = False) -> str:
    """The text of the first shell. `mailbox` is its path inside the sandbox, `first` is run before.

    `own_group` gives the kept shell a process group of its own (bash only), where the supervisor is
    not the first process of a pid namespace and so not immune to `kill -9 0`.
    """
    enter, leave = ("set -m;", "set +m;") if own_group else ("", "")
    return (
        f"{first} exec 2>/dev/null; {enter} while :; do ( {leave} echo ready;"
        " while read -r __n __o __i; do"
        f' ( . {mailbox}; eval "$__c" ) <$__i >$__o 2>&1;'
        ' echo "$__n $?"; done; exit 99 );'
        ' __s=$?; [ "$__s" = 99 ] && exit; echo "gone $__s"; done'
    )


def quote(text: bytes) -> bytes:
    """`text` as one word of any POSIX shell."""
    return b"'" + text.replace(b"'", b"'\\''") + b"'"


def wants_own_shell(command: str) -> bool:
    """Whether `command` reads something that only a shell of its own has right."""
    return _WANTS_OWN_SHELL.search(command) is not None


class Texts:
    """Writes the mailbox's text for the calls of one sandbox.

    Args:
        shell: absolute path of the shell inside the sandbox.
        mailbox: path of the mailbox inside the sandbox.
        names: variables of the environment that the sandbox starts with.
        cwd: where it starts.
    """

    def __init__(self, shell: str, mailbox: str, names: tuple[str, ...], cwd: str) -> None:
        self._mailbox = mailbox.encode()
        self._names = " ".join(names).encode()
        self._cwd = quote(cwd.encode())
        again = b'__x=1; . %b; unset __x; eval "$__c"' % self._mailbox
        self._exec = b"exec %b -c %b %b" % (
            shell.encode(),
            quote(again),
            shell.rpartition("/")[2].encode(),
        )
        self._keep = quote(
            b"{ __s=$?; command set +ex; } 2>/dev/null; { printf '#state\\n'; command export PWD;"
            b" command export -p; printf '#end\\n'; } 2>/dev/null >|%b" % self._mailbox
        )

    def call(
        self, command: bytes, *, state: bytes, workdir: bytes, keep_state: bool, own_shell: bool
    ) -> bytes:
        """The text for one call. `state` is what `kept_state` returned last, or empty."""
        before = []
        if state:
            before.append(b"unset -v %b" % self._names)
            before.append(state)
            before.append(
                b'__w=${OLDPWD-}; cd -- "$PWD" 2>/dev/null || cd -- %b; OLDPWD=$__w; unset -v __w' % self._cwd
            )
        if workdir:
            before.append(_enter(workdir))
        if own_shell:
            before = [b'if [ -z "${__x-}" ]; then', *before, self._exec, b"fi"]
        if keep_state:
            before.append(b"__k=%b" % self._keep)
            if _WANTS_TRAP.search(command.decode("utf-8", "replace")):
                before.append(_TRAP_FUNCTION)
            before.append(b'command trap "$__k" EXIT')
        return b"\n".join([*before, b"__c=" + quote(command), b""])


def _enter(workdir: bytes) -> bytes:
    """Go to `workdir`; a relative one never by CDPATH, nor read as an option."""
    there = workdir if workdir.startswith(b"/") else b"./" + workdir
    return (
        b"cd -- %b 2>/dev/null || { printf 'cannot enter the working directory %%s\\n' %b >&2; exit 1; }"
        % (
            quote(there),
            quote(workdir),
        )
    )


def kept_state(mail: bytes) -> bytes | None:
    """The state that a call left in the mailbox, ready to be put into the next one; None if it left none."""
    if not mail.startswith(_STATE_BEGIN) or not mail.endswith(_STATE_END) or len(mail) > _MOST_STATE:
        return None
    body = mail[len(_STATE_BEGIN) : -len(_STATE_END)]
    # A variable that was made readonly is carried as a variable: attributes are no environment.
    return _READONLY.sub(rb"declare -\1\2 ", body) if b"declare -" in body else body
