"""Carries the core's actions out, by server-side apply; each returns what the object is afterwards."""

from collections.abc import Iterable

from gpusharing.api import names
from gpusharing.api.node import Reservation
from gpusharing.core.errors import ApiError
from gpusharing.core.plan import Action, ApplyRecord, DeleteRecord, ReleaseLabel, RestoreLabel, SetLabel
from gpusharing.core.records import record_name, record_object
from gpusharing.kube import paths
from gpusharing.kube.client import Client, JsonObject


async def apply_action(client: Client, action: Action, namespace: str) -> JsonObject | None:
    """Make one write. Returns the object as the server has it now, None where there is none any more."""
    match action:
        case ApplyRecord(record):
            body = record_object(record, namespace)
            path = f"{paths.configmaps(namespace)}/{record.name}"
            return await client.apply(path, body, manager=names.FIELD_MANAGER, force=True)
        case SetLabel(node, uid, value, force):
            return await _apply_label(client, node, uid, {names.CONFIG_LABEL: value}, force=force)
        case ReleaseLabel(node, uid):
            return await _apply_label(client, node, uid, {})
        case RestoreLabel(node, uid, value):
            labels = {names.CONFIG_LABEL: value}
            return await _apply_label(client, node, uid, labels, force=True, manager=names.RESTORING_FIELD_MANAGER)
        case DeleteRecord(node):
            await client.delete(f"{paths.configmaps(namespace)}/{record_name(node)}")
            return None


async def _apply_label(
    client: Client,
    node: str,
    uid: str,
    labels: dict[str, str],
    *,
    force: bool = False,
    manager: str = names.FIELD_MANAGER,
) -> JsonObject | None:
    """Apply the label and nothing else. The uid makes an apply to a missing node a conflict instead of a create."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "uid": uid, "labels": labels}}
    try:
        return await client.apply(f"{paths.NODES}/{node}", body, manager=manager, force=force, only_metadata=True)
    except ApiError as error:
        if error.gone:
            return None
        raise


async def apply_shared(client: Client, body: JsonObject) -> JsonObject:
    """Write the shared ConfigMap."""
    metadata = body["metadata"]
    path = f"{paths.configmaps(metadata['namespace'])}/{metadata['name']}"
    return await client.apply(path, body, manager=names.FIELD_MANAGER, force=True)


async def apply_status(client: Client, name: str, resource_version: str, status: JsonObject) -> JsonObject:
    """Write a policy's status. The resourceVersion keeps it off a policy that was created anew under the name."""
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.POLICY_KIND,
        "metadata": {"name": name, "resourceVersion": resource_version},
        "status": status,
    }
    path = f"{paths.POLICIES}/{name}/status"
    return await client.apply(path, body, manager=names.FIELD_MANAGER, force=True)


async def apply_placement_status(
    client: Client, namespace: str, name: str, resource_version: str, status: JsonObject
) -> JsonObject:
    """Write a placement's status. The resourceVersion keeps it off one that was created anew under the name."""
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.PLACEMENT_KIND,
        "metadata": {"name": name, "namespace": namespace, "resourceVersion": resource_version},
        "status": status,
    }
    path = f"{paths.placements(namespace)}/{name}/status"
    return await client.apply(path, body, manager=names.FIELD_MANAGER, force=True)


async def apply_env_map(client: Client, body: JsonObject) -> None:
    """Write the ConfigMap of a placement's service. One of the name that is somebody else's is refused."""
    metadata = body["metadata"]
    path = f"{paths.configmaps(metadata['namespace'])}/{metadata['name']}"
    await client.apply(path, body, manager=names.FIELD_MANAGER, only_metadata=True)


async def apply_reservations(
    client: Client, name: str, uid: str, reservations: Iterable[Reservation]
) -> JsonObject | None:
    """Tell a node's plugin which GPUs placements have; an empty list releases all.

    Returns the `GpuNode` as it is now; None = there is none of this uid any more (an apply would create one).
    """
    wire = [reservation.to_wire() for reservation in reservations]
    body = {**_gpu_node(name), "metadata": {"name": name, "uid": uid}, "spec": {"reservations": wire}}
    try:
        return await client.apply(f"{paths.GPU_NODES}/{name}", body, manager=names.PLACEMENT_FIELD_MANAGER, force=True)
    except ApiError as error:
        if error.gone:
            return None
        raise


async def apply_gpu_node(client: Client, name: str, node_uid: str) -> None:
    """Make the `GpuNode` of a Node, or make an existing one this Node's: it dies with it."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid}
    body = {**_gpu_node(name), "metadata": {"name": name, "ownerReferences": [owner]}}
    await client.apply(f"{paths.GPU_NODES}/{name}", body, manager=names.PLUGIN, force=True, only_metadata=True)


async def apply_gpu_node_status(client: Client, name: str, status: JsonObject) -> None:
    """Write the whole status of a `GpuNode`; 404 where there is none."""
    body = {**_gpu_node(name), "status": status}
    path = f"{paths.GPU_NODES}/{name}/status"
    await client.apply(path, body, manager=names.PLUGIN, force=True, only_metadata=True)


async def apply_node_condition(client: Client, name: str, uid: str, condition: JsonObject) -> None:
    """Write our one condition of a Node. The uid keeps it off a Node that was created anew under the name."""
    metadata = {"name": name, "uid": uid}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"conditions": [condition]}}
    path = f"{paths.NODES}/{name}/status"
    await client.apply(path, body, manager=names.PLUGIN, force=True, only_metadata=True)


async def remove_node_condition(client: Client, name: str, uid: str) -> None:
    """Take our one condition from a Node, in the plugin's name, which owns nothing else of it. A Node may be gone."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": uid}}
    path = f"{paths.NODES}/{name}/status"
    try:
        await client.apply(path, body, manager=names.PLUGIN, force=True, only_metadata=True)
    except ApiError as error:
        if not error.gone:
            raise


async def remove_node_resources(client: Client, name: str, uid: str, resources: Iterable[str]) -> bool:
    """Take resources that a Node shows with 0 devices from its status, all or none.

    Returns False where the Node is another one by now, or shows one of them in another way.
    """
    steps: list[JsonObject] = [{"op": "test", "path": "/metadata/uid", "value": uid}]
    for resource in resources:
        key = resource.replace("~", "~0").replace("/", "~1")
        for path in (f"/status/capacity/{key}", f"/status/allocatable/{key}"):
            steps += [{"op": "test", "path": path, "value": "0"}, {"op": "remove", "path": path}]
    try:
        await client.change(f"{paths.NODES}/{name}/status", steps, only_metadata=True)
    except ApiError as error:
        if error.status in {404, 422}:
            return False
        raise
    return True


def _gpu_node(name: str) -> JsonObject:
    return {"apiVersion": names.API_VERSION, "kind": names.NODE_KIND, "metadata": {"name": name}}
