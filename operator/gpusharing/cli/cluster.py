"""A live cluster, read with the right to list and nothing else. Imported late: the client takes half a second."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from gpusharing.api import names
from gpusharing.cli.progress import Progress
from gpusharing.core.desired_state import Layout
from gpusharing.core.errors import ApiError
from gpusharing.core.world import Objects, layout_of
from gpusharing.kube import paths
from gpusharing.kube.client import Client, JsonObject, connect

TIMEOUT = 30.0
_GPU_NODES = f"{names.GPU_NODES}.{names.GROUP}"


async def read_cluster(
    kubeconfig: str, context: str, namespace: str, layout: Layout | None, progress: Progress
) -> Objects:
    """List what decisions are taken from. In layout per-node only the metadata of nodes is asked for."""
    rights = f"nodes, {names.POLICIES_CRD}, {_GPU_NODES}, and on configmaps in {namespace}"
    async with _reading(kubeconfig, context, rights) as client:
        policies = await _listed(client, "policies", paths.POLICIES, progress)
        reports = await _listed(client, "reports", paths.GPU_NODES, progress)
        configmaps = await _listed(client, "records", paths.configmaps(namespace), progress)
        metadata = (layout or layout_of(configmaps)) == "per-node"
        nodes = await _listed(client, "nodes", paths.NODES, progress, only_metadata=metadata)
    return Objects(nodes, policies, reports, configmaps)


async def read_gpu_nodes(kubeconfig: str, context: str, progress: Progress) -> list[JsonObject]:
    """List what the nodes' plugins report, and nothing else."""
    async with _reading(kubeconfig, context, _GPU_NODES) as client:
        return await _listed(client, "reports", paths.GPU_NODES, progress)


async def list_names(kubeconfig: str, context: str, kind: Literal["nodes", "policies"], timeout: float) -> list[str]:
    """Return the names of all nodes or policies."""
    async with asyncio.timeout(timeout):
        client = await _connect(kubeconfig, context, timeout)
        try:
            path = paths.NODES if kind == "nodes" else paths.POLICIES
            return [obj["metadata"]["name"] for obj in await client.list(path, only_metadata=True)]
        finally:
            await client.close()


@asynccontextmanager
async def _reading(kubeconfig: str, context: str, rights: str) -> AsyncIterator[Client]:
    """Give a client that lists, and say what a refusal means; `rights` is what has to be listed."""
    client = await _connect(kubeconfig, context, TIMEOUT)
    try:
        yield client
    except ApiError as error:
        raise _explained(error, client.server, rights) from error
    finally:
        await client.close()


async def _listed(
    client: Client, what: str, path: str, progress: Progress, *, only_metadata: bool = False
) -> list[JsonObject]:
    items: list[JsonObject] = []
    async for page in client.pages(path, only_metadata=only_metadata):
        items += page.items
        progress.tell(f"reading {what}: {len(items):,}")
    return items


async def _connect(kubeconfig: str, context: str, timeout: float) -> Client:
    logging.getLogger("kubernetes").addHandler(logging.NullHandler())  # what it warns of, our errors say
    return await connect(kubeconfig, context, timeout=timeout)


def _explained(error: ApiError, server: str, rights: str) -> ApiError:
    """Say what a refused list means for the person at the terminal."""
    if error.status == 0:
        return ApiError(
            f"the API server {server} cannot be reached: {error.message}",
            hint="check --kubeconfig and --context, or read a saved cluster with --from",
        )
    if error.status == 401:
        return ApiError(f"the API server {server} does not accept these credentials", status=401, hint="log in again")
    if error.status == 404:
        return ApiError(
            f"{server} has no {names.GROUP}/{names.VERSION}: the CRDs are not installed",
            status=404,
            hint="install everything with: kubectl apply -k config/default",
        )
    if error.status == 403:
        return ApiError(
            f"this account lacks a right: {error.message.partition('Forbidden: ')[2] or error.message}",
            status=403,
            hint=f"reading needs `list` on {rights}",
        )
    return error
