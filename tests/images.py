"""Small container images made of this machine's own programs: no registry is asked for anything.

::

    python tests/images.py            # make all of them, and print their names

`BUSYBOX` has a sh and nothing else beside it, `BASH` is Debian-like (bash, coreutils, procps, mawk,
python3). The others are odd on purpose. Making one again is quick, and changes nothing.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from docker import APIClient

BUSYBOX = "hermes-run-test/busybox:1"
BASH = "hermes-run-test/bash:1"
NO_SHELL = "hermes-run-test/no-shell:1"
NO_PROGRAM = "hermes-run-test/no-program:1"
BLOCKS = "hermes-run-test/blocks:1"
CHATTY_SHELL = "hermes-run-test/chatty-shell:1"
BANNER_SHELL = "hermes-run-test/banner-shell:1"
WORKDIR = "hermes-run-test/workdir:1"
USER = "hermes-run-test/user:1"
ENV = "hermes-run-test/env:1"
OTHER_CPU = "hermes-run-test/other-cpu:1"
VOLUME = "hermes-run-test/volume:1"

_PROGRAMS = """
bash sh dash cat ls cp mv rm ln mkdir rmdir mkfifo mknod touch chmod chown echo printf true false
sleep head tail wc sort uniq cut tr tee od seq yes nl tac paste dd df du id whoami uname hostname
env printenv pwd basename dirname readlink realpath stat date test expr md5sum sha256sum base64
timeout nohup nice stdbuf split truncate mktemp kill ps pgrep pkill free uptime setsid flock su grep
egrep sed awk mawk find xargs tar gzip diff cmp git python3 python3.11
"""
_LIBRARY = re.compile(r"(/\S+) \(0x")
_PYTHON = Path("/usr/lib/python3.11")
_SKIPPED = {"test", "idlelib", "lib2to3", "tkinter", "__pycache__", "distutils", "pydoc_data", "ensurepip"}
_CHATTY = b"""#!/bin/busybox sh
i=0
while [ $i -lt 2048 ]; do
  echo "line $i of a shell that has a lot to say and never listens to anybody, padded to a hundred bytes."
  i=$((i+1))
done
echo last words of the chatty shell
while :; do /bin/busybox sleep 1000; done
"""
"""Two hundred KiB, then silence."""


class _Tree:
    """A root file system, as a tar archive in memory."""

    def __init__(self) -> None:
        self._file = io.BytesIO()
        self._tar = tarfile.TarFile(fileobj=self._file, mode="w")
        self._there: set[str] = set()
        for name in ("etc", "root", "tmp", "usr", "usr/bin", "usr/lib", "var", "var/tmp"):
            self.folder(name, 0o1777 if name.endswith("tmp") else 0o755)
        self.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\napp:x:1234:1234:app:/home/app:/bin/sh\n")
        self.file("etc/group", b"root:x:0:\napp:x:1234:\n")

    def folder(self, name: str, mode: int = 0o755) -> None:
        if name not in self._there:
            self._add(name, tarfile.DIRTYPE, mode=mode)

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        self._parents(name)
        self._add(name, tarfile.REGTYPE, content, mode=mode)

    def link(self, name: str, target: str) -> None:
        self._parents(name)
        self._add(name, tarfile.SYMTYPE, target=target)

    def host_file(self, path: str | Path) -> None:
        """A file of this machine, with the links that lead to it."""
        path = Path(path).parent.resolve() / Path(path).name
        name = str(path).lstrip("/")
        if name in self._there:
            return
        if path.is_symlink():
            target = path.readlink()
            self.link(name, str(target))
            self.host_file(path.parent / target)
        else:
            self.file(name, path.read_bytes(), path.stat().st_mode & 0o777)

    def finish(self) -> bytes:
        self._tar.close()
        return self._file.getvalue()

    def _parents(self, name: str) -> None:
        for parent in reversed(Path(name).parents):
            if str(parent) not in (".", *self._there):
                self.folder(str(parent))

    def _add(
        self, name: str, kind: bytes, content: bytes = b"", *, target: str = "", mode: int = 0o777
    ) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.linkname, entry.size = kind, mode, target, len(content)
        self._there.add(name)
        self._tar.addfile(entry, io.BytesIO(content))


def _busybox_tree(*, has_shell: bool = True) -> _Tree:
    tree = _Tree()
    busybox = shutil.which("busybox")
    if busybox is None:
        raise FileNotFoundError("no busybox: install busybox-static")
    tree.file("bin/busybox", Path(busybox).read_bytes(), 0o755)
    listed = subprocess.run([busybox, "--list"], capture_output=True, check=True, text=True).stdout.split()
    for name in listed if has_shell else ():
        if name not in ("busybox", "bash"):
            tree.link(f"bin/{name}", "busybox")
    return tree


def busybox(mark: str = "") -> bytes:
    """A root file system with busybox alone: its sh, no bash, no python3. `mark` makes it another."""
    tree = _busybox_tree()
    if mark:
        tree.file("mark", mark.encode())
    return tree.finish()


def without_shell() -> bytes:
    """A root file system in which /bin/sh is not."""
    return _busybox_tree(has_shell=False).finish()


def shell_that_is_no_program() -> bytes:
    """A root file system whose /bin/sh nobody may run."""
    tree = _busybox_tree(has_shell=False)
    tree.file("bin/sh", b"text")
    return tree.finish()


def chatty_shell() -> bytes:
    """A root file system whose /bin/sh prints 200 KiB and then blocks."""
    tree = _busybox_tree(has_shell=False)
    tree.file("bin/sh", _CHATTY, 0o755)
    return tree.finish()


def banner_shell() -> bytes:
    """A root file system whose /bin/sh says something before it does anything."""
    tree = _busybox_tree(has_shell=False)
    tree.file(
        "bin/sh", b'#!/bin/busybox sh\necho banner; echo banner >&2\nexec /bin/busybox sh "$@"\n', 0o755
    )
    return tree.finish()


def bash() -> bytes:
    """A root file system like Debian's, of this machine's own programs."""
    tree = _Tree()
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            target = str(Path("/", name).readlink())
            tree.folder(target)
            tree.link(name, target)
    programs = [path for name in _PROGRAMS.split() if (path := shutil.which(name, path="/usr/bin:/bin"))]
    for program in programs:
        tree.host_file(program)
    extensions = [str(path) for path in _PYTHON.glob("lib-dynload/*.so")]
    for library in sorted(_libraries([*programs, *extensions])):
        tree.host_file(library)
    for file in sorted(_PYTHON.rglob("*")):
        if not _SKIPPED & set(file.parts) and "config-" not in str(file) and file.is_file():
            tree.host_file(file)
    return tree.finish()


def _libraries(programs: Iterable[str]) -> set[str]:
    """The shared libraries of some programs, as ldd lists them."""
    said = subprocess.run(["ldd", *programs], capture_output=True, check=False, text=True).stdout
    return set(_LIBRARY.findall(said))


_ODD: dict[str, tuple[Callable[[], bytes], list[str]]] = {
    BUSYBOX: (busybox, []),
    BASH: (bash, []),
    NO_SHELL: (without_shell, []),
    NO_PROGRAM: (shell_that_is_no_program, []),
    CHATTY_SHELL: (chatty_shell, []),
    BANNER_SHELL: (banner_shell, []),
    BLOCKS: (busybox, ['ENTRYPOINT ["/bin/sh", "-c", "echo entry point; sleep 100000"]', 'CMD ["x"]']),
    WORKDIR: (busybox, ["WORKDIR /testbed/repo"]),
    USER: (busybox, ["USER app"]),
    ENV: (busybox, ["ENV GREETING=hello", "ENV PATH=/opt/bin:/bin"]),
    VOLUME: (busybox, ["VOLUME /data"]),
}


def build(*images: str) -> None:
    """Make the images named (all of them, if none is), as far as they are not there yet."""
    from docker.errors import ImageNotFound

    with daemon() as client:
        for name in images or (*_ODD, OTHER_CPU):
            try:
                client.inspect_image(name)  # type: ignore[no-untyped-call]
            except ImageNotFound:
                _make(client, name)


def remove_containers(run: str, row: str | None = None) -> None:
    """Remove the containers of a run, or of one of its rows, as somebody else would."""
    labels = [f"hermes-run.run={run}", *([] if row is None else [f"hermes-run.row={row}"])]
    with daemon() as client:
        for each in client.containers(all=True, filters={"label": labels}):
            client.remove_container(each["Id"], force=True)


def remove(*names: str) -> None:
    """Remove images from the daemon's store, those that are there."""
    from docker.errors import ImageNotFound

    with daemon() as client:
        for name in names:
            with suppress(ImageNotFound):
                client.remove_image(name, force=True)


def _make(client: APIClient, name: str) -> None:
    repository, _, tag = name.partition(":")
    if name == OTHER_CPU:
        _load_for_another_cpu(client, repository, tag)
        return
    tree, changes = _ODD[name]
    client.import_image_from_data(tree(), repository=repository, tag=tag, changes=changes)


def _load_for_another_cpu(client: APIClient, repository: str, tag: str) -> None:
    """An image whose configuration says another CPU: `docker load` takes it, whatever is in it."""
    import hashlib
    import json

    layer = busybox()
    config: dict[str, Any] = {
        "architecture": "s390x",
        "os": "linux",
        "config": {"Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    files = {
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer,
        "manifest.json": json.dumps(
            [{"Config": "config.json", "RepoTags": [f"{repository}:{tag}"], "Layers": ["layer.tar"]}]
        ).encode(),
    }
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for file, content in files.items():
            entry = tarfile.TarInfo(file)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    for _ in client.load_image(archive.getvalue()):  # type: ignore[no-untyped-call]
        pass


def daemon() -> APIClient:
    from docker import APIClient
    from docker.utils import kwargs_from_env

    return APIClient(**kwargs_from_env(), timeout=300)


if __name__ == "__main__":
    build()
    print("\n".join((*_ODD, OTHER_CPU)))
