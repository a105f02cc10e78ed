"""The Sandbox contract: output of any size."""

from __future__ import annotations

import resource
import time
from typing import TYPE_CHECKING

import pytest

from tests.contracts.sandboxes import can, sh, text, within

if TYPE_CHECKING:
    from hermes_run.core.contracts import Sandbox


def test_long_output_is_cut_to_head_and_tail_and_kept_whole(name: str) -> None:
    async def work(box: Sandbox) -> None:
        result = await sh(box, "seq 1 200000; exit 7", max_output=1000)
        whole = "".join(f"{n}\n" for n in range(1, 200001)).encode()
        assert result.exit_code == 7
        assert result.output == whole[:400] + whole[-600:]
        assert (result.head, result.omitted) == (400, len(whole) - 1000)
        kept = await sh(box, f"cat '{result.full_path}'", max_output=10_000_000)
        assert kept.output == whole

    within(name, work)


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 1002, 65536, 65537])
def test_output_is_cut_exactly_at_its_limit(name: str, size: int) -> None:
    async def work(box: Sandbox) -> None:
        result = await sh(box, f"head -c {size} /dev/zero | tr '\\0' x", max_output=1000)
        assert len(result.output) == min(size, 1000)
        assert result.omitted == max(0, size - 1000)
        assert result.head == (size if size <= 1000 else 400)
        assert bool(result.full_path) == (size > 1000)

    within(name, work)


def test_no_output_may_be_asked_for(name: str) -> None:
    async def work(box: Sandbox) -> None:
        result = await sh(box, "echo x; exit 2", max_output=0)
        assert (result.output, result.omitted, result.exit_code) == (b"", 2, 2)

    within(name, work)


def test_hundred_mebibytes_do_not_grow_the_runner(name: str) -> None:
    async def work(box: Sandbox) -> None:
        await sh(box, "head -c 10000000 /dev/zero", max_output=50_000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await sh(
            box, "head -c 104857600 /dev/zero | tr '\\0' x; exit 5", max_output=50_000, timeout_s=60
        )
        assert result.exit_code == 5
        assert result.omitted == 104_857_600 - 50_000
        assert await text(box, f"wc -c < {result.full_path}") == "104857600\n"
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10  # KiB

    within(name, work)


def test_endless_output_ends_in_time(name: str) -> None:
    async def work(box: Sandbox) -> None:
        started = time.monotonic()
        result = await sh(box, "yes", timeout_s=1, max_output=1000)
        assert time.monotonic() - started < 1 + 2
        assert result.timed_out
        assert len(result.output) == 1000
        assert result.omitted > 1_000_000
        assert await text(box, "echo ok") == "ok\n"

    within(name, work)


def test_whole_output_never_overwrites_a_file_of_the_sandbox(name: str) -> None:
    async def work(box: Sandbox) -> None:
        first = (await sh(box, "seq 1000", max_output=100)).full_path
        taken = first.replace("output-1", "output-2")
        await sh(box, f"echo mine > {taken}; ln -s {taken} {first.replace('output-1', 'output-3')}")
        for _ in range(2):
            path = (await sh(box, "seq 1000", max_output=100)).full_path
            assert await text(box, f"tail -n 1 {path}") == "1000\n"
        assert await text(box, f"cat {taken}") == "mine\n"

    within(name, work)


def test_only_the_last_whole_outputs_are_kept(name: str) -> None:
    async def work(box: Sandbox) -> None:
        paths = [(await sh(box, "seq 1000", max_output=100)).full_path for _ in range(10)]
        there = (await text(box, f"ls {' '.join(paths)} 2>/dev/null")).split()
        assert there == sorted(paths[2:])

    within(name, work)


def test_full_disk_loses_only_the_whole_output(name: str) -> None:
    can(name, "files", "memory")

    async def work(box: Sandbox) -> None:
        await sh(box, "head -c 100000000 /dev/zero > /tmp/fill")
        result = await sh(box, "seq 100000; exit 3", max_output=100)
        assert (result.exit_code, result.full_path, len(result.output)) == (3, "", 100)

    within(name, work, memory_mb=64)
