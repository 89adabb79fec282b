"""Whether a written config provably took effect on a node."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.builders import PolicyBuilder, make_node, make_policy, make_report

from gpusharing.core.progress import Progress, Verdict, by_allocatable, by_report, lacking

GPU = "nvidia.com/gpu"
POLICY = make_policy().sharing(4)
RENDERED = POLICY.rendered()
OTHER = make_policy().sharing(2).rendered()
SERVING = make_report().gpus(2).serving(RENDERED)
MIXED = make_policy().mig("mixed").sharing({"nvidia.com/mig-1g.10gb": 2}, renameByDefault=True)
RENAMED = make_policy().sharing(4, renameByDefault=True).rendered()

BY_REPORT: dict[str, tuple[Any, Verdict]] = {
    "no report": (None, Verdict(Progress.AWAITING, "no report of this config yet")),
    "a report of another config": (
        make_report().gpus(2).serving(OTHER),
        Verdict(Progress.AWAITING, "no report of this config yet"),
    ),
    "desired, and nothing served": (
        make_report().gpus(2).asked_for(RENDERED),
        Verdict(Progress.AWAITING, "serves nothing so far"),
    ),
    "desired, and another one still served": (
        make_report().gpus(2).serving(OTHER).asked_for(RENDERED),
        Verdict(Progress.AWAITING, f"serves {OTHER.name} so far"),
    ),
    "refused": (
        make_report().gpus(2).serving(OTHER).asked_for(RENDERED, error="no GPU has MIG enabled"),
        Verdict(Progress.REFUSED, "no GPU has MIG enabled"),
    ),
    "served and confirmed": (SERVING, Verdict(Progress.APPLIED)),
    "an old error does not count once the config is served": (
        SERVING.asked_for(RENDERED, error="was refused"),
        Verdict(Progress.APPLIED),
    ),
    "the kubelet confirms fewer": (
        SERVING.row(GPU, advertised=7),
        Verdict(Progress.MISMATCH, "nvidia.com/gpu: 7 advertised, 8 predicted"),
    ),
    "the kubelet confirms more": (
        SERVING.row(GPU, advertised=9),
        Verdict(Progress.MISMATCH, "nvidia.com/gpu: 9 advertised, 8 predicted"),
    ),
    "the kubelet cannot be read": (
        SERVING.row(GPU, advertised=None),
        Verdict(Progress.AWAITING, "the kubelet's devices cannot be read"),
    ),
    "the plugin's own prediction is not believed": (
        SERVING.row(GPU, advertised=4, predicted=4),
        Verdict(Progress.MISMATCH, "nvidia.com/gpu: 4 advertised, 8 predicted"),
    ),
    "a sick GPU is no mismatch": (make_report().gpus(2).sick(1).serving(RENDERED), Verdict(Progress.APPLIED)),
    "a sick GPU that is still advertised is one": (
        SERVING.sick(1),
        Verdict(Progress.MISMATCH, "nvidia.com/gpu: 8 advertised, 4 predicted"),
    ),
    "withheld shares are no mismatch": (
        SERVING.row(GPU, healthy=4, withheld=4, advertised=4),
        Verdict(Progress.APPLIED),
    ),
    "a resource that is on its way out and empty": (
        SERVING.row("nvidia.com/gpu.shared", devices=8, retiring=8, advertised=0),
        Verdict(Progress.APPLIED),
    ),
    "a resource that should be gone": (
        SERVING.row("nvidia.com/gpu.shared", devices=8, healthy=8, advertised=8),
        Verdict(Progress.MISMATCH, "nvidia.com/gpu.shared: 8 advertised, 0 predicted"),
    ),
    "a resource that is missing": (
        SERVING.gpus(3),
        Verdict(Progress.MISMATCH, "nvidia.com/gpu: 8 advertised, 12 predicted"),
    ),
    "a GPU that a placement has, and its own resource": (
        SERVING.row(GPU, devices=4, healthy=4, advertised=4)
        .row("place.gpusharing.io/x.p.team-a", devices=1, healthy=1, advertised=1)
        .reserved("Active", 1),
        Verdict(Progress.APPLIED),
    ),
    "a GPU on its way to a placement, still listed": (
        SERVING.row(GPU, healthy=4, advertised=4).reserved("Withdrawing", 1),
        Verdict(Progress.APPLIED),
    ),
    "a GPU on its way to a placement, listed as retiring": (
        SERVING.row(GPU, healthy=4, retiring=4, advertised=4).reserved("Withdrawing", 1),
        Verdict(Progress.APPLIED),
    ),
    "a GPU that a placement had, until pods let it go": (
        SERVING.row(GPU, devices=4, healthy=4, advertised=4).reserved("Releasing", 1),
        Verdict(Progress.APPLIED),
    ),
    "a GPU that a name had before it got another": (
        SERVING.gpus(3).row(GPU, devices=4, healthy=4, advertised=4).reserved("Active", 1, before=[2]),
        Verdict(Progress.APPLIED),
    ),
    "a GPU that a name had before it could not have another": (
        SERVING.gpus(3).row(GPU, devices=8, healthy=8, advertised=8).reserved("Conflict", 1, before=[2]),
        Verdict(Progress.APPLIED),
    ),
    "a GPU that a placement could not have": (SERVING.reserved("Conflict", 1), Verdict(Progress.APPLIED)),
    "a GPU that is reserved and still advertised": (
        SERVING.reserved("Active", 1),
        Verdict(Progress.MISMATCH, "nvidia.com/gpu: 8 advertised, 4 predicted"),
    ),
    "a sick GPU beside a reserved one": (
        SERVING.sick(0).row(GPU, devices=4, healthy=0, advertised=0).reserved("Active", 1),
        Verdict(Progress.APPLIED),
    ),
    "no GPU and nothing listed": (make_report().gpus(0).serving(RENDERED), Verdict(Progress.APPLIED)),
}


@pytest.mark.parametrize(("report", "want"), BY_REPORT.values(), ids=BY_REPORT.keys())
def test_judged_by_the_report(report: Any, want: Verdict) -> None:
    assert by_report(RENDERED, report.build() if report else None) == want


@pytest.mark.parametrize(
    "policy",
    [
        make_policy(),
        make_policy().mig("single"),
        make_policy().mig("single").sharing(3),
        make_policy().mig("mixed"),
        MIXED,
        make_policy().sharing(4, "mps", renameByDefault=True),
    ],
    ids=["whole", "single", "single shared", "mixed", "mixed renamed", "mps renamed"],
)
def test_a_plugin_that_serves_what_the_config_implies_is_applied(policy: PolicyBuilder) -> None:
    report = make_report().gpus(2).mig(0, "1g.10gb", "1g.10gb").mig(1, "3g.40gb").serving(policy.rendered())
    assert by_report(policy.rendered(), report.build()) == Verdict(Progress.APPLIED)


def test_a_renamed_resource_that_is_advertised_under_its_old_name_is_a_mismatch() -> None:
    report = make_report().gpus(2).serving(RENAMED).row("nvidia.com/gpu.shared", advertised=0)
    report = report.row(GPU, devices=8, healthy=8, advertised=8)
    assert by_report(RENAMED, report.build()) == Verdict(Progress.MISMATCH, "nvidia.com/gpu: 8 advertised, 0 predicted")


# --- layout shared: allocatable against GFD's labels

SHARED = POLICY.rendered("shared")
LABELLED = make_node().gpus(2)
BY_ALLOCATABLE: dict[str, tuple[Any, Verdict]] = {
    "nodes are watched metadata-only": (LABELLED, Verdict(Progress.AWAITING, "allocatable is not read")),
    "as predicted": (LABELLED.allocatable(gpu=8), Verdict(Progress.APPLIED)),
    "fewer": (LABELLED.allocatable(gpu=2), Verdict(Progress.MISMATCH, "nvidia.com/gpu: 2 advertised, 8 predicted")),
    "more": (LABELLED.allocatable(gpu=16), Verdict(Progress.MISMATCH, "nvidia.com/gpu: 16 advertised, 8 predicted")),
    "none": (LABELLED.allocatable(gpu=0), Verdict(Progress.GONE, "0 allocatable, 8 nvidia.com/gpu predicted")),
    "no such resource": (LABELLED.allocatable(), Verdict(Progress.GONE, "0 allocatable, 8 nvidia.com/gpu predicted")),
    "no label of GFD": (
        make_node().allocatable(gpu=8),
        Verdict(Progress.NO_INVENTORY, "labels do not tell how many devices there are"),
    ),
    "other resources are none of our business": (
        LABELLED.allocatable(gpu=8, **{"mig-1g.10gb": 3}),
        Verdict(Progress.APPLIED),
    ),
}


@pytest.mark.parametrize(("node", "want"), BY_ALLOCATABLE.values(), ids=BY_ALLOCATABLE.keys())
def test_judged_by_allocatable(node: Any, want: Verdict) -> None:
    assert by_allocatable(SHARED, node.build()) == want


def test_of_several_resources_some_missing_is_a_mismatch_and_not_a_plugin_that_is_gone() -> None:
    node = make_node().gpus(2).mig("mixed", **{"1g.10gb": 7, "3g.40gb": 2}).allocatable(**{"mig-1g.10gb": 7})
    verdict = by_allocatable(make_policy().mig("mixed").rendered("shared"), node.build())
    assert verdict == Verdict(Progress.MISMATCH, "nvidia.com/mig-3g.40gb: 0 advertised, 2 predicted")


RECORDED = [
    node
    for node in json.loads((Path(__file__).parents[2] / "vectors" / "nodes.json").read_text())["nodes"]
    if any(int(count) for count in node.get("capacity", {}).values()) and not node["expect"].get("labelsDisagree")
]


@pytest.mark.parametrize("node", RECORDED, ids=[node["name"] for node in RECORDED])
def test_a_real_node_is_never_called_mismatched_with_the_config_that_it_runs(node: dict[str, Any]) -> None:
    expect = node["expect"]
    policy = make_policy().mig(expect.get("migStrategy", "none"))
    if expect["replicas"] > 1:
        fields = {"renameByDefault": True} if expect.get("renamed") else {}
        policy = policy.sharing(expect["replicas"], expect["sharing"], **fields)
    capacity = {name.removeprefix("nvidia.com/"): count for name, count in node["capacity"].items()}
    builder = make_node(node["name"]).allocatable(**capacity)
    for key, value in node["labels"].items():
        builder = builder.label(key, value)
    config = policy.with_spec(migStrategy=expect.get("migStrategy", "none")).build("shared").rendered
    if config is None:  # MPS beside a MIG strategy: the GPU operator sets one everywhere, a policy may not
        config = policy.mig("none").rendered("shared")
    assert by_allocatable(config, builder.build()).progress in {Progress.APPLIED, Progress.NO_INVENTORY}


# --- what a node cannot have

LACKING: dict[str, tuple[PolicyBuilder, Any, Any, tuple[str, ...]]] = {
    "nothing is shared": (make_policy(), make_node(), None, ()),
    "shared GPUs on a node with GPUs": (POLICY, make_node(), make_report(), ()),
    "a profile that the model cannot make": (
        make_policy().mig("mixed").sharing({"nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-1g.10gb": 2}),
        make_node().model("NVIDIA-A100-SXM4-80GB-SHARED"),
        None,
        ("nvidia.com/mig-1g.5gb",),
    ),
    "a profile of a model that we do not know": (MIXED, make_node().model("NVIDIA-X"), None, ()),
    "a node whose labels say that it has no MIG": (
        MIXED,
        make_node().model("NVIDIA-L4").label("nvidia.com/mig.capable", "false"),
        None,
        ("nvidia.com/mig-1g.10gb",),
    ),
    "a profile that the node does not have": (MIXED, make_node(), make_report(), ("nvidia.com/mig-1g.10gb",)),
    "a profile that it has, renamed": (MIXED, make_node(), make_report().mig(0, "1g.10gb"), ()),
    "whole GPUs where all are in MIG mode": (
        POLICY.mig("mixed"),
        make_node(),
        make_report().mig(0, "1g.10gb"),
        (GPU,),
    ),
    "a report without GPUs says nothing": (POLICY, make_node(), make_report().gpus(0), ()),
}


@pytest.mark.parametrize(("policy", "node", "report", "want"), LACKING.values(), ids=LACKING.keys())
def test_what_a_node_cannot_have_is_named(policy: PolicyBuilder, node: Any, report: Any, want: tuple[str, ...]) -> None:
    assert lacking(policy.rendered(), node.build(), report.build() if report else None) == want
