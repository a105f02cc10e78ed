#!/usr/bin/env bash
# Makes a Docker daemon answer on this machine, without an init system: Debian's docker.io, started by hand.
#
# usage: .ci/docker.sh [stop]     as root. Does nothing when a daemon answers. The daemon outlives this script; its
# output goes to /var/log/dockerd.log, its process id to /run/docker-by-hand.pid.
set -euo pipefail
log=/var/log/dockerd.log
pid=/run/docker-by-hand.pid
patience_s=60

answers() { docker version --format '{{.Server.Version}}' 2>/dev/null; }

if [ "${1:-}" = stop ]; then
  if [ -f "$pid" ]; then
    kill "$(cat "$pid")" 2>/dev/null || true
    rm -f "$pid"
  fi
  exit 0
fi

need=()
command -v dockerd >/dev/null || need+=(docker.io)
command -v iptables >/dev/null || need+=(iptables)
if [ ${#need[@]} -gt 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  # Packages start their services when an init system is there to be asked; here nobody is.
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends "${need[@]}" >/dev/null
fi
if version=$(answers); then echo "docker $version"; exit 0; fi

if [ ! -e /sys/fs/cgroup/cgroup.controllers ] && ! mountpoint -q /sys/fs/cgroup/pids; then
  echo "docker.sh: control groups are not mounted under /sys/fs/cgroup; the daemon may not start" >&2
fi
rm -f /var/run/docker.pid # what a killed machine left; a daemon that lives answers, and was seen above
setsid dockerd >"$log" 2>&1 </dev/null &
echo $! >"$pid"
for _ in $(seq $((patience_s * 5))); do
  if version=$(answers); then echo "docker $version"; exit 0; fi
  if ! kill -0 "$(cat "$pid")" 2>/dev/null; then break; fi
  sleep 0.2
done
echo "docker.sh: no daemon answers; the end of $log:" >&2
tail -n 20 "$log" >&2
exit 1
