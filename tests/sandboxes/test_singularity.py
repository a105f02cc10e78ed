"""What only singularity has to show: images from registries and from files, its cache, starts that fail."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_run.core.contracts import SandboxRequest
from hermes_run.errors import BackendMissing, SandboxError
from hermes_run.sandboxes import _images, _singularity_build
from hermes_run.sandboxes._singularity_machine import find_binary
from hermes_run.sandboxes.singularity import SingularityBackend
from hermes_run.spec.model import SandboxSettings, Settings
from tests.conftest import require
from tests.contracts.sandboxes import what_is_missing
from tests.roots import small_root
from tests.sandboxes.small_registry import SmallRegistry, small_registry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

pytestmark = [pytest.mark.singularity, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _works(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = what_is_missing("singularity")
    if isinstance(missing, str):
        require("singularity", missing)
    monkeypatch.setattr(_images, "_FIRST_WAIT_S", 0.001)


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    with small_registry() as made:
        yield made


@pytest.fixture(scope="module")
def sif(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SIF made of the small root."""
    path = tmp_path_factory.mktemp("sif") / "small.sif"
    if isinstance(what_is_missing("singularity"), str):
        return path
    root = str(small_root(has_bash=False))
    subprocess.run([find_binary(None), "--silent", "build", str(path), root], check=True, capture_output=True)
    return path


def with_backend(cache: Path, work: Callable[[SingularityBackend], Awaitable[Any]], **settings: Any) -> Any:
    async def main() -> Any:
        chosen = SandboxSettings(image_cache=cache, **settings)
        backend = SingularityBackend("r", Settings(sandbox=chosen))
        try:
            return await work(backend)
        finally:
            await backend.aclose()

    return asyncio.run(main())


async def said(backend: SingularityBackend, image: str, command: str = "echo up", **request: Any) -> str:
    wanted = SandboxRequest(**{"run": "r", "key": "k", "image": image, "start_timeout_s": 20, **request})
    async with backend.open(wanted) as box:
        return (await box.exec(command, timeout_s=10)).output.decode()


def failure(cache: Path, image: str, reason: str = "image", **settings: Any) -> str:
    request = settings.pop("request", {})
    with pytest.raises(SandboxError) as raised:
        with_backend(cache, lambda backend: said(backend, image, **request), **settings)
    assert raised.value.reason == reason
    return str(raised.value)


# ---------------------------------------------------------------- from a registry


def test_an_image_of_a_registry_brings_its_environment_and_folder(
    tmp_path: Path, registry: SmallRegistry
) -> None:
    config = {
        "Env": ["PATH=/opt/tools:/usr/bin:/bin", 'GREETING=it\'s "me"', "LANG=xx"],
        "WorkingDir": "/testbed/repo",
        "Entrypoint": ["/bin/sh", "-c", "echo from the entry point; sleep 1000"],
    }
    digest = registry.put("box:1", small_root(has_bash=False), config=config)

    async def work(backend: SingularityBackend) -> None:
        request = SandboxRequest(run="r", key="k", image=f"{registry.host}/box:1")
        async with backend.open(request) as box:
            assert (box.info.image_digest, box.info.cwd, box.info.shell) == (digest, "/testbed/repo", "sh")
            result = await box.exec("pwd; echo $PATH; echo $GREETING; echo $LANG; env", timeout_s=10)
        lines = result.output.decode().splitlines()
        assert lines[:4] == ["/testbed/repo", "/opt/tools:/usr/bin:/bin", 'it\'s "me"', "xx"]
        assert not [line for line in lines if "SINGULARITY" in line or "APPTAINER" in line]

    with_backend(tmp_path / "cache", work)


def test_a_sif_is_built_once_for_every_name_prompt_and_run(tmp_path: Path, registry: SmallRegistry) -> None:
    registry.put("box:latest", small_root(has_bash=False))
    names = [f"{registry.host}/box", f"docker://{registry.host}/box:latest"]

    async def work(backend: SingularityBackend) -> None:
        assert await backend.images_present(names) == dict.fromkeys(names, False)
        backend.prefetch(names)
        assert (
            await asyncio.gather(*(said(backend, names[n % 2], key=str(n)) for n in range(4))) == ["up\n"] * 4
        )
        assert await backend.images_present(names) == dict.fromkeys(names, True)

    with_backend(tmp_path, work)
    blobs = [path for path in registry.asked if path.startswith("GET") and "/blobs/" in path]
    assert len({*blobs}) >= 2
    asked = len(registry.asked)
    with_backend(tmp_path, lambda backend: said(backend, names[0]))
    assert registry.asked[asked:] == ["HEAD /v2/box/manifests/latest"]
    assert len([*tmp_path.glob("sif/*.sif")]) == 1
    assert [*tmp_path.glob("building/*")] == []


@pytest.mark.slow
def test_two_runs_at_once_build_an_image_once(tmp_path: Path, registry: SmallRegistry) -> None:
    registry.put("box:1", small_root(has_bash=False))
    program = (
        "import asyncio, pathlib, sys\n"
        "from tests.sandboxes.test_singularity import said, with_backend\n"
        "print(with_backend(pathlib.Path(sys.argv[1]), lambda backend: said(backend, sys.argv[2])))"
    )
    words = [sys.executable, "-c", program, str(tmp_path), f"{registry.host}/box:1"]
    runs = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(2)]
    assert [run.communicate(timeout=60)[0] for run in runs] == [b"up\n\n"] * 2
    layers = [path for path in registry.asked if path.startswith("GET") and "/blobs/" in path]
    assert len(layers) <= 3  # configuration (looked at by both sides) and layer, of one build
    assert len([*tmp_path.glob("sif/*.sif")]) == 1


@pytest.mark.slow
def test_a_tag_that_moved_means_the_new_image_and_a_registry_that_is_down_the_kept_one(
    tmp_path: Path, registry: SmallRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    image = f"{registry.host}/box:1"
    first = registry.put("box:1", small_root(has_bash=False))
    assert with_backend(tmp_path, lambda backend: digest_of(backend, image)) == first
    second = registry.put("box:1", small_root(has_bash=False), config={"WorkingDir": "/new"})
    assert with_backend(tmp_path, lambda backend: digest_of(backend, image)) == second != first
    assert with_backend(tmp_path, lambda backend: digest_of(backend, f"{registry.host}/box@{first}")) == first
    registry.refusals = [503]
    assert with_backend(tmp_path, lambda backend: digest_of(backend, image)) == second
    assert "the copy in the cache is used" in caplog.text


async def digest_of(backend: SingularityBackend, image: str) -> str:
    async with backend.open(SandboxRequest(run="r", key="k", image=image)) as box:
        return box.info.image_digest


@pytest.mark.slow
def test_a_busy_registry_is_asked_again(tmp_path: Path, registry: SmallRegistry) -> None:
    registry.put("box:1", small_root(has_bash=False))
    registry.refusals = [429, 503]
    assert with_backend(tmp_path, lambda backend: said(backend, f"{registry.host}/box:1")) == "up\n"


def test_a_registry_that_stops_in_the_middle_is_given_up(
    tmp_path: Path, registry: SmallRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.put("box:1", small_root(has_bash=False))
    registry.until = threading.Event()
    monkeypatch.setattr(_images, "_TRIES", 1)
    monkeypatch.setattr(_singularity_build, "_STALL_S", 1.0)
    try:
        with pytest.raises(SandboxError, match="nothing comes any more") as caught:
            with_backend(tmp_path, lambda backend: said(backend, f"{registry.host}/box:1"))
    finally:
        registry.until.set()
    assert caught.value.reason == "image"
    monkeypatch.setattr(_singularity_build, "_STALL_S", 180.0)
    assert with_backend(tmp_path, lambda backend: said(backend, f"{registry.host}/box:1")) == "up\n"


@pytest.mark.slow
def test_an_index_gives_the_image_of_this_cpu(tmp_path: Path, registry: SmallRegistry) -> None:
    digest = registry.put("box:1", small_root(has_bash=False), cpus=("s390x", "amd64", "arm64"))
    image = f"{registry.host}/box:1"
    assert with_backend(tmp_path, lambda backend: digest_of(backend, image)) == digest


def test_an_image_that_cannot_be_had_fails_with_one_clear_reason(
    tmp_path: Path, registry: SmallRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_images, "_TRIES", 2)
    monkeypatch.setenv("HOME", str(tmp_path))
    registry.put("other:1", small_root(has_bash=False), cpus=("s390x",))
    registry.put("others:1", small_root(has_bash=False), cpus=("s390x", "arm64"))
    assert "does not exist in its registry" in failure(tmp_path, f"{registry.host}/nowhere:1")
    for image, cpus in (("other", "s390x"), ("others", "arm64, s390x")):
        message = failure(tmp_path, f"{registry.host}/{image}:1")
        assert f"for another CPU ({cpus})" in message
    registry.refusals = [429, 429]
    assert "too many requests (429)" in failure(tmp_path, f"{registry.host}/busy:1")
    registry.login = "somebody:secret"
    assert "wants a login" in failure(tmp_path, f"{registry.host}/secret:1")
    assert "does not answer (connection refused)" in failure(tmp_path, "127.0.0.1:9/down:1")
    assert [*tmp_path.glob("sif/*")] == []


@pytest.mark.slow
def test_a_stored_login_is_used(
    tmp_path: Path, registry: SmallRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.put("box:1", small_root(has_bash=False))
    registry.login = "somebody:secret"
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".docker").mkdir()
    auth = {"auths": {registry.host: {"auth": base64.b64encode(b"somebody:secret").decode()}}}
    (tmp_path / ".docker/config.json").write_text(json.dumps(auth))
    image = f"{registry.host}/box:1"
    assert with_backend(tmp_path / "c", lambda backend: said(backend, image)) == "up\n"


@pytest.mark.parametrize(
    "image",
    ["", "Upper/Case", "a b", "instance://other", "library://x/y", "shub://x", "docker-archive:x.tar", "-x"],
)
def test_what_is_no_image_is_refused_by_name(tmp_path: Path, image: str) -> None:
    assert f'"{image}"' in failure(tmp_path, image)


# ---------------------------------------------------------------- files and folders of this machine


def test_a_sif_or_folder_of_this_machine_is_refused_unless_the_settings_allow_it(
    tmp_path: Path, sif: Path
) -> None:
    for image in (str(sif), str(small_root(has_bash=False)), "/", "./x", "../x.sif", "x.sif", "~"):
        assert "allow_local_images" in failure(tmp_path, image)

    async def work(backend: SingularityBackend) -> None:
        assert (await digest_of(backend, str(sif))).startswith("sha256:")
        assert await said(backend, str(sif), "echo new > /etc/passwd; cat /etc/passwd") == "new\n"
        assert "root" in await said(backend, str(sif), "cat /etc/passwd")
        assert await said(backend, str(small_root(has_bash=False))) == "up\n"

    with_backend(tmp_path, work, allow_local_images=True)
    assert "does not exist on this machine" in failure(tmp_path, "/no/such.sif", allow_local_images=True)


def test_what_is_no_image_file_fails_its_own_start(tmp_path: Path) -> None:
    (tmp_path / "text.sif").write_text("no image")
    message = failure(tmp_path, str(tmp_path / "text.sif"), "sandbox_start", allow_local_images=True)
    assert "did not start" in message


def a_root_with_shell(tmp_path: Path, shell: str | None) -> str:
    root = tmp_path / "root"
    for folder in ("bin", "dev", "etc", "proc", "sys", "tmp", "var/tmp"):
        (root / folder).mkdir(parents=True)
    busybox = small_root(has_bash=False) / "bin/busybox"
    shutil.copy(busybox, root / "bin/busybox")
    if shell is not None:
        (root / "bin/sh").write_text(shell)
        (root / "bin/sh").chmod(0o755)
    return str(root)


def test_an_image_without_a_shell_says_so(tmp_path: Path) -> None:
    image = a_root_with_shell(tmp_path, None)
    message = failure(tmp_path, image, "sandbox_start", allow_local_images=True)
    assert "the image has no shell" in message


def test_an_image_whose_shell_prints_and_blocks_fails_in_time_with_its_last_lines(tmp_path: Path) -> None:
    image = a_root_with_shell(tmp_path, "#!/bin/busybox sh\necho last words\nexec /bin/busybox sleep 1000\n")
    started = time.monotonic()
    message = failure(
        tmp_path, image, "sandbox_start", allow_local_images=True, request={"start_timeout_s": 1}
    )
    assert time.monotonic() - started < 6
    assert "within 1 s" in message
    assert "last words" in message


# ---------------------------------------------------------------- this machine


def test_no_binary_is_told_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendMissing, match="singularity_binary"):
        with_backend(tmp_path, lambda backend: backend.check())
    with pytest.raises(BackendMissing, match="there is no such program"):
        with_backend(tmp_path, lambda backend: backend.check(), singularity_binary="/no/such/apptainer")


def test_a_program_that_fails_is_told_with_its_words(tmp_path: Path) -> None:
    program = tmp_path / "apptainer"
    program.write_text("#!/bin/sh\necho 'FATAL: no user namespaces here' >&2; exit 255\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(BackendMissing, match=r"no user namespaces here.*sysctl"):
        with_backend(tmp_path, lambda backend: backend.check(), singularity_binary=str(program))


def test_commands_cannot_change_the_host_kernel(tmp_path: Path) -> None:
    async def work(backend: SingularityBackend) -> None:
        request = SandboxRequest(run="r", key="k", image=str(small_root()))
        async with backend.open(request) as box:
            for command in (
                "unshare -U true",
                "mount -t tmpfs x /mnt",
                "umount /tmp",
                "mount -o remount,rw /proc/sys",
                "mknod d b 7 0 && head -c 1 d",
                "echo core > /proc/sys/kernel/core_pattern",
                "echo 50 > /proc/sys/vm/swappiness",
                "echo h > /proc/sysrq-trigger",
                "for f in /proc/irq/*/smp_affinity; do cat $f > $f && exit; done; exit 1",
                "ls /sys/kernel /sys/fs",
                "ls /dev/sd* /dev/vd* /dev/loop* /dev/mem /dev/kmsg",
            ):
                assert (await box.exec(command, timeout_s=10)).exit_code != 0, command
            status = (await box.exec("cat /proc/self/status", timeout_s=10)).output
            for line in (
                b"CapEff:\t0000000000000000",
                b"CapBnd:\t0000000000000000",
                b"NoNewPrivs:\t1",
                b"Seccomp:\t2",
            ):
                assert line in status

    with_backend(tmp_path, work, allow_local_images=True)


def test_no_mount_loop_device_or_process_is_left(tmp_path: Path, sif: Path) -> None:
    def seen() -> list[str]:
        """Mounts of sandboxes and loop devices of the image, of this test or of others like it."""
        loops = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=False).stdout
        mounts = Path("/proc/self/mountinfo").read_text()
        return [
            line
            for line in (loops + mounts).splitlines()
            if str(sif) in line or "hermes-run" in line or "mnt/session" in line
        ]

    async def work(backend: SingularityBackend) -> None:
        await asyncio.gather(*(said(backend, str(sif), "sleep 500 & echo up", key=str(n)) for n in range(4)))

    with_backend(tmp_path, work, allow_local_images=True)
    until = time.monotonic() + 5
    while seen() and time.monotonic() < until:
        time.sleep(0.05)  # the kernel lets a loop device go a moment after its last mount
    assert seen() == []


_AS_ANOTHER_USER = """
import asyncio, os, pathlib, sys
program, image, _, *sys.path[:0] = sys.argv[1:]
os.setgid(65534); os.setgroups([]); os.setuid(65534)
from hermes_run.core.contracts import SandboxRequest
from hermes_run.sandboxes.singularity import SingularityBackend
from hermes_run.spec.model import SandboxSettings, Settings

async def main():
    cache = pathlib.Path(sys.argv[3])
    chosen = SandboxSettings(singularity_binary=program, allow_local_images=True, image_cache=cache)
    backend = SingularityBackend("r", Settings(sandbox=chosen))
    async with backend.open(SandboxRequest(run="r", key="k", image=image, memory_mb=128)) as box:
        fill = "id -u; echo $HOME; head -c 200000000 /dev/zero > big || echo full; rm big"
        result = await box.exec(fill, timeout_s=20)
        print(result.output.decode().split("\\n"))
        print((await box.exec("sleep 60 & sleep 60", timeout_s=0.2)).timed_out)
        print((await box.exec("seq 100000", timeout_s=5, max_output=100)).full_path)
    await backend.aclose()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_user_without_privileges_has_sandboxes_too(sif: Path) -> None:
    paths = [str(Path(__file__).parents[2]), *(path for path in sys.path if path.endswith("site-packages"))]
    for folder in [each for each in sif.parents if "pytest" in str(each)]:
        folder.chmod(folder.stat().st_mode | 0o055)
    words = [find_binary(None), str(sif), str(sif.parent / "cache"), *paths]
    ran = subprocess.run(
        ["/usr/bin/python3", "-c", _AS_ANOTHER_USER, *words], capture_output=True, cwd="/", check=False
    )
    if b"PermissionError" in ran.stderr or b"ModuleNotFoundError" in ran.stderr:
        pytest.skip("another user cannot read this checkout")
    lines = ran.stdout.decode().splitlines()
    assert lines[1:] == ["True", "/tmp/output-1.txt"], ran.stderr.decode()
    assert lines[0].startswith("['65534', '/workspace', ")
    assert "full" in lines[0]
