"""The /etc of a bubblewrap sandbox: made once per run, mounted read-only into each.

Copied are only files that programs under /usr cannot do without and that hold no secret by their
kind. Everything that can hold a password, a token or a name of this machine (passwd, shadow, hosts,
gitconfig, pip.conf, environment, ssl/private, ...) is left out or made up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat

_COPIED = (
    "alternatives",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "java-*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "lsb-release",
    "magic",
    "magic.mime",
    "mime.types",
    "os-release",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "protocols",
    "python3*",
    "R",
    "redhat-release",
    "rpc",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
_MADE_UP = {
    "passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/workspace:/bin/sh\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "hostname": "sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    "host.conf": "multi on\n",
}
_MOST_FILE = 4 << 20


def make_etc(target: str, *, with_network: bool) -> None:
    """Make the folder `target`."""
    from glob import glob

    os.mkdir(target, 0o755)
    for name in (*_COPIED, *(("resolv.conf",) if with_network else ())):
        for source in glob(f"/etc/{name}"):
            destination = f"{target}/{os.path.relpath(source, '/etc')}"
            os.makedirs(os.path.dirname(destination), exist_ok=True)
            _copy(source, destination, follow=name == "resolv.conf")
    for name, text in _MADE_UP.items():
        with open(f"{target}/{name}", "w", encoding="ascii") as file:
            file.write(text)
    os.symlink("/proc/self/mounts", f"{target}/mtab")


def _copy(source: str, destination: str, *, follow: bool = False) -> None:
    """Copy a file or folder of plain files and links that everybody may read."""
    with contextlib.suppress(OSError):
        mode = (os.stat if follow else os.lstat)(source).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(source), destination)
        elif stat.S_ISDIR(mode):
            os.mkdir(destination, 0o755)
            for entry in os.scandir(source):
                _copy(entry.path, f"{destination}/{entry.name}")
        elif stat.S_ISREG(mode) and mode & stat.S_IROTH and os.stat(source).st_size <= _MOST_FILE:
            shutil.copyfile(source, destination)
