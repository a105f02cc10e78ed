"""A small root file system of programs of this machine, to make images of: no registry needed."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_FOLDERS = (
    "bin",
    "dev",
    "etc",
    "lib64",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr/bin",
    "usr/lib",
    "var/tmp",
)
_LEFT_OUT = shutil.ignore_patterns(
    "__pycache__",
    "config-*",
    "dist-packages",
    "distutils",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "test",
)
_PYTHON = "/usr/bin/python3"
_REAL = ("head", "ls", "nohup", "printenv")
"""Programs that busybox lacks, or that say something else there."""


@cache
def small_root(*, has_bash: bool = True) -> Path:
    """A folder with busybox and, for `has_bash`, bash and the system's Python; removed at the end."""
    root = Path(tempfile.mkdtemp(prefix="root-of-tests-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    root.chmod(0o755)
    for folder in _FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    busybox = shutil.which("busybox")
    if busybox is None:
        raise RuntimeError("no busybox here: install busybox-static")
    _put(root, busybox, "bin/busybox")
    said = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout
    for name in set(said.split()) - {"busybox"}:
        (root / "bin" / name).symlink_to("busybox")
    if has_bash:
        _put(root, os.path.realpath(shutil.which("bash") or "/bin/bash"), "bin/bash")
        for name in _REAL:
            _put(root, os.path.realpath(f"/usr/bin/{name}"), f"bin/{name}")
        _put_python(root)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    return root


def _put_python(root: Path) -> None:
    if not Path(_PYTHON).exists():
        return
    program = os.path.realpath(_PYTHON)
    library = Path("/usr/lib") / Path(program).name
    _put(root, program, "usr/bin/python3")
    shutil.copytree(library, root / str(library).lstrip("/"), ignore=_LEFT_OUT, copy_function=_copy)
    for module in (library / "lib-dynload").glob("_ctypes.*"):
        _put_libraries(root, str(module))


def _put(root: Path, program: str, place: str) -> None:
    """Copy a program and what it is linked with."""
    (root / place).unlink(missing_ok=True)
    shutil.copy(program, root / place)
    _put_libraries(root, program)


def _put_libraries(root: Path, program: str) -> None:
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    for library in re.findall(r"(/\S+) \(0x", said):
        place = root / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            shutil.copy(os.path.realpath(library), place)


def _copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)
