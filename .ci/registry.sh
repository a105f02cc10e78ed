#!/usr/bin/env bash
# A registry of images on loopback, for tests: Debian's docker-registry, with an empty store.
#
# usage: .ci/registry.sh [PORT] [FOLDER] [stop]     PORT is 5000, FOLDER /var/tmp/hermes-run-registry by default.
# Does nothing when one answers there. It outlives this script; its output and process id are in FOLDER.
set -euo pipefail
port=${1:-5000}
folder=${2:-/var/tmp/hermes-run-registry}
patience_s=20

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }

if [ "${3:-}" = stop ]; then
  if [ -f "$folder/pid" ]; then kill "$(cat "$folder/pid")" 2>/dev/null || true; fi
  rm -rf "$folder"
  exit 0
fi
if ! command -v docker-registry >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends docker-registry >/dev/null
fi
if answers; then exit 0; fi
mkdir -p "$folder/store"
cat >"$folder/config.yml" <<CONF
version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: $folder/store}, delete: {enabled: true}}
http: {addr: "127.0.0.1:$port"}
CONF
setsid docker-registry serve "$folder/config.yml" >"$folder/log" 2>&1 </dev/null &
echo $! >"$folder/pid"
for _ in $(seq $((patience_s * 10))); do
  if answers; then echo "registry on 127.0.0.1:$port"; exit 0; fi
  if ! kill -0 "$(cat "$folder/pid")" 2>/dev/null; then break; fi
  sleep 0.1
done
echo "registry.sh: no registry answers; the end of $folder/log:" >&2
tail -n 20 "$folder/log" >&2
exit 1
