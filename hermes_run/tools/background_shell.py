r"""The shell text of background commands. Any POSIX shell runs it; `setsid` is used where there is one.

Variables: `d` the session's folder, `pid` its shell, `recorder` the subshell that waits for it. `USR1`
makes the recorder close its end of the FIFO. Each command has `HERMES_SESSION=<folder>` in its
environment, by which everything it started is found however it was detached.
"""

START = r"""
set +m 2>/dev/null
r={root}; d=$r/{name}
mkdir -p "$r" && mkdir "$d" && mkfifo "$d/in" "$d/ready" && cat >"$d/cmd" && : >"$d/log" || exit 75
(
  exec 3<>"$d/in" 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
  again=1
  trap 'exec 3>&-; again=1' USR1
  trap '' HUP INT
  s=setsid; command -v setsid >/dev/null || s=
  HERMES_SESSION=$d $s {shell} -c '__c=$(cat "$1"); shift; eval "$__c"' {shell} "$d/cmd" \
    <"$d/in" >>"$d/log" 2>&1 3>&- &
  pid=$!
  echo "$pid" >"$d/ready"
  while [ -n "$again" ]; do again=; wait "$pid"; code=$?; done
  echo "$code" >"$d/exit"
) </dev/null >/dev/null 2>&1 &
recorder=$!
read -r pid <"$d/ready"
printf '%s\n%s\n%s\n' "$r" "$recorder" "$pid"
"""

# `status` sets c to the exit code, or to running or lost. A command that is gone without a code gets a
# moment for its recorder to write it. A zombie whose recorder is gone is gone as well.
STATUS = r"""
lives() {
  kill -0 "$pid" 2>/dev/null || return
  [ -r "/proc/$pid/stat" ] || return 0
  { read -r line <"/proc/$pid/stat"; } 2>/dev/null || return
  case ${line##*) } in Z*) return 1 ;; esac
}
status() {
  c=running
  if [ -s "$d/exit" ]; then read -r c <"$d/exit"; return; fi
  lives && return
  sleep 0.2 2>/dev/null || sleep 1
  c=lost
  if [ -s "$d/exit" ]; then read -r c <"$d/exit"; fi
}
"""

LIST = r"""
for one in {names}; do
  d=$root/${{one%:*}}; pid=${{one#*:}}
  status; echo "$c"
done
"""

WAIT = r"""
i=0
while [ "$i" -lt {tries} ] && [ ! -s "$d/exit" ] && lives; do
  if [ "$i" -lt 20 ]; then s=0.1; else s=0.5; fi
  sleep "$s" 2>/dev/null || sleep 1
  i=$((i + 1))
done
"""

NEWS = r"""
status
s=$(($(wc -c <"$d/log"))); k={seen}
[ $((s - k)) -le {most} ] || k=$((s - {most}))
echo "$c $k $s"
[ "$s" -eq "$k" ] || tail -c +$((k + 1)) "$d/log" | head -c $((s - k))
"""

LOG = r"""
status
n=$(($(wc -l <"$d/log")))
{{ if [ -n "$(tail -c 1 "$d/log")" ]; then n=$((n + 1)); fi; }} 2>/dev/null
k={offset}
if [ "$k" -eq 0 ]; then k=$((n - {limit} + 1)); fi
[ "$k" -ge 1 ] || k=1
echo "$c $k $n"
tail -n +"$k" "$d/log" | head -n {limit} | head -c {most}
"""

WRITE = r"""
status
[ "$c" = running ] || { echo "it has ended with exit code $c"; exit 70; }
cat >"$d/in"
"""

CLOSE = r"""
kill -USR1 "$recorder" 2>/dev/null || :
"""

# `collect` sets `all` to the pids, zombies aside, that descend from those given (the command) or carry its
# mark. The number of a command that has ended may be another process's by now.
KILL = r"""
table() {
  if [ -r /proc/self/stat ]; then
    for f in /proc/[0-9]*/stat; do
      { read -r line <"$f"; } 2>/dev/null || continue
      set -- ${line##*)}
      case ${1-Z} in Z) ;; *) f=${f%/stat}; echo "${f#/proc/} $2" ;; esac
    done
  else
    ps -A -o pid= -o ppid=
  fi
}
collect() {
  t=$(table); all=${1-" $pid "}; more=1
  while [ -n "$more" ]; do
    more=
    while read -r a b; do
      case $all in *" $a "*) ;; *" ${b:-none} "*) all="$all$a "; more=1 ;; esac
    done <<TABLE
$t
TABLE
  done
  for f in $(grep -lzxF "HERMES_SESSION=$d" /proc/[0-9]*/environ 2>/dev/null); do
    f=${f#/proc/}; f=${f%/environ}
    case $all in *" $f "*) ;; *) all="$all$f " ;; esac
  done
}
alive() {
  t=$nl$(table)
  for q in $all; do
    case $t in *"$nl$q "*) return 0 ;; esac
  done
  return 1
}
status
if [ "$c" = running ]; then collect; else collect " "; fi
kill -s TERM -- $all 2>/dev/null
i=0
while [ "$i" -lt 10 ] && alive; do sleep 0.1 2>/dev/null || sleep 1; i=$((i + 1)); done
i=0
while [ "$i" -lt 5 ]; do
  collect "$all"
  alive || break
  kill -s KILL -- $all 2>/dev/null
  i=$((i + 1))
done
status
[ "$c" != running ] || { sleep 0.2 2>/dev/null || sleep 1; status; }
echo "$c"
"""
