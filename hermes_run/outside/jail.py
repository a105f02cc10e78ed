"""The jail that the run's Chromium lives in: bubblewrap, nothing of the host but its programs, no network.

Its only way out is the proxy's socket on its own loopback (`netns.py`). Files are in memory, but for the
folder of downloads, which it shares with the runner.
"""

from __future__ import annotations

import shlex
from pathlib import Path

UID = 1000
_LINKS = ("/bin", "/sbin", "/lib", "/lib64", "/lib32")
_FILES = (
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/pki/tls/certs",
    "/etc/ssl/certs",
    "/usr/share/fonts",
)
_MEMORY = 1 << 30
"""Bytes of each file system in memory."""

MOST_FILE = 256 << 20
"""Bytes of a file that the browser writes, a download above all."""

MOST_DATA = 3 << 30
"""Bytes of memory that each of its processes writes to: a page asks in vain for more, or crashes alone."""

INFO = "info"
DOWNLOADS = "downloads"


def write_launcher(folder: Path, bwrap: str, program: str) -> Path:
    """A script in `folder` that starts `program` in the jail with the arguments that it is given.

    bubblewrap tells the process numbers in the file `info`.
    """
    (folder / DOWNLOADS).mkdir(exist_ok=True)
    words = [bwrap, *_arguments(folder, program), "--info-fd", "9", "--", program]
    script = folder / "chromium"
    command = " ".join(map(shlex.quote, words))
    start = f"ulimit -d {MOST_DATA // 1024}\n"
    start += (
        f"trap '' XFSZ\nulimit -f {MOST_FILE // 512}\n"  # a longer file is an error for its writer, no end
    )
    start += f'exec {command} "$@" 9>{shlex.quote(str(folder / INFO))}\n'
    script.write_text(f"#!/bin/sh\n{start}", "utf-8")
    script.chmod(0o700)
    return script


def _arguments(folder: Path, program: str) -> list[str]:
    words = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
    words += ["--uid", str(UID), "--gid", str(UID), "--hostname", "browser", "--ro-bind", "/usr", "/usr"]
    for link in _LINKS:
        if Path(link).is_symlink():
            words += ["--symlink", str(Path(link).readlink()), link]
        elif Path(link).exists():
            words += ["--ro-bind", link, link]
    for file in _FILES:
        words += ["--ro-bind-try", file, file]
    home = str(Path(program).parent)
    if not home.startswith("/usr/"):
        words += ["--ro-bind", home, home]
    shared = str(folder / DOWNLOADS)
    words += ["--proc", "/proc", "--dev", "/dev"]
    for place in ("/dev/shm", "/tmp"):  # noqa: S108 - the jail's own
        words += ["--size", str(_MEMORY), "--tmpfs", place]
    words += ["--dir", "/home/browser", "--bind", shared, shared, "--chdir", "/home/browser"]
    for name, value in (("HOME", "/home/browser"), ("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8")):
        words += ["--setenv", name, value]
    return words
