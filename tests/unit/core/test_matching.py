from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, make_node, make_spec

from gpusharing.api import names
from gpusharing.core.matching import Node, Selector, Term, excluded_by, is_gpu_node, read_node

PRODUCT = names.PRODUCT_LABEL
BARE = make_node().without(PRODUCT)


# --- what is a GPU node

GPU_NODES = {
    "a product": BARE.label(PRODUCT, "NVIDIA-L4"),
    "the GPU operator's label": BARE.label("nvidia.com/gpu.present", "true"),
    "NFD's PCI label": BARE.label("feature.node.kubernetes.io/pci-10de.present", "true"),
    "a workload of containers, said": make_node().label("nvidia.com/gpu.workload.config", "container"),
    "operands, said to be deployed": make_node().label("nvidia.com/gpu.deploy.operands", "true"),
}
OTHERS = {
    "no label of a GPU": BARE,
    "a GPU that is said to be absent": BARE.label("nvidia.com/gpu.present", "false"),
    "operands kept away": make_node().label("nvidia.com/gpu.deploy.operands", "false"),
    "virtual machines with whole GPUs": make_node().label("nvidia.com/gpu.workload.config", "vm-passthrough"),
    "virtual machines with parts of GPUs": make_node().label("nvidia.com/gpu.workload.config", "vm-vgpu"),
    "out of the controller's scope": make_node().out_of_scope(),
}


@pytest.mark.parametrize("node", GPU_NODES.values(), ids=GPU_NODES.keys())
def test_is_a_gpu_node(node: object) -> None:
    assert is_gpu_node(node.build())  # type: ignore[attr-defined]


@pytest.mark.parametrize("node", OTHERS.values(), ids=OTHERS.keys())
def test_is_no_gpu_node(node: object) -> None:
    assert not is_gpu_node(node.build())  # type: ignore[attr-defined]


def test_a_node_without_labels_is_one_if_its_plugin_reports_gpus() -> None:
    assert is_gpu_node(BARE.build(), reports_gpus=True)


@pytest.mark.parametrize("story", [story for story in OTHERS if "label" not in story and "absent" not in story])
def test_what_excludes_a_node_outweighs_a_report_of_gpus_and_is_said(story: str) -> None:
    node = OTHERS[story].build()
    assert not is_gpu_node(node, reports_gpus=True)
    assert excluded_by(node)


def test_nothing_excludes_an_ordinary_node() -> None:
    assert excluded_by(make_node().build()) == ""


# --- reading a node


def ready(status: str) -> dict[str, str]:
    """The condition by which a kubelet says of itself that it is there."""
    return {"type": "Ready", "status": status, "lastTransitionTime": "2026-11-30T12:00:00Z"}


def test_a_node_is_read_with_what_we_use_of_it() -> None:
    node = make_node("a").uid("u").label("team", "x").allocatable(gpu=8, **{"mig-1g.10gb": 0}).build()
    assert (node.name, node.uid, node.labels["team"]) == ("a", "u", "x")
    assert node.allocatable == {"nvidia.com/gpu": 8, "nvidia.com/mig-1g.10gb": 0}


def test_of_a_metadata_only_node_no_device_is_known() -> None:
    assert make_node().build().allocatable is None


@pytest.mark.parametrize(
    ("more", "want"),
    {
        "metadata only": ({}, (None, None, None)),
        "ready": ({"spec": {}, "status": {"conditions": [ready("True")]}}, (True, True, None)),
        "cordoned": ({"spec": {"unschedulable": True}, "status": {"conditions": [ready("True")]}}, (True, False, None)),
        "not ready": ({"spec": {}, "status": {"conditions": [ready("False")]}}, (False, True, NOW)),
        "its kubelet is silent": ({"spec": {}, "status": {"conditions": [ready("Unknown")]}}, (False, True, NOW)),
        "nothing is said yet": ({"spec": {}, "status": {}}, (False, True, None)),
    }.values(),
)
def test_whether_a_node_takes_pods_is_read_of_a_full_object_only(more: dict[str, Any], want: tuple[Any, ...]) -> None:
    node = read_node({**make_node().object(), **more})
    assert (node.ready, node.schedulable, node.unready_since) == want
    assert node.metadata_only is (not more)


def test_a_node_without_labels_is_read() -> None:
    assert read_node({"metadata": {"name": "a"}}) == Node("a", "", {})


@pytest.mark.parametrize(
    ("text", "want"),
    [("8", 8), ("60k", 60000), ("1M", 1000000), ("2Ki", 2048), ("0", 0), ("1.5k", None), ("x", None), ("-1", None)],
)
def test_a_count_of_devices_is_a_quantity(text: str, want: int | None) -> None:
    assert (make_node().allocatable(gpu=text).build().allocatable or {}).get("nvidia.com/gpu") == want


class TestOwnersOfTheConfigLabel:
    def test_an_apply_of_ours_makes_it_ours(self) -> None:
        node = make_node().config("x").build()
        assert (node.config_label, node.label_is_ours) == ("x", True)

    def test_somebody_else_s_edit_does_not(self) -> None:
        node = make_node().manual("x").build()
        assert (node.label_is_ours, node.label_managers) == (False, ("kubectl-label",))

    def test_two_may_own_it_together(self) -> None:
        node = make_node().config("x", names.FIELD_MANAGER, "argocd").build()
        assert (node.label_is_ours, node.label_managers) == (True, ("argocd", names.FIELD_MANAGER))

    def test_a_value_that_was_put_back_is_not_ours(self) -> None:
        assert not make_node().config("x", names.RESTORING_FIELD_MANAGER).build().label_is_ours

    def test_an_update_in_our_name_is_not_ours(self) -> None:
        obj = make_node().config("x").object()
        obj["metadata"]["managedFields"][0]["operation"] = "Update"
        assert not read_node(obj).label_is_ours

    def test_owners_of_other_labels_do_not_count(self) -> None:
        obj = make_node().config("x").object()
        obj["metadata"]["managedFields"][0]["fieldsV1"] = {"f:metadata": {"f:labels": {"f:team": {}}}}
        assert read_node(obj).label_managers == ()


# --- selectors

TERMS: list[tuple[Term, str | None, bool]] = [
    (Term(PRODUCT, "In", frozenset({"NVIDIA-L4"})), "NVIDIA-L4", True),
    (Term(PRODUCT, "In", frozenset({"NVIDIA-L4"})), "NVIDIA-L4-SHARED", True),
    (Term(PRODUCT, "In", frozenset({"A100-SXM4-40GB"})), "A100-SXM4-40GB-MIG-1g.5gb-SHARED", True),
    (Term(PRODUCT, "In", frozenset({"NVIDIA-L4-SHARED"})), "NVIDIA-L4-SHARED", True),
    (Term(PRODUCT, "In", frozenset({"NVIDIA-L4-SHARED"})), "NVIDIA-L4", False),
    (Term(PRODUCT, "In", frozenset({"NVIDIA-L4"})), "NVIDIA-L40", False),
    (Term(PRODUCT, "In", frozenset({"NVIDIA-L4"})), None, False),
    (Term(PRODUCT, "NotIn", frozenset({"NVIDIA-L4"})), "NVIDIA-L4", False),
    (Term(PRODUCT, "NotIn", frozenset({"NVIDIA-L4"})), "NVIDIA-L4-SHARED", False),
    (Term(PRODUCT, "NotIn", frozenset({"NVIDIA-L4-SHARED"})), "NVIDIA-L4-SHARED", False),
    (Term(PRODUCT, "NotIn", frozenset({"NVIDIA-L4-SHARED"})), "NVIDIA-L4", True),
    (Term(PRODUCT, "NotIn", frozenset({"NVIDIA-L4"})), "NVIDIA-L40", True),
    (Term(PRODUCT, "NotIn", frozenset({"NVIDIA-L4"})), None, True),
    (Term("team", "In", frozenset({"x"})), "x", True),
    (Term("team", "In", frozenset({"x"})), "x-SHARED", False),
    (Term("team", "In", frozenset({"x", "y"})), "y", True),
    (Term("team", "Exists"), "", True),
    (Term("team", "Exists"), None, False),
    (Term("team", "DoesNotExist"), "", False),
    (Term("team", "DoesNotExist"), None, True),
]


@pytest.mark.parametrize(("term", "value", "holds"), TERMS, ids=[f"{term} on {value!r}" for term, value, _ in TERMS])
def test_a_term_holds_for_the_raw_and_the_normalised_product(term: Term, value: str | None, holds: bool) -> None:
    labels = {} if value is None else {term.key: value}
    assert term.holds(labels) is holds
    assert Selector((term,)).failing(labels) == (() if holds else (term,))


@pytest.mark.parametrize(
    ("term", "words"),
    [
        (Term("a", "In", frozenset({"y", "x"})), "a in (x, y)"),
        (Term("a", "NotIn", frozenset({"x"})), "a notin (x)"),
        (Term("a", "Exists"), "a"),
        (Term("a", "DoesNotExist"), "!a"),
    ],
    ids=lambda value: str(value),
)
def test_a_term_reads_as_kubectl_writes_it(term: Term, words: str) -> None:
    assert str(term) == words


def selector(**fields: object) -> Selector:
    return Selector.of(make_spec(nodeSelector=fields).node_selector)


def test_an_empty_selector_names_everything() -> None:
    assert selector().matches({})
    assert selector(matchLabels={}, matchExpressions=[]).matches({"a": "b"})


def test_all_terms_must_hold() -> None:
    both = selector(matchLabels={"a": "1"}, matchExpressions=[{"key": "b", "operator": "Exists"}])
    assert both.matches({"a": "1", "b": ""})
    assert not both.matches({"a": "1"})
    assert not both.matches({"b": "1"})


def test_the_terms_that_do_not_hold_are_named_in_order() -> None:
    both = selector(matchLabels={"a": "1", "c": "2"}, matchExpressions=[{"key": "b", "operator": "Exists"}])
    assert [str(term) for term in both.failing({"c": "2"})] == ["a in (1)", "b"]


values = st.sampled_from(["NVIDIA-L4", "NVIDIA-L4-SHARED", "NVIDIA-A10", "NVIDIA-A10-MIG-1g.5gb"])


@given(st.frozensets(values, min_size=1), values)
def test_in_and_not_in_are_opposites(listed: frozenset[str], value: str) -> None:
    labels = {PRODUCT: value}
    assert Term(PRODUCT, "In", listed).holds(labels) != Term(PRODUCT, "NotIn", listed).holds(labels)


@given(
    st.sampled_from(["NVIDIA-L4", "NVIDIA-A10"]), st.sampled_from(["", "-MIG-1g.5gb", "-MIG-INVALID"]), st.booleans()
)
def test_switching_sharing_or_mig_on_does_not_unmatch_a_node(model: str, mig: str, shared: bool) -> None:
    by_model = selector(matchLabels={PRODUCT: model})
    assert by_model.matches({PRODUCT: f"{model}{mig}{'-SHARED' if shared else ''}"})
