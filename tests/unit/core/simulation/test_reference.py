"""NVIDIA's way, held to its recorded decisions; and what makes it scatter MIG devices."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpusharing.core.devices import base_of, share_id
from gpusharing.core.simulation.draws import Draws
from gpusharing.core.simulation.reference import NvidiaBuckets

CASES: list[dict[str, Any]] = [
    case
    for case in json.loads((Path(__file__).parents[3] / "vectors" / "greedy.json").read_text())["cases"]
    if case.get("outcomes") and not case.get("required")
]


def shares(counts: dict[str, int]) -> list[str]:
    return [share_id(gpu, replica) for gpu, count in counts.items() for replica in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_every_recorded_decision_is_one_of_the_recorded_ones(seed: int) -> None:
    assert len(CASES) > 100
    for case in CASES:
        draws = Draws(seed, str(case["available"]))
        buckets = NvidiaBuckets(shares(case["replicas"]), packed=case["policy"] == "packed", draws=draws)
        chosen = buckets.choose(shares(case["available"]), case["size"])
        assert dict(Counter(map(base_of, chosen))) in case["outcomes"]


@pytest.mark.parametrize("packed", [True, False])
def test_unshared_mig_devices_are_all_alike_to_it(packed: bool) -> None:
    """Each is a bucket of its own with nothing allocated, whatever else is in use of its GPU (contract 12.1)."""
    ids = [f"MIG-{at}" for at in range(4)]
    buckets = NvidiaBuckets(ids, packed=packed, draws=Draws(0, "test"))
    drawn = Counter(buckets.choose(ids[1:], 1) for _ in range(900))
    assert [drawn[each,] for each in ids[1:]] == pytest.approx([300] * 3, rel=0.2)


def test_no_more_than_there_is() -> None:
    buckets = NvidiaBuckets(["A::0", "A::1"], packed=True, draws=Draws(0, "test"))
    assert sorted(buckets.choose(["A::0", "A::1"], 3)) == ["A::0", "A::1"]
