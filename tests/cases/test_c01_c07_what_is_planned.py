"""C01 and C07: copies, samples, limits and order, each changed on top of what was run before."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.flow.replies import turns

if TYPE_CHECKING:
    from tests.flow.lab import Lab
    from tests.servers import ModelServer

pytestmark = pytest.mark.slow

ROWS = ("[a]", "[a]", "[b]", "[a]", "[c]", "[b]")


def run(lab: Lab, server: ModelServer, rows: tuple[str, ...], **dataset: object) -> Counter[str]:
    """Run it; how many conversations of each prompt that took."""
    lab.write_rows([{"prompt": prompt, "place": place} for place, prompt in enumerate(rows)])
    lab.spec["dataset"] = {"path": "data.jsonl", **dataset}
    before = len(server.requests)
    assert lab.run("-q").code == 0
    return Counter(request.prompt for request in server.requests[before:] if request.turn == 0)


def check(lab: Lab, rows: list[tuple[int, str]], samples: int) -> None:
    """The merged file is these rows (place, prompt), in order, each `samples` times, all keys distinct."""
    lines = lab.lines()
    wanted = [(place, prompt) for place, prompt in rows for _ in range(samples)]
    assert [(line["prompt_index"], line["conversations"][0]["value"]) for line in lines] == wanted
    assert [json.loads(line["metadata"]["row"])["place"] for line in lines] == [p for p, _ in wanted]
    keys = [line["key"] for line in lines]
    assert len(set(keys)) == len(keys)
    for content in {key.split("#")[0] for key in keys}:
        ordinals = sorted(int(key.split("#")[1]) for key in keys if key.startswith(content))
        assert ordinals == list(range(len(ordinals)))
    lab.assert_sound()


@pytest.mark.slow
def test_more_samples_cost_only_the_difference_and_fewer_cost_nothing(lab: Lab, server: ModelServer) -> None:
    server.respond = turns(1)
    lab.use_server(server.url)
    copies = Counter(ROWS)
    for samples, more in ((1, 1), (3, 2), (2, 0), (1, 0), (4, 1)):
        lab.spec["samples"] = samples
        began = run(lab, server, ROWS)
        assert began == Counter({prompt: count * more for prompt, count in copies.items() if more})
        check(lab, list(enumerate(ROWS)), samples)
    assert len(lab.lines("manifest.jsonl")) == 4 * len(ROWS)


def test_dedupe_switched_on_and_off_pays_for_no_copy_twice(lab: Lab, server: ModelServer) -> None:
    server.respond = turns(1)
    lab.use_server(server.url)
    lab.spec["samples"] = 2
    assert run(lab, server, ROWS, dedupe=True) == {"[a]": 2, "[b]": 2, "[c]": 2}
    check(lab, [(0, "[a]"), (2, "[b]"), (4, "[c]")], 2)
    assert lab.statistics()["removed_duplicates"] == 3
    assert run(lab, server, ROWS) == {"[a]": 4, "[b]": 2}
    check(lab, list(enumerate(ROWS)), 2)
    assert run(lab, server, ROWS, dedupe=True) == {}
    check(lab, [(0, "[a]"), (2, "[b]"), (4, "[c]")], 2)


def test_a_limit_counts_rows_before_dedupe_and_may_move_either_way(lab: Lab, server: ModelServer) -> None:
    server.respond = turns(1)
    lab.use_server(server.url)
    assert run(lab, server, ROWS, max_samples=2) == {"[a]": 2}
    assert run(lab, server, ROWS, max_samples=2, dedupe=True) == {}
    check(lab, [(0, "[a]")], 1)
    assert run(lab, server, ROWS, max_samples=4) == {"[a]": 1, "[b]": 1}
    assert run(lab, server, ROWS, max_samples=99) == {"[b]": 1, "[c]": 1}
    check(lab, list(enumerate(ROWS)), 1)
    assert run(lab, server, ROWS, max_samples=1) == {}
    check(lab, [(0, "[a]")], 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_any_order_with_any_number_of_copies_pays_for_what_is_new_alone(
    lab: Lab, server: ModelServer, seed: int
) -> None:
    server.respond = turns(1)
    lab.use_server(server.url)
    dice = random.Random(seed)
    paid: Counter[str] = Counter()
    for _ in range(5):
        rows = tuple(dice.choices("xyz", k=dice.randrange(1, 9)))
        samples = lab.spec["samples"] = dice.randrange(1, 4)
        wanted = Counter({prompt: count * samples for prompt, count in Counter(rows).items()})
        assert run(lab, server, rows) == wanted - paid
        paid |= wanted
        check(lab, list(enumerate(rows)), samples)
    status = lab.call("status", str(lab.run_dir), "--json").json()
    assert status["outside_plan"] == (paid - wanted).total()


def test_copies_with_other_columns_are_copies_and_keep_their_own_columns(
    lab: Lab, server: ModelServer
) -> None:
    server.respond = turns(1)
    lab.use_server(server.url)
    lab.write_rows([{"prompt": "p", "id": 1, "level": "easy"}, {"level": "hard", "prompt": "p", "id": "x"}])
    assert lab.run("-q").code == 0
    first, second = lab.lines()
    assert first["key"].removesuffix("#0") == second["key"].removesuffix("#1")
    assert json.loads(first["metadata"]["row"]) == {"id": 1, "level": "easy"}
    assert json.loads(second["metadata"]["row"]) == {"level": "hard", "id": "x"}
    lab.write_rows([{"prompt": "p", "level": "changed"}, {"prompt": "p"}])
    before = len(server.requests)
    assert lab.run("-q").code == 0
    assert len(server.requests) == before
    assert [json.loads(line["metadata"]["row"]) for line in lab.lines()] == [{"level": "changed"}, {}]
    lab.assert_sound()
