"""Reads the cluster into the core's values."""

from dataclasses import dataclass
from datetime import datetime

from gpusharing.api import names
from gpusharing.core.errors import ApiError
from gpusharing.kube import paths
from gpusharing.kube.client import Client, JsonObject, metadata_only

MINIMUM = (1, 30)


async def read_version(client: Client) -> str:
    """Return the server's version. Raises ApiError for one older than 1.30, which has no admission fence."""
    version = await client.get(paths.VERSION)
    major, minor = (int("".join(filter(str.isdigit, version.get(part, "0"))) or 0) for part in ("major", "minor"))
    if (major, minor) < MINIMUM:
        raise ApiError(
            f"the API server is Kubernetes {version.get('gitVersion')}; 1.30 or newer is needed",
            hint="older servers have no ValidatingAdmissionPolicy v1, which fences what we may write on nodes",
        )
    return str(version.get("gitVersion", ""))


@dataclass(frozen=True, slots=True)
class Objects:
    """Everything that the controller decides from, as it stood when it was listed."""

    policies: list[JsonObject]
    nodes: list[JsonObject]
    # Nodes with a config label that the node selector leaves out.
    strays: list[JsonObject]
    gpu_nodes: list[JsonObject]
    configmaps: list[JsonObject]
    shared: JsonObject | None


async def read_objects(
    client: Client,
    *,
    namespace: str,
    full_nodes: bool,
    node_selector: str = "",
    shared: tuple[str, str] | None = None,
) -> Objects:
    """List everything. `shared` = (namespace, name) of the shared ConfigMap. Any failure raises: unknown, not empty."""
    only_metadata = not full_nodes
    policies = [item async for item in client.list(paths.POLICIES)]
    gpu_nodes = [item async for item in client.list(paths.GPU_NODES)]
    configmaps = [item async for item in client.list(paths.configmaps(namespace))]
    nodes = [item async for item in client.list(paths.NODES, selector=node_selector, only_metadata=only_metadata)]
    strays: list[JsonObject] = []
    if node_selector:
        seen = {node["metadata"]["name"] for node in nodes}
        labelled = client.list(paths.NODES, selector=names.CONFIG_LABEL, only_metadata=True)
        strays = [item async for item in labelled if item["metadata"]["name"] not in seen]
    return Objects(policies, nodes, strays, gpu_nodes, configmaps, await read_shared_object(client, shared))


async def read_shared_object(client: Client, shared: tuple[str, str] | None) -> JsonObject | None:
    """Return the shared ConfigMap; None = layout per-node, or it does not exist."""
    if shared is None:
        return None
    namespace, name = shared
    try:
        return await client.get(f"{paths.configmaps(namespace)}/{name}")
    except ApiError as error:
        if error.status == 404:
            return None
        raise


async def read_node_object(client: Client, name: str, *, full: bool) -> JsonObject | None:
    """Return one node as it is now (by a LIST of one: there is no right to `get` nodes); None = gone."""
    found = client.list(paths.NODES, field=f"metadata.name={name}", only_metadata=not full)
    return next(iter([item async for item in found]), None)


@dataclass(frozen=True, slots=True)
class CrdState:
    """Whether the CRD of the policies is there, and since when."""

    present: bool
    created: datetime | None = None


async def read_crd(client: Client) -> CrdState:
    """Look at the CRD of the policies: one that is gone or new took its policies with it."""
    try:
        crd = await client.get(f"{paths.CRDS}/{names.POLICIES_CRD}", accept=metadata_only())
    except ApiError as error:
        if error.status == 404:
            return CrdState(False)
        raise
    metadata = crd["metadata"]
    return CrdState("deletionTimestamp" not in metadata, datetime.fromisoformat(metadata["creationTimestamp"]))
