r"""The shell text that runs inside a sandbox, for bash and for any POSIX sh.

The first process is the supervisor. It forks the kept shell (the main loop), and forks it again when
a command has killed it. For each request `<number> <output> <stdin>` the kept shell forks a subshell
that reads the mailbox (the call's text, written by the runner), evaluates the command with its
output on its own named pipe, and answers `<number> <exit status>`. The kept shell itself never runs
user text, so nothing but what the runner kept of the last call's state reaches the next one.

- Everything stands on one line, so that the shell's messages say `line 1` as those of `bash -c` do.
- `eval` is not inside a function, so that `local`, `return` and `declare` mean what they mean there.
- The state goes back through the mailbox, by its path: whatever descriptors the command has closed.
- What a forked subshell cannot have right (`$$` is the first shell's, `set -x` shows one level more,
  `set -u` ends with another status) is run by a fresh `bash -c` put in the subshell's place
  (`own_shell`), which reads its preparations from the mailbox as BASH_ENV.
"""

from __future__ import annotations

import re

READY = b"ready"
GONE = b"gone"

_STATE_BEGIN = b"#state\n"
_STATE_END = b"#end\n"
_MOST_STATE = 4 << 20
"""Bytes of exported variables that are carried; more than the kernel lets any program be started with."""

_WANTS_OWN_SHELL = re.compile(
    r"\$\$|\$\{[#!]?\$|\b(?:PPID|SECONDS|BASH_SUBSHELL|SHLVL|BASH_EXECUTION_STRING)\b"
    r"|\bset\b.*[-+][a-zA-Z]*[uvx]|\b(?:nounset|xtrace|verbose)\b"
)
_WANTS_TRAP = re.compile(rb"\btrap\b")
_TRAPS_IN_FUNCTIONS = re.compile(rb"\b(?:RETURN|DEBUG)\b")
"""Traps that a function in the place of `trap` would itself set off."""
_LONGEST_ARGUMENT = 120_000
"""Bytes: Linux gives a program no argument of 128 KiB or more."""
_SHELLS_OWN = (
    rb"UID|EUID|PPID|SHELLOPTS|BASHOPTS|GROUPS|DIRSTACK|FUNCNAME|BASH_(?:VERSINFO|SOURCE|LINENO|ARGC|ARGV)"
)
"""Bash gives them their values, and lets nobody else."""
_CANNOT_BE_SET = re.compile(
    rb"^(?:declare -[a-zA-Z]*r|export -|(?:declare -[a-zA-Z]+|export) (?:%b)\b)" % _SHELLS_OWN, re.MULTILINE
)
"""What bash itself writes and does not take back, at the beginning of a line (`export -a` in POSIX mode)."""
_QUOTED = rb"""(?:"[^"\\]*(?:\\.[^"\\]*)*"|\$'[^'\\]*(?:\\.[^'\\]*)*'|'[^']*')"""
_VARIABLE = re.compile(
    rb"(declare|export)(?: -([a-zA-Z]+))? (\w+)((?:=(?:%b+|\((?:[^\"'$)]|%b)*\)))?)\n" % (_QUOTED, _QUOTED),
    re.DOTALL,
)
"""One entry of `export -p`, whatever lines its value has."""

_TRAP_FUNCTION = rb"""trap() {
[ "${1-}" = -- ] && shift
case $#:${1-} in
0:*|*:-[pP]) command trap -- "${__u--}" EXIT; command trap "$@"; __r=$?; __v; return $__r;;
*:-l) command trap -l; return;;
1:EXIT|1:0) set -- - EXIT;;
1:*) command trap "$@"; return;; esac
__a=$1; shift; __r=0
for __g; do case $__g in
EXIT|exit|SIGEXIT|0) case $__a in -) unset -v __u;; *) __u=$__a;; esac; __v;;
*) command trap -- "$__a" "$__g" || __r=$?;; esac; done
return $__r; }
__t() { return "$__s"; }
__v() { command trap "$__k${__u+
__t
$__u}" EXIT; }"""
"""Stands in for `trap` in commands that use it, so that their own EXIT trap does not displace ours.

Bash only: elsewhere `trap` cannot be a function, and a command that sets an EXIT trap keeps no state.
"""


def supervisor(
    mailbox: str, *, first: str = "", inherited: tuple[int, ...] = (), own_group: bool = False
) -> str:
    """The text of the first shell.

    Args:
        mailbox: its path inside the sandbox.
        first: is run before anything else.
        inherited: descriptors that the supervisor keeps and nothing else gets.
        own_group: give the kept shell a process group of its own (bash only): for where the
            supervisor is not the first process of a pid namespace, and so not immune to `kill -9 0`.
    """
    enter, leave = ("set -m;", "set +m;") if own_group else ("", "")
    close = "".join(f"exec {number}>&-;" for number in inherited)
    return (
        f"{first} exec 2>/dev/null; {enter} while :; do ( {leave} {close} echo ready;"
        " while read -r __n __o __i; do"
        f' ( . {mailbox}; eval "$__c" ) <$__i >$__o 2>&1;'
        ' echo "$__n $?"; done; exit 99 );'
        ' __s=$?; [ "$__s" = 99 ] && exit; echo "gone $__s" || exit; done'
    )


def closable(shell: str, descriptors: tuple[int, ...]) -> tuple[int, ...]:
    """Those that `shell` can name: a POSIX sh may know one digit only."""
    return tuple(number for number in descriptors if number < 10 or shell.endswith("bash"))


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
        state_path: where a call leaves its state, if that is not the mailbox.
    """

    def __init__(
        self, shell: str, mailbox: str, names: tuple[str, ...], cwd: str, state_path: str = ""
    ) -> None:
        self._names = " ".join(names).encode()
        self._cwd = quote(cwd.encode())
        self._mailbox = mailbox.encode()
        self._shell = shell.encode()
        self._shell_name = shell.rpartition("/")[2].encode()
        is_bash = self._shell_name == b"bash"
        self._who = b"__p=$BASHPID" if is_bash else b"read -r __p __q </proc/self/stat"
        self._trap_function = _TRAP_FUNCTION if is_bash else b""
        own_traps = b"command trap - DEBUG ERR RETURN;" if is_bash else b""
        self._keep = quote(
            b"{ __s=$?; %b command set +evx; } >/dev/null 2>&1;"
            b' { %b; [ "$__p" = "$__w" ] && {'
            b" command printf '#state\\n'; command export PWD; command export -p;"
            b" command printf '#end\\n'; } >|%b; } 2>/dev/null"
            % (own_traps, self._who, state_path.encode() or self._mailbox)
        )

    @property
    def keep(self) -> bytes:
        """The text that leaves a call's state, as one word."""
        return self._keep

    def restore(self, state: bytes) -> bytes:
        """The text that puts a state in force. `state` is what `kept_state` returned last."""
        return (
            b"unset -v %b\n%b\n"
            b'__d=${OLDPWD-}; cd -- "$PWD" 2>/dev/null || cd -- %b 2>/dev/null; OLDPWD=$__d; unset -v __d'
            % (self._names, state, self._cwd)
        )

    def call(
        self,
        command: bytes,
        *,
        state: bytes,
        workdir: bytes,
        keep_state: bool,
        own_shell: bool,
        by_name: bool = False,
    ) -> bytes:
        """The text for one call. `state` is what `kept_state` returned last, or empty.

        With `by_name` the kept shell has the texts `restore` and `keep` in variables, __E and __K.
        """
        before = []
        if state:
            before.append(b'eval "$__E"' if by_name else self.restore(state))
        if workdir:
            before.append(_enter(workdir))
        if own_shell:
            before = self._in_own_shell(before, command)
        if keep_state:
            before.append(b"%b; __w=$__p; __k=%b" % (self._who, b"$__K" if by_name else self._keep))
            if _WANTS_TRAP.search(command) and not _TRAPS_IN_FUNCTIONS.search(command):
                before.append(self._trap_function)
            before.append(b'command trap "$__k" EXIT')
        return b"\n".join([*before, b"__c=" + quote(command), b""])

    def _in_own_shell(self, before: list[bytes], command: bytes) -> list[bytes]:
        """The mailbox is read twice: by the subshell up to `exec`, by the shell in its place from `fi`."""
        if self._shell_name == b"bash" and len(command) < _LONGEST_ARGUMENT:
            return [
                b'if [ -z "${BASH_ENV-}" ]; then',
                *before,
                b"BASH_ENV=%b exec -a bash %b -c %b" % (self._mailbox, self._shell, quote(command)),
                b"fi",
                b"unset -v BASH_ENV",
            ]
        again = b'__x=1; . %b; unset -v __x; eval "$__c"' % self._mailbox
        return [
            b'if [ -z "${__x-}" ]; then',
            *before,
            b"exec %b -c %b %b" % (self._shell, quote(again), self._shell_name),
            b"fi",
        ]


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
    return _VARIABLE.sub(_settable, body) if _CANNOT_BE_SET.search(body) else body


def _settable(entry: re.Match[bytes]) -> bytes:
    """An entry without what would make it fail in the next call.

    A variable that was made readonly is carried as a variable: attributes are no environment. Of the
    shell's own ones only their export is carried.
    """
    kind, flags, name, value = entry.groups(b"")
    if re.fullmatch(_SHELLS_OWN, name):
        return b"export %b\n" % name
    if kind == b"export" and not flags:
        return entry[0]
    return b"declare -x%b %b%b\n" % (flags.replace(b"r", b"").replace(b"x", b""), name, value)
