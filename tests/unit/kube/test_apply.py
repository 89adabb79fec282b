"""Each action of the core is one request that states everything we own, and nothing else."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.support.builders import make_node, make_policy, make_record
from tests.unit.kube.answers import refuses, says
from tests.unit.kube.echo import Echo

from gpusharing.api import names
from gpusharing.api.node import Reservation
from gpusharing.core.errors import ApiError
from gpusharing.core.plan import Action, ApplyRecord, DeleteRecord, ReleaseLabel, RestoreLabel, SetLabel
from gpusharing.core.records import record_object
from gpusharing.kube.apply import (
    apply_action,
    apply_env_map,
    apply_gpu_node,
    apply_gpu_node_status,
    apply_node_condition,
    apply_placement_status,
    apply_reservations,
    apply_shared,
    apply_status,
)
from gpusharing.kube.client import Client

NAMESPACE = "gpu-sharing-system"
RECORD = make_record(make_node("gpu-a").build(), make_policy())
CONFIGMAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps/gpusharing-gpu-a"


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    async with Echo() as server:
        yield server


@pytest.fixture
async def client(echo: Echo) -> AsyncIterator[Client]:
    client = echo.client()
    yield client
    await client.close()


def _labels(**labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-a", "uid": "u-1", "labels": labels}}


@pytest.mark.parametrize(
    ("action", "manager", "force", "body"),
    [
        (SetLabel("gpu-a", "u-1", "c-1", force=False), names.FIELD_MANAGER, "false", {names.CONFIG_LABEL: "c-1"}),
        (SetLabel("gpu-a", "u-1", "c-1", force=True), names.FIELD_MANAGER, "true", {names.CONFIG_LABEL: "c-1"}),
        (ReleaseLabel("gpu-a", "u-1"), names.FIELD_MANAGER, "false", {}),
        (RestoreLabel("gpu-a", "u-1", "old"), names.RESTORING_FIELD_MANAGER, "true", {names.CONFIG_LABEL: "old"}),
    ],
    ids=["set", "set-by-force", "release", "restore"],
)
async def test_a_label_write_names_the_nodes_uid_and_no_other_field(
    echo: Echo, client: Client, action: Action, manager: str, force: str, body: dict[str, str]
) -> None:
    echo.answers(says(_labels(x="y")))
    assert await apply_action(client, action, NAMESPACE) == _labels(x="y")
    [asked] = echo.asked
    assert (asked.method, asked.path) == ("PATCH", "/api/v1/nodes/gpu-a")
    assert asked.query == {"fieldManager": manager, "force": force}
    assert asked.headers["Content-Type"] == "application/apply-patch+yaml"
    assert "as=PartialObjectMetadata;" in asked.headers["Accept"]
    assert asked.body == _labels(**body)


async def test_a_record_is_applied_whole_and_by_force_for_its_fields_are_ours_alone(echo: Echo, client: Client) -> None:
    await apply_action(client, ApplyRecord(RECORD), NAMESPACE)
    [asked] = echo.asked
    assert (asked.method, asked.path) == ("PATCH", CONFIGMAP)
    assert asked.query == {"fieldManager": names.FIELD_MANAGER, "force": "true"}
    assert asked.body == record_object(RECORD, NAMESPACE)


async def test_a_record_is_deleted_by_its_nodes_name(echo: Echo, client: Client) -> None:
    echo.answers(says({"status": "Success"}), refuses(404, "NotFound"))
    for _ in range(2):  # and one that is gone already is fine
        assert await apply_action(client, DeleteRecord("gpu-a"), NAMESPACE) is None
    assert [(asked.method, asked.path) for asked in echo.asked] == [("DELETE", CONFIGMAP)] * 2


UID = [{"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "field is immutable"}]
OTHER = [{"reason": "FieldManagerConflict", "field": ".metadata.labels", "message": 'conflict with "kubectl"'}]


@pytest.mark.parametrize(
    "answer",
    [
        refuses(409, "Conflict", "uid mismatch: the provided object specified uid u-1, and no existing object"),
        refuses(422, "Invalid", "Node is invalid", UID),
        refuses(404, "NotFound", "not found"),
    ],
    ids=["missing", "created-anew", "no-such-path"],
)
@pytest.mark.parametrize("action", [SetLabel("gpu-a", "u-1", "c-1", force=False), ReleaseLabel("gpu-a", "u-1")])
async def test_a_node_that_is_gone_or_created_anew_ends_a_label_write_without_an_error(
    echo: Echo, client: Client, action: Action, answer: Any
) -> None:
    echo.answers(answer)
    assert await apply_action(client, action, NAMESPACE) is None


@pytest.mark.parametrize(
    "answer",
    [refuses(409, "Conflict", "Apply failed with 1 conflict", OTHER), refuses(403, "Forbidden"), refuses(500)],
    ids=["conflict", "forbidden", "error"],
)
async def test_any_other_refusal_of_a_label_write_is_an_error(echo: Echo, client: Client, answer: Any) -> None:
    echo.answers(answer)
    with pytest.raises(ApiError):
        await apply_action(client, SetLabel("gpu-a", "u-1", "c-1", force=False), NAMESPACE)


async def test_the_shared_configmap_is_applied_in_its_own_namespace(echo: Echo, client: Client) -> None:
    body = {"metadata": {"name": "configs", "namespace": "gpu-operator"}, "data": {"a": "b"}}
    echo.answers(says({**body, "kind": "ConfigMap"}))
    assert await apply_shared(client, body) == {**body, "kind": "ConfigMap"}
    assert echo.asked[0].path == "/api/v1/namespaces/gpu-operator/configmaps/configs"
    assert echo.asked[0].query == {"fieldManager": names.FIELD_MANAGER, "force": "true"}
    assert echo.asked[0].body == body


async def test_a_status_is_written_on_the_version_that_was_seen_for_the_uid_is_not_checked_there(
    echo: Echo, client: Client
) -> None:
    await apply_status(client, "pack", "17", {"observedGeneration": 3})
    [asked] = echo.asked
    assert asked.path == "/apis/gpusharing.io/v1alpha1/gpusharingpolicies/pack/status"
    assert asked.query == {"fieldManager": names.FIELD_MANAGER, "force": "true"}
    assert asked.body == {
        "apiVersion": "gpusharing.io/v1alpha1",
        "kind": "GpuSharingPolicy",
        "metadata": {"name": "pack", "resourceVersion": "17"},
        "status": {"observedGeneration": 3},
    }


# --- of the in-node plugin

GPU_NODE = "/apis/gpusharing.io/v1alpha1/gpunodes/gpu-a"
OF_GPU_NODE = {"apiVersion": "gpusharing.io/v1alpha1", "kind": "GpuNode"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "gpu-a", "uid": "u-1"}
SAID = {"type": "GpuSharingReady", "status": "True"}


@pytest.mark.parametrize(
    ("write", "path", "body"),
    [
        (
            lambda client: apply_gpu_node(client, "gpu-a", "u-1"),
            GPU_NODE,
            {**OF_GPU_NODE, "metadata": {"name": "gpu-a", "ownerReferences": [OWNER]}},
        ),
        (
            lambda client: apply_gpu_node_status(client, "gpu-a", {"inUse": 3}),
            f"{GPU_NODE}/status",
            {**OF_GPU_NODE, "metadata": {"name": "gpu-a"}, "status": {"inUse": 3}},
        ),
        (
            lambda client: apply_node_condition(client, "gpu-a", "u-1", SAID),
            "/api/v1/nodes/gpu-a/status",
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "gpu-a", "uid": "u-1"},
                "status": {"conditions": [SAID]},
            },
        ),
    ],
    ids=["gpu-node", "status", "node-condition"],
)
async def test_the_plugin_writes_under_its_own_name_and_says_only_what_is_its_own(
    echo: Echo, client: Client, write: Callable[[Client], Awaitable[None]], path: str, body: dict[str, Any]
) -> None:
    await write(client)
    [asked] = echo.asked
    assert (asked.method, asked.path) == ("PATCH", path)
    assert asked.query == {"fieldManager": "gpu-sharing-device-plugin", "force": "true"}
    assert asked.headers["Content-Type"] == "application/apply-patch+yaml"
    assert "as=PartialObjectMetadata;" in asked.headers["Accept"]
    assert asked.body == body


# --- placements

ENTRY = Reservation(
    resource="place.gpusharing.io/x.p.team-a", placement="team-a/p", service="x", gpus=["GPU-0"], exclusive=True
)


async def test_a_placements_status_is_written_in_its_namespace_on_the_version_that_was_seen(
    echo: Echo, client: Client
) -> None:
    await apply_placement_status(client, "team-a", "p", "17", {"observedGeneration": 3})
    [asked] = echo.asked
    assert asked.path == "/apis/gpusharing.io/v1alpha1/namespaces/team-a/gpuplacements/p/status"
    assert asked.query == {"fieldManager": names.FIELD_MANAGER, "force": "true"}
    assert asked.body == {
        "apiVersion": "gpusharing.io/v1alpha1",
        "kind": "GpuPlacement",
        "metadata": {"name": "p", "namespace": "team-a", "resourceVersion": "17"},
        "status": {"observedGeneration": 3},
    }


@pytest.mark.parametrize("entries", [[ENTRY], []], ids=["some", "none, which releases all"])
async def test_reservations_have_a_field_manager_of_their_own_and_an_empty_list_is_said(
    echo: Echo, client: Client, entries: list[Reservation]
) -> None:
    await apply_reservations(client, "gpu-a", "u-1", entries)
    [asked] = echo.asked
    assert asked.path == "/apis/gpusharing.io/v1alpha1/gpunodes/gpu-a"
    assert asked.query == {"fieldManager": names.PLACEMENT_FIELD_MANAGER, "force": "true"}
    assert asked.body == {
        "apiVersion": "gpusharing.io/v1alpha1",
        "kind": "GpuNode",
        "metadata": {"name": "gpu-a", "uid": "u-1"},
        "spec": {"reservations": [entry.to_wire() for entry in entries]},
    }


async def test_a_gpu_node_that_is_gone_is_not_created_by_telling_it(echo: Echo, client: Client) -> None:
    echo.answers(
        refuses(409, "Conflict", "uid mismatch: the provided object specified uid u-1, and no existing object")
    )
    assert await apply_reservations(client, "gpu-a", "u-1", [ENTRY]) is None
    echo.answers(refuses(403, "Forbidden"))
    with pytest.raises(ApiError):
        await apply_reservations(client, "gpu-a", "u-1", [ENTRY])


async def test_the_config_map_of_a_service_is_never_taken_from_somebody_else(echo: Echo, client: Client) -> None:
    await apply_env_map(client, {"metadata": {"name": "p.x", "namespace": "team-a"}, "data": {}})
    [asked] = echo.asked
    assert asked.path == "/api/v1/namespaces/team-a/configmaps/p.x"
    assert asked.query == {"fieldManager": names.FIELD_MANAGER, "force": "false"}
