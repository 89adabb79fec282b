"""Documents of the wrong shape: every wrong place with its path, its value and what was expected."""

from typing import Any

import pytest
from hypothesis import given, settings
from tests.support.strategies import json_values

from gpusharing.api.placement import Inventory, PlacementSpec
from gpusharing.core.placement.problems import Code
from gpusharing.core.placement.schema import read

POOLS = [{"name": "gpu", "gpusPerNode": 4}]
NAMES = (
    "name, kind, pool, gpus, parallelism, leftover, visibleDevices, visibleDevicesFromEnv, share, shareWith, fraction, "
    "exclusiveNodes, distribute, span, split, deploy, port, hostNetwork"
)


def _said(data: object, at: str = "spec") -> list[str]:
    found = read(PlacementSpec, data, at)
    assert isinstance(found, tuple)
    assert {each.code for each in found} == {Code.INVALID_DOCUMENT}
    return [each.message for each in found]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"gpus": -1}, "gpus: -1, expected an integer 0-4096"),
        ({"gpus": "two"}, 'gpus: "two", expected an integer 0-4096'),
        ({"gpus": 1.5}, "gpus: 1.5, expected an integer 0-4096"),
        ({"gpus": True}, "gpus: true, expected an integer 0-4096"),
        ({"kind": "vlm"}, 'kind: "vlm", expected one of generic, vllm, sglang, trtllm, ray, triton, router'),
        ({"fraction": "101%"}, 'fraction: "101%", expected a percentage "1%"-"100%"'),
        ({"fraction": "0%"}, 'fraction: "0%", expected a percentage "1%"-"100%"'),
        ({"fraction": 0.5}, 'fraction: 0.5, expected a percentage "1%"-"100%"'),
        ({"parallelism": {"tensor": 0}}, "parallelism.tensor: 0, expected an integer 1-4096"),
        ({"parallelism": 2}, "parallelism: 2, expected a mapping"),
        ({"leftover": {"min": 0}}, "leftover.min: 0, expected an integer 1-4096"),
        ({"distribute": "even"}, 'distribute: "even", expected evenly'),
        ({"span": "half"}, 'span: "half", expected one of whole, tail'),
        ({"share": "yes"}, 'share: "yes", expected true or false'),
        ({"port": 0}, "port: 0, expected an integer 1-65535"),
        ({"visibleDevices": "0, 1"}, 'visibleDevices: "0, 1", expected a comma-separated list of GPU indexes, or of '
            "GPU-... UUIDs, without spaces"),
        ({"visibleDevices": "0,GPU-a"}, 'visibleDevices: "0,GPU-a", expected a comma-separated list of GPU indexes, or '
            "of GPU-... UUIDs, without spaces"),
        ({"visibleDevicesFromEnv": "$X"}, 'visibleDevicesFromEnv: "$X", expected the name of an environment variable'),
        ({"gpu": 1}, f"gpu: 1, unknown field; expected one of {NAMES}"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_wrong_value_of_a_service_is_told_with_its_place(wrong: dict[str, Any], says: str) -> None:
    assert _said({"pools": POOLS, "services": [{"name": "a", **wrong}]}) == [f"spec.services[0].{says}"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"nodes": 0}, "nodes: 0, expected an integer 1-256 or auto"),
        ({"nodes": "any"}, 'nodes: "any", expected an integer 1-256 or auto'),
        ({"maxNodes": 257}, "maxNodes: 257, expected an integer 1-256"),
        ({"gpusPerNode": 65}, "gpusPerNode: 65, expected an integer 1-64"),
        ({"gpusByNode": [0]}, "gpusByNode[0]: 0, expected an integer 1-64"),
        ({"gpusByNode": [1] * 257}, "gpusByNode: 257 gpusByNode, at most 256"),
        ({"reserved": [-1]}, "reserved[0]: -1, expected an integer 0-255"),
        ({"sharing": {"replicas": 129}}, "sharing.replicas: 129, expected an integer 1-128"),
        ({"sharing": {"policy": "spread"}}, 'sharing.policy: "spread", expected one of packed, distributed'),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_value_of_a_pool_is_told_with_its_place(wrong: dict[str, Any], says: str) -> None:
    assert _said({"pools": [{"name": "gpu", **wrong}], "services": [{"name": "a"}]}) == [f"spec.pools[0].{says}"]


def test_a_document_that_is_no_placement_is_told_so() -> None:
    assert _said([]) == ["spec: [], expected a mapping"]
    assert _said("x", at="") == ['"x", expected a mapping']
    assert _said({"pools": POOLS}) == ["spec.services: missing, expected a value"]
    assert _said({"pools": POOLS, "services": {}}) == ["spec.services: {}, expected a list"]
    assert _said({"pools": [], "services": [{"name": "a"}]}) == ["spec.pools: [], expected at least 1 entry"]


def test_no_services_and_far_too_many_are_told() -> None:
    assert _said({"pools": POOLS, "services": []}) == ["spec.services: [], expected at least 1 entry"]
    many = [{"name": f"s{at}", "gpus": 1} for at in range(10_000)]
    assert _said({"pools": POOLS, "services": many}) == ["spec.services: 10000 services, at most 64"]


def test_all_that_is_wrong_is_told_at_once() -> None:
    wrong = {"name": "A", "gpus": -1, "port": 0}
    assert len(_said({"pools": POOLS, "services": [wrong, wrong], "lead": 1, "gpuOrder": "random"})) == 8


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [({"kind": "vlm"}, "did you mean vllm?"), ({"gpu": 1}, "did you mean gpus?")],
    ids=["kind", "field"],
)
def test_a_misspelt_word_is_met_with_the_right_one(wrong: dict[str, Any], hint: str) -> None:
    (problem,) = read(PlacementSpec, {"pools": POOLS, "services": [{"name": "a", **wrong}]}, "spec")  # type: ignore[misc]
    assert problem.hint == hint


def test_an_inventory_is_read_the_same_way() -> None:
    found = read(Inventory, {"nodes": [{"name": "n", "gpus": [{"index": -1, "inUse": -1}]}]}, "")
    assert isinstance(found, tuple)
    assert [each.message for each in found] == [
        "nodes[0].gpus[0].index: -1, expected an integer 0-255",
        "nodes[0].gpus[0].inUse: -1, expected an integer of at least 0",
    ]


@settings(deadline=None, max_examples=60)
@given(json_values)
def test_whatever_is_read_is_a_spec_or_told(data: object) -> None:
    for told in (read(PlacementSpec, data, "spec"), read(Inventory, data, "")):
        assert not isinstance(told, tuple) or told
