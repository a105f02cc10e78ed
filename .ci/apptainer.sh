#!/usr/bin/env bash
# Makes `apptainer` available where the system has no package of it (Debian 12): Debian's newer package, unpacked
# beside the system with the C library that it needs; nothing of the system is upgraded.
#
# usage: .ci/apptainer.sh [FOLDER]     as root; FOLDER (default /opt/apptainer) gets about 80 MB. Does nothing when
# there is an apptainer or singularity that runs. Leaves /usr/local/bin/apptainer, a link, unless APPTAINER_LINK
# names another place for it.
set -euo pipefail
folder=$(realpath -m "${1:-/opt/apptainer}")
link=${APPTAINER_LINK:-/usr/local/bin/apptainer}

works() { "$1" --version >/dev/null 2>&1; }
if works apptainer || works singularity; then exit 0; fi

need=()
command -v patchelf >/dev/null || need+=(patchelf)
command -v mksquashfs >/dev/null || need+=(squashfs-tools)
for library in libseccomp.so.2:libseccomp2 libsqlite3.so.0:libsqlite3-0; do
  grep -q "${library%:*}" <<<"$(ldconfig -p)" || need+=("${library#*:}")
done
if [ ${#need[@]} -gt 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends "${need[@]}" >/dev/null
fi

if ! works "$folder/usr/bin/apptainer"; then
  rm -rf "$folder"
  apt=$(mktemp -d)
  trap 'rm -rf "$apt"' EXIT
  mkdir -p "$apt"/{lists/partial,archives/partial,parts,debs,libc} "$folder"
  : >"$apt/status"
  mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/$' | head -n 1)
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:?apt knows no Debian mirror} sid main" \
    >"$apt/sources.list"
  # A private view of the newer release. A mirror may be a snapshot, whose dates are past.
  cat >"$apt/apt.conf" <<CONF
Dir::State "$apt"; Dir::State::status "$apt/status"; Dir::State::lists "$apt/lists";
Dir::Cache "$apt"; Dir::Cache::archives "$apt/archives";
Dir::Etc::sourcelist "$apt/sources.list"; Dir::Etc::sourceparts "$apt/parts"; Dir::Etc::parts "$apt/parts";
APT::Sandbox::User "root"; Acquire::Languages "none"; Acquire::Check-Valid-Until "false";
CONF
  (
    export APT_CONFIG=$apt/apt.conf
    apt-get -qq update
    cd "$apt/debs"
    apt-get -qq download apptainer libc6
  )
  dpkg-deb -x "$apt"/debs/apptainer_*.deb "$folder"
  dpkg-deb -x "$apt"/debs/libc6_*.deb "$apt/libc"
  mkdir -p "$folder/libc"
  libc=$(dirname "$(find "$apt/libc" -name libc.so.6 | head -n 1)")
  cp -a "$libc/." "$folder/libc/"
  loader=$(find "$folder/libc" -name 'ld-linux*.so.*' | head -n 1)
  system=$(dirname "$(ldconfig -p | sed -n 's/.*libseccomp\.so\.2 .*=> //p' | head -n 1)")
  starter=$(find "$folder/usr/lib" -path '*/apptainer/bin/starter')
  for program in "$folder/usr/bin/apptainer" "$starter"; do
    patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$folder/libc:$system" "$program"
  done
  # It looks for its configuration and its mount point below its own prefix.
  sed -i 's/^ *systemd cgroups = .*/systemd cgroups = no/' "$folder/etc/apptainer/apptainer.conf"
  for prefix in "$folder/usr" "$folder/usr/lib"; do
    mkdir -p "$prefix/etc" "$prefix/var/lib/apptainer/mnt/session"
    cp -r "$folder/etc/apptainer" "$prefix/etc/"
  done
fi
mkdir -p "$(dirname "$link")"
ln -sf "$folder/usr/bin/apptainer" "$link"
"$link" --version
