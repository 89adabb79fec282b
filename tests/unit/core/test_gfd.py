"""What the labels of real nodes say: `vectors/nodes.json`, each with what a reader should conclude."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusharing.core.gfd import GpuLabels, MigCount, model_of, read_labels

VECTORS = Path(__file__).parents[2] / "vectors"
NODES = json.loads((VECTORS / "nodes.json").read_text())["nodes"]
PROFILES = json.loads((VECTORS / "mig-profiles.json").read_text())["boards"]


def wanted(expect: dict[str, Any]) -> GpuLabels:
    return GpuLabels(
        model=expect["model"],
        devices=expect["devices"],
        sharing=expect["sharing"],
        replicas=expect["replicas"],
        mig_strategy=expect.get("migStrategy", "none"),
        mig=tuple(
            MigCount(entry["profile"], entry["count"], entry.get("model", "")) for entry in expect.get("mig", [])
        ),
        renamed=expect.get("renamed", False),
        vgpu=expect.get("vgpu", False),
        clique=expect.get("clique", False),
        invalid=expect.get("invalid", False),
        disagree=expect.get("labelsDisagree", False),
    )


@pytest.mark.parametrize("node", NODES, ids=[node["name"] for node in NODES])
def test_the_labels_of_a_real_node_are_read_as_recorded(node: dict[str, Any]) -> None:
    capacity = {name: int(count) for name, count in node.get("capacity", {}).items()}
    assert read_labels(node["labels"], capacity) == wanted(node["expect"])


@pytest.mark.parametrize("node", NODES, ids=[node["name"] for node in NODES])
def test_the_model_of_a_real_node_does_not_depend_on_its_capacity(node: dict[str, Any]) -> None:
    assert read_labels(node["labels"]).model == node["expect"]["model"]


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        ({"gpu.product": "X-SHARED", "gpu.replicas": "4"}, ("time-slicing", 4)),
        ({"gpu.product": "X-SHARED"}, ("none", 1)),
        ({"gpu.product": "X-SHARED", "gpu.replicas": "1"}, ("none", 1)),
        ({"gpu.product": "X", "gpu.replicas": "4"}, ("none", 4)),
        ({"gpu.product": "X-SHARED", "gpu.replicas": "4", "gpu.sharing-strategy": "none"}, ("none", 4)),
        ({"gpu.product": "X", "gpu.replicas": "4", "gpu.sharing-strategy": "mps"}, ("mps", 4)),
        ({"gpu.product": "X", "gpu.sharing-strategy": "mig"}, ("unknown", 1)),
        ({"gpu.product": "X", "gpu.replicas": "0"}, ("none", 1)),
        ({"gpu.product": "X", "gpu.replicas": "four"}, ("none", 1)),
    ],
    ids=str,
)
def test_sharing_is_what_its_label_says_and_without_one_suffix_and_replicas_together(
    labels: dict[str, str], want: tuple[str, int]
) -> None:
    read = read_labels({f"nvidia.com/{key}": value for key, value in labels.items()})
    assert (read.sharing, read.replicas) == want


MODELS = {
    "NVIDIA-L4": "NVIDIA-L4",
    "NVIDIA-L4-SHARED": "NVIDIA-L4",
    "A100-SXM4-40GB-MIG-1g.5gb": "A100-SXM4-40GB",
    "A100-SXM4-40GB-MIG-1g.5gb-SHARED": "A100-SXM4-40GB",
    "A100-SXM4-40GB-MIG-1g.5gb.me-SHARED": "A100-SXM4-40GB",
    "X-MIG-1g.24gb-me": "X",
    "X-MIG-1g.24gb.me.all-SHARED": "X",
    "X-MIG-1c.3g.20gb": "X",
    "NVIDIA-A100-SXM4-80GB-MIG-INVALID": "NVIDIA-A100-SXM4-80GB",
    "NVIDIA-H20-3e": "NVIDIA-H20-3e",
    "NVIDIA-H20-3e-MIG-3g.71gb": "NVIDIA-H20-3e",
    "NVIDIA-SHAREDX": "NVIDIA-SHAREDX",
    "NVIDIA-MIG-BOARD": "NVIDIA-MIG-BOARD",
    "NVIDIA-SHARED-X": "NVIDIA-SHARED-X",
    "": "",
}


@pytest.mark.parametrize(("product", "model"), MODELS.items(), ids=[repr(product) for product in MODELS])
def test_a_model_is_the_product_without_what_sharing_and_mig_add(product: str, model: str) -> None:
    assert model_of(product) == model


@pytest.mark.parametrize("board", PROFILES, ids=[board["board"] for board in PROFILES])
def test_the_model_of_a_board_survives_every_suffix_it_can_get(board: dict[str, Any]) -> None:
    for name in board["models"]:
        model = name.replace(" ", "-")
        profiles = [entry["profile"].replace("+", ".") for entry in board["profiles"]]
        for mig in ("", "-MIG-INVALID", *(f"-MIG-{profile}" for profile in profiles)):
            assert model_of(f"{model}{mig}") == model_of(f"{model}{mig}-SHARED") == model


@given(st.text())
def test_a_model_is_a_beginning_of_the_product(product: str) -> None:
    assert product.startswith(model_of(product))


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "nvidia.com/gpu.product",
                "nvidia.com/gpu.count",
                "nvidia.com/gpu.replicas",
                "nvidia.com/gpu.sharing-strategy",
                "nvidia.com/mig.strategy",
                "nvidia.com/mig-1g.5gb.count",
                "nvidia.com/mig-1g.5gb.product",
                "nvidia.com/mig-x.count",
            ]
        ),
        st.text(max_size=63),
    ),
    st.dictionaries(
        st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.6gb"]), st.integers(0)
    ),
)
def test_whatever_the_labels_say_the_numbers_are_sane(labels: dict[str, str], capacity: dict[str, int]) -> None:
    read = read_labels(labels, capacity)
    assert read.devices >= 0
    assert read.replicas >= 1
    assert all(entry.count >= 0 for entry in read.mig)
    assert read.sharing in {"none", "time-slicing", "mps", "unknown"}
    assert read.disagree == (read.sharing == "unknown")
