"""CPU and memory of set operations on manifests, beside a floor.

    python benchmarks/sets.py [-n 1000000]

The floor is the least that reading these manifests can cost: decoding key, status and hash of every line
of them with a typed decoder. Each operation is measured in a process of its own, floor and operation one
after the other, and printed as CPU seconds, as a multiple of that floor, and with the peak of memory.

- diff: two manifests of n entries; in the first pair 1 % of the entries differ, in the second all do.
- merge: ten manifests of n/10 entries each, entries only, into a run directory: manifest, sealed journal,
  plan, statistics, checkpoint. First ten that have nothing in common, then ten with equal keys of which
  half came to other results.
- diff and merge of run directories with their trajectories are in `benchmarks/store.py`.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hermes_run.core.messages import Usage
from hermes_run.store.combine import merge_runs
from hermes_run.store.entry import Entry, encode
from hermes_run.store.inspect import diff

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WORK = "0123456789abcdef0123456789abcdef"


class Floor(msgspec.Struct):
    key: str
    status: str
    hash: str


def read_floor(paths: Sequence[Path]) -> int:
    decode = msgspec.json.Decoder(Floor).decode
    count = 0
    for path in paths:
        with path.open("rb") as stream:
            for line in stream:
                count += decode(line).status == "completed"
    return count


def entry(key: str, dice: random.Random) -> Entry:
    """An entry as real runs have them: nine in ten completed, one in thirty failed."""
    status, reason, error = "completed", "finished", ""
    chance = dice.random()
    if chance < 1 / 30:
        status, reason, error = "failed", "provider_error", "HTTP 503: the model is overloaded"
    elif chance < 1 / 10:
        status, reason = "partial", "max_turns"
    turns, prompt = dice.randrange(1, 12), dice.randrange(500, 60_000)
    usage = Usage(prompt, 40 * turns, prompt + 40 * turns, prompt // 2, 12, round(prompt * 3e-6, 10), turns)
    return Entry(
        key=key,
        status=status,
        reason=reason,
        hash="" if error else f"{dice.getrandbits(128):032x}",
        work=WORK,
        toolsets=("file", "terminal"),
        turns=0 if error else turns,
        api_calls=turns,
        usage=usage,
        cost=usage.cost,
        model="anthropic/claude-sonnet-4.6",
        image_digest="",
        error=error,
    )


def write(path: Path, keys: Sequence[str], seed: int, share: float = 1.0) -> Path:
    """A manifest of these keys; another seed gives other results to a share of them."""
    dice, other = random.Random(0), random.Random(seed)
    with path.open("wb") as stream:
        for key in keys:
            found = entry(key, dice)
            if seed and other.random() < share:
                found = entry(key, other)
            stream.write(encode(found) + b"\n")
    return path


def keys_of(count: int, dice: random.Random) -> list[str]:
    return sorted(f"{dice.getrandbits(128):032x}#0" for _ in range(count))


def measured(name: str, most: float, paths: Sequence[Path], job: Callable[[], object]) -> None:
    """Run in a fork: the floor, then the job."""
    child = os.fork()
    if not child:
        start = time.process_time()
        read_floor(paths)
        floor = time.process_time() - start
        start = time.process_time()
        job()
        cost = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{name:34} {cost:7.2f} s  {cost / floor:5.1f} x floor (bound: {most:g})  {peak:5.0f} MiB",
            flush=True,
        )
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise SystemExit(f"{name}: failed")


def run(folder: Path, count: int) -> None:
    dice = random.Random(1)
    keys = keys_of(count, dice)
    whole = write(folder / "whole.jsonl", keys, 0)
    near = write(folder / "near.jsonl", keys, 2, 0.01)
    far = write(folder / "far.jsonl", keys, 3)
    tenth = count // 10
    apart = [write(folder / f"apart{n}.jsonl", sorted(keys[n::10]), 0) for n in range(10)]
    equal = [write(folder / f"equal{n}.jsonl", keys[:tenth], n, 0.5) for n in range(10)]
    del keys
    measured("diff: 1 % differ", 5, (whole, near), lambda: diff(whole, near))
    measured("diff: all differ", 5, (whole, far), lambda: diff(whole, far))
    measured("merge: ten with nothing in common", 8, apart, lambda: merge_runs(apart, folder / "a"))
    measured("merge: ten with equal keys", 8, equal, lambda: merge_runs(equal, folder / "e"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=1_000_000, help="entries")
    with tempfile.TemporaryDirectory() as place:
        run(Path(place), parser.parse_args().n)
