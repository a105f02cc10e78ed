r"""The shell text of a sandbox that is reached by three byte streams and nothing else.

All that is assumed of an image is a POSIX sh with cat, mkfifo and /proc. `program` is started once,
with these processes (each a fork of the first, so they cost little):

- The **first** one is the sandbox's init where that is the container's: it waits for the others, and so
  reaps what is orphaned. When they have been killed it says `reset` and starts them again.
- The **killer** reads the wire, and hands on every line that is no order to it. It runs builtins only,
  so that it needs no fork when there is none to be had. At the end of the wire (the runner is gone,
  however it went) it kills everything, and the first process ends: a dead man's switch.
- The **supervisor** forks the kept shell, and forks it again when a command has killed it (`gone`).
- The **kept shell** forks a subshell for each call. Its output goes through a named pipe and a `cat`
  (the relay) to the stream of outputs; behind it comes a mark, and `done` on the other stream. The
  same pipe serves the next call when there are the same processes as before this one, so that nobody
  can hold it. Else something may have been left in the background (then `done` names the relay), and
  the mark comes when all have closed the pipe. Where some do not, the runner has the relay killed, and
  a `cat >/dev/null` takes its place: servers in the background neither die nor block, and the next call
  has another pipe.

Every line of the runner and every message to it has the sandbox's token, which is random: what a command
prints is never taken for one. Everything stands on one line for the reason given in `_script.py`.
"""

from __future__ import annotations

import re

from hermes_run.sandboxes._script import quote

SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")

_KILL = """__kill() {
 S=$1 P=$2; shift 2; spare=" $* $me $S $P "; seen=' '; n=0;
 while [ $n -lt 20 ]; do n=$((n+1)); tree= orphans= cs= cp=;
  for f in /proc/[0-9]*/stat; do
   s=; while IFS= read -r x; do s=$s$x; done <$f; [ -n "$s" ] || continue;
   q=${s%% *}; set -- ${s##*) }; case $1 in Z|X|x) continue;; esac;
   case $spare in *" $q "*) continue;; esac;
   [ "$2" = "$P" ] && cs=${20} cp=$q;
   if [ "$2" = 1 ]; then orphans="$orphans $q:${20}"; else tree="$tree $q:$2"; fi;
  done;
  own=" $P ";
  for o in $orphans; do q=${o%:*} t=${o#*:};
   if [ -n "$cs" ]; then [ $t -gt $cs ] || { [ $t = $cs ] && [ $q -gt $cp ]; };
   else [ $t -ge $began ]; fi && own="$own$q ";
  done;
  more=1; while [ $more = 1 ]; do more=0;
   for o in $tree; do q=${o%:*};
    case $own in *" $q "*) ;; *" ${o#*:} "*) own="$own$q "; more=1;; esac;
   done;
  done;
  new=; for q in $own; do case $spare$seen in *" $q "*) ;; *) new="$new $q"; seen="$seen$q ";; esac; done;
  [ -n "$new" ] || break; kill -STOP $new;
 done;
 [ "$seen" = ' ' ] || kill -KILL $seen; kill -CONT $P $S; }"""
"""Kills what the call in progress has started; nothing older, nothing else. Arguments: the supervisor, the
kept shell, and those of its children that are no part of the call. Its members are stopped first, until
nothing new turns up, so that no forker gets away. An orphan belongs to the call when it is younger than the
call's subshell (or, when that is gone, than the call)."""

_KILLER = """read -r me x </proc/self/stat; began=0;
while IFS= read -r l; do case $l in
"$__t k "*) __kill ${l#* k }; echo "$__t killed" >&4;;
"$__t x "*) kill -9 ${l##* };;
"$__t on") ;;
"$__t "*) read -r x y </proc/uptime; began=${x%.*}${x#*.}; printf '%s\\n' "$l";;
esac; done <&3; kill -9 -1; exit"""

_CALL = '( eval "$__m"; eval "$__c" ) <{stdin} >&7 2>&1 3<&- 4>&- 5>&- 6>&- 7>&- 8<&-'

_KEPT_SHELL = f"""read -r __p __X __y __q __z </proc/self/stat; __k=0 __f= __i= __b=;
while :; do
 if [ -z "$__b" ]; then
  [ -p "$__f" ] || {{ __k=$((__k+1)); __f=$__d/o$__p.$__k; [ -d "$__d" ] || mkdir -p -m 700 "$__d";
   rm -f "$__f"; mkfifo -m 600 "$__f";
   [ -p "$__f" ] || {{ echo "$__t broken" >&4; exit 99; }}; }};
  exec 9<>"$__f" 8<"$__f" 7>"$__f"; exec 9>&-;
  cat <&8 >&5 3<&- 4>&- 5>&- 6>&- 7>&- 8<&- & __r=$!;
  echo "$__t ready $__q $__p $__r" >&4;
  set -- /proc/[0-9]*; __b=$*; set --;
 fi;
 __n=; while [ -z "$__n" ]; do IFS= read -r __l || exit 99;
  case $__l in "$__t "*) eval "${{__l#* }}";; esac; done; __l=;
 if [ -n "$__i" ]; then {_CALL.format(stdin='"$__i"')}; else {_CALL.format(stdin="&6")}; fi;
 __s=$?; set -- /proc/[0-9]*; __g=$* __U=$#; set --;
 if [ "$__g" = "$__b" ]; then printf %s "$__t$__n;" >&7; echo "$__t done $__n $__s" >&4;
 else exec 7>&-; echo "$__t done $__n $__s $__r" >&4;
  wait $__r; if [ $? -gt 128 ]; then __f=;
   if [ $__U -lt $__j ]; then cat <&8 >&6 3<&- 4>&- 5>&- 8<&- & echo "$__t drain $!" >&4; fi; fi;
  exec 8<&-; printf %s "$__t$__n;" >&5; __b=;
 fi;
 [ -z "$__i" ] || {{ rm -f "$__i"; __i=; }};
done"""

_PROGRAM = f"""__h=$1; shift; exec 3<&0 4>&2 5>&1 6<>/dev/null; exec 0<&6 1>&6 2>&6;
until cd -- "$__w" || {{ mkdir -p -- "$__w" && cd -- "$__w"; }}; do
 while read -r __X __y __z; do [ "$__X" = Uid: ] && break; done </proc/self/status;
 echo "$__t nocwd $__y" >&4; IFS= read -r __X <&3 || exit 1; done;
for __X in cat mkfifo rm; do command -v $__X || {{ echo "$__t lacks $__X" >&4; exit 1; }}; done;
export -p >&4; read -r __p __X </proc/self/stat; echo "$__t boot $__p $__h" >&4;
while :; do
 ( {_KILL}; {_KILLER} ) | ( while :; do ( {_KEPT_SHELL} ); __s=$?; [ $__s = 99 ] && exit;
  echo "$__t gone $__s" >&4 || exit; done );
 echo "$__t reset" >&4;
 while :; do IFS= read -r __X <&3 || exit 0; [ "$__X" = "$__t on" ] && break; done;
done"""

_FIRST = """'IFS= read -r __X; eval "$__X"'"""
"""Takes the program from its stdin, so that a list of processes does not show all of it."""
_BOOT = (
    f"for b in {' '.join(SHELLS)}; do [ -x $b ] && exec $b -c {_FIRST} bash $b; done;"
    f" exec /bin/sh -c {_FIRST} sh /bin/sh"
)
START_COMMAND = ("/bin/sh", "-c", _BOOT)
"""What a backend starts in the sandbox, as the user of its image. Only ever in a pid namespace of its own:
at the end of the wire it kills everything that it can see."""

_SPARE = 2
_EXPORTED = re.compile(rb"^(?:declare -[a-zA-Z]*x[a-zA-Z]*|export) (\w+)", re.MULTILINE)
_PLAIN = re.compile(rb"[^\x00-\x08\x0e-\x1f\x7f-\xff]*")
_NEWLINE = b"'\"$__e\"'"


def program(token: str, folder: str, cwd: str, most_processes: int = 0) -> bytes:
    """The first line on the wire, from which everything else comes.

    Args:
        token: of letters and digits; random, and of this sandbox alone.
        folder: a folder inside that the commands' user can write into, for the pipes; best a mount of
            its own, which no command can remove.
        cwd: where commands start; made if missing.
        most_processes: how many the sandbox may have, or 0. When they are almost all there, nobody reads
            on for background commands, so that the next call finds room.
    """
    most = most_processes - _SPARE if most_processes else 1 << 30
    values = {b"__t": token, b"__d": folder, b"__w": cwd, b"__j": str(most)}
    given = b" ".join(name + b"=" + on_one_line(value.encode()) for name, value in values.items())
    text = " ".join(line.strip() for line in _PROGRAM.splitlines())
    return b"__e=$(printf '\\nx'); __e=${__e%%x}; %b; %b\n" % (given, text.encode())


def exported_names(said: bytes) -> tuple[str, ...]:
    """The variables that `export -p` lists."""
    return tuple(name.decode() for name in _EXPORTED.findall(said))


def on_one_line(text: bytes) -> bytes:
    """`text` (without NUL) as one word of a line for the kept shell."""
    return quote(text).replace(b"\n", _NEWLINE)


def printf_of(data: bytes) -> bytes:
    """A `printf` of one line that writes any bytes, with builtins only."""
    if _PLAIN.fullmatch(data):
        return b"printf %s " + on_one_line(data)
    escaped = b"".join(_ESCAPES[byte] for byte in data)
    return b"printf %b " + on_one_line(escaped)


_ESCAPES = [
    b"\\\\" if byte == 0x5C else bytes([byte]) if _PLAIN.fullmatch(bytes([byte])) else b"\\0%03o" % byte
    for byte in range(256)
]


def call_line(
    number: int, mail: bytes, *, stdin: bytes = b"", stdin_pipe: str = "", in_file: bool = False
) -> bytes:
    """The request of a call: what the kept shell evaluates, without its token.

    Args:
        number: of the call, from 1.
        mail: the text of `Texts.call`, or what reads it from a file.
        stdin: for the command, when it is small.
        stdin_pipe: or the path of a named pipe that somebody writes it to.
        in_file: whether the text is to be found in the mailbox besides.
    """
    parts = [b"__m=" + on_one_line(mail)]
    if in_file:
        parts.append(b'printf %s "$__m" >"$__d/mail"')
    if stdin_pipe:
        parts.append(b"__i=" + quote(stdin_pipe.encode()))
    elif stdin:
        parts.append(b'__i=$__d/i%d; %b >"$__i"' % (number, printf_of(stdin)))
    parts.append(b"__n=%d" % number)
    return b"; ".join(parts)
