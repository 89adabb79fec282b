"""Every sample of config/samples as a user applies it: from `kubectl apply` to `kubectl wait`, and what a node gets.

The reports are simulated (tests/support/plugin_double.py) until the in-node plugin exists.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.support.controller import Controller
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.install import ROOT
from tests.support.plugin_double import PluginDouble

from gpusharing.api import names

SAMPLES = ROOT / "config" / "samples"


@pytest.fixture
def running(fleet: Fleet, account: Path) -> Iterator[Fleet]:
    """A controller under its own rights, and plugins that report."""
    with Controller(account), PluginDouble(fleet.cluster.kubeconfig):
        yield fleet


def _apply(fleet: Fleet, sample: str, *policies: str) -> None:
    fleet.cluster.kubectl("apply", "-f", str(SAMPLES / f"{sample}.yaml"))
    for policy in policies or (sample,):
        fleet.cluster.kubectl("wait", "--for=condition=Ready", f"gsp/{policy}", "--timeout=60s")


def _config(fleet: Fleet, node: str) -> dict[str, object]:
    """The config that the node's label names, from its record."""
    record = fleet.record(node)
    assert record is not None
    config: dict[str, object] = yaml.safe_load(record["data"][fleet.label(node)])
    return config


def _advertised(fleet: Fleet, node: str) -> dict[str, int]:
    return {row["name"]: row["advertised"] for row in fleet.report(node)["resources"]}


def test_every_sample_has_a_test_of_its_name() -> None:
    tested = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in SAMPLES.glob("*.yaml")} - {"kustomization"} <= tested


def test_pack_inference(running: Fleet) -> None:
    running.node("gpu-a", "l40s-mps-eight")
    _apply(running, "pack-inference")
    assert _advertised(running, "gpu-a") == {"nvidia.com/gpu": 32}
    assert _config(running, "gpu-a")["gpusharing"] == {"allocation": {"policy": "packed", "keepTogether": "preferred"}}


def test_even_notebooks(running: Fleet) -> None:
    running.node("gpu-a", "a10g-driver-pre-installed")
    _apply(running, "even-notebooks")
    assert _advertised(running, "gpu-a") == {"nvidia.com/gpu.shared": 4}
    assert "gpusharing" not in _config(running, "gpu-a")  # distributed is what NVIDIA's plugin does, too


def test_mps_batch(running: Fleet) -> None:
    running.node("gpu-a", "l4-cloud-extra-operator-labels")
    _apply(running, "mps-batch")
    assert _advertised(running, "gpu-a") == {"nvidia.com/gpu": 8}
    assert _config(running, "gpu-a")["sharing"] == {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 8}]}}


def test_mig_single(running: Fleet) -> None:
    running.node("gpu-a", "a100-40-single-1g")
    _apply(running, "mig-single")
    assert _advertised(running, "gpu-a") == {"nvidia.com/gpu": 7}
    assert _config(running, "gpu-a")["flags"]["migStrategy"] == "single"  # type: ignore[index]


def test_mig_mixed(running: Fleet) -> None:
    running.node("gpu-a", "a100-40-mixed-2g")
    _apply(running, "mig-mixed")
    assert _advertised(running, "gpu-a") == {"nvidia.com/mig-2g.10gb": 6}
    assert running.label("gpu-a").startswith("packed-mixed-2x-")


def test_per_model(running: Fleet) -> None:
    running.node("t4", "t4-shared-eight")
    running.node("a6000", "rtx-a6000")
    _apply(running, "per-model", "per-model", "per-model-a6000")
    assert _advertised(running, "t4") == {"nvidia.com/gpu": 2}
    assert _advertised(running, "a6000") == {"nvidia.com/gpu": 6}  # both policies match; the higher priority owns it


def test_dry_run(running: Fleet) -> None:
    running.node("gpu-a", "h100-80-eight-operator")
    _apply(running, "dry-run")
    assert running.conditions("dry-run")["Ready"]["reason"] == "DryRun"
    assert running.status("dry-run")["plan"]["add"] == 1
    assert running.label("gpu-a") == ""
    assert running.records() == []


def test_opt_out(running: Fleet) -> None:
    running.node("gpu-a", "rtx-a6000")
    running.node("left-alone", "rtx-a6000", **{names.SKIP_LABEL: "true"})
    _apply(running, "opt-out")
    assert _advertised(running, "gpu-a") == {"nvidia.com/gpu": 2}
    assert running.label("left-alone") == ""
    assert running.counts("opt-out")["skipped"] == 1


def test_adopt_manual(running: Fleet) -> None:
    running.node("by-hand", "h100-nvl-mps-twenty", **{names.CONFIG_LABEL: "mps-twenty"})
    _apply(running, "adopt-manual")
    assert _advertised(running, "by-hand") == {"nvidia.com/gpu": 10}
    running.cluster.kubectl("delete", "-f", str(SAMPLES / "adopt-manual.yaml"))

    def put_back() -> None:
        assert running.label("by-hand") == "mps-twenty"

    eventually(put_back, what="the label from before is back")


def test_split_over_linked_gpus(running: Fleet) -> None:
    running.node("gpu-a", "gb200-clique")
    _apply(running, "split-over-linked-gpus")
    assert _advertised(running, "gpu-a") == {"nvidia.com/gpu": 40}
    allocation = {"policy": "packed", "keepTogether": "preferred", "topology": "preferred"}
    assert _config(running, "gpu-a")["gpusharing"] == {"allocation": allocation}
