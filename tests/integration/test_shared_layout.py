"""Layout `shared`: one ConfigMap for NVIDIA's plugin, two clocks, allocatable as the only proof."""

from pathlib import Path

import pytest
from tests.support.cluster.api import NODES, config_maps
from tests.support.controller import Controller
from tests.support.eventually import eventually
from tests.support.fleet import Fleet, sharing

from gpusharing.api import names

TARGET = "gpu-operator"
CONFIGMAPS = config_maps(TARGET)


@pytest.fixture
def shared(fleet: Fleet, account: Path) -> Controller:
    """A controller that writes the ConfigMap of a GPU operator in another namespace (not started)."""
    _namespace(fleet)
    return Controller(account, layout="shared", target_namespace=TARGET)


def _namespace(fleet: Fleet) -> None:
    """The target namespace with the rights of config/components/shared-layout."""
    if TARGET not in [item["metadata"]["name"] for item in fleet.api.list("/api/v1/namespaces")]:
        fleet.api.create("/api/v1/namespaces", {"metadata": {"name": TARGET}})
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [names.SHARED_CONFIGMAP],
            "verbs": ["get", "patch", "delete"],
        },
    ]
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TARGET}"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "shared"},
        "rules": rules,
    }
    subject = {"kind": "ServiceAccount", "name": "gpu-sharing-operator", "namespace": names.NAMESPACE}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "shared"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "shared"},
        "subjects": [subject],
    }
    fleet.api.apply(f"{rbac}/roles", role, field_manager="tests", force=True)
    fleet.api.apply(f"{rbac}/rolebindings", binding, field_manager="tests", force=True)
    for item in fleet.api.list(CONFIGMAPS):
        if item["metadata"]["name"] == names.SHARED_CONFIGMAP:
            fleet.api.delete(CONFIGMAPS, names.SHARED_CONFIGMAP)


def _allocatable(fleet: Fleet, node: str, count: int) -> None:
    """What the kubelet of a node would say."""
    status = {"status": {"allocatable": {"nvidia.com/gpu": str(count)}, "capacity": {"nvidia.com/gpu": str(count)}}}
    fleet.api.patch(NODES, node, status, subresource="status")


def _keys(fleet: Fleet) -> set[str]:
    found = [item for item in fleet.api.list(CONFIGMAPS) if item["metadata"]["name"] == names.SHARED_CONFIGMAP]
    return set(found[0].get("data", {})) if found else set()


def test_the_key_is_written_before_the_label_moves_and_the_record_holds_no_data(
    fleet: Fleet, shared: Controller
) -> None:
    fleet.node("gpu-a", "rtx-a6000")
    fleet.policy("pack")
    with shared:

        def key_written() -> str:
            config = fleet.config("pack")
            assert config
            assert _keys(fleet) == {"default", config}
            return config

        config = eventually(key_written, what="the key is in the shared ConfigMap")
        assert fleet.label("gpu-a") == ""  # readers may not have it yet
        fleet.settles("pack", ["gpu-a"])
    record = fleet.record("gpu-a")
    assert record is not None
    assert "data" not in record
    assert fleet.label("gpu-a") == config


def test_an_old_key_goes_some_time_after_its_last_reference(fleet: Fleet, shared: Controller) -> None:
    fleet.node("gpu-a", "rtx-a6000")
    fleet.policy("pack")
    with shared:
        first = fleet.settles("pack", ["gpu-a"])
        fleet.edit("pack", sharing=sharing(8))
        second = fleet.settles("pack", ["gpu-a"])
        assert {first, second} <= _keys(fleet)

        def old_gone() -> None:
            assert _keys(fleet) == {"default", second}

        eventually(old_gone, what="the old key is gone")


def test_allocatable_proves_the_change_and_zero_devices_for_long_is_a_missing_plugin(
    fleet: Fleet, shared: Controller
) -> None:
    fleet.node("gpu-a", "rtx-a6000")
    _allocatable(fleet, "gpu-a", 1)
    fleet.policy("pack")
    with shared:
        fleet.settles("pack", ["gpu-a"])
        mismatch = fleet.becomes("pack", "Applied", "False", "CapacityMismatch")
        assert "1 advertised, 4 predicted" in mismatch["message"]
        _allocatable(fleet, "gpu-a", 4)
        fleet.becomes("pack", "Ready", "True", "Applied")
        _allocatable(fleet, "gpu-a", 0)
        fleet.becomes("pack", "Degraded", "True", "PluginGone")
        assert fleet.conditions("pack")["Ready"]["status"] == "True"  # only a new generation takes it away


def test_allocation_that_only_our_plugin_knows_is_said_to_be_ignored(fleet: Fleet, shared: Controller) -> None:
    fleet.node("gpu-a", "rtx-a6000")
    fleet.policy("pack", allocation={"policy": "packed", "keepTogether": "preferred"})
    with shared:
        degraded = fleet.becomes("pack", "Degraded", "True", "AllocationUnsupportedByPlugin")
    assert "keepTogether: preferred" in degraded["message"]


def test_an_adopted_value_that_no_key_has_is_dropped_with_an_event(fleet: Fleet, shared: Controller) -> None:
    fleet.node("by-hand", "rtx-a6000", **{names.CONFIG_LABEL: "mine"})
    fleet.policy("pack", adoptManual=True)
    with shared:
        fleet.settles("pack", ["by-hand"])
        fleet.drop("pack")
        fleet.released(["by-hand"])

        def said() -> None:
            assert any("is not put back" in event["message"] for event in fleet.events("by-hand", "Released"))

        eventually(said, what="an Event says that the value is not put back")


def test_a_foreign_shared_configmap_is_refused_and_no_label_moves(fleet: Fleet, shared: Controller) -> None:
    fleet.node("gpu-a", "rtx-a6000")
    foreign = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.SHARED_CONFIGMAP},
        "data": {"x": "y"},
    }
    fleet.api.create(CONFIGMAPS, foreign)
    fleet.policy("pack")
    with shared:
        fleet.becomes("pack", "Degraded", "True", "ForeignConfigMap")
    assert fleet.api.get(CONFIGMAPS, names.SHARED_CONFIGMAP)["data"] == {"x": "y"}
    assert fleet.label("gpu-a") == ""
