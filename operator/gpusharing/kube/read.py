"""Reads the cluster into the core's values."""

from dataclasses import dataclass
from datetime import datetime

from gpusharing.api import names
from gpusharing.core.errors import ApiError, InvalidInput
from gpusharing.kube import paths
from gpusharing.kube.client import Client, JsonObject, metadata_only

MINIMUM = (1, 30)


async def read_version(client: Client) -> str:
    """Return the server's version. Raises InvalidInput for one older than 1.30, which has no admission fence."""
    version = await client.get(paths.VERSION)
    major, minor = (int("".join(filter(str.isdigit, version.get(part, "0"))) or 0) for part in ("major", "minor"))
    if (major, minor) < MINIMUM:
        raise InvalidInput(
            f"the API server is Kubernetes {version.get('gitVersion')}; 1.30 or newer is needed",
            hint="older servers have no ValidatingAdmissionPolicy v1, which fences what we may write on nodes",
        )
    return str(version.get("gitVersion", ""))


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
    return next(iter(await client.list(paths.NODES, field=f"metadata.name={name}", only_metadata=not full)), None)


@dataclass(frozen=True, slots=True)
class CrdState:
    """Whether the CRD of a kind is there, and since when."""

    present: bool
    created: datetime | None = None

    def knows_what_is_gone(self, written: datetime | None) -> bool:
        """Whether an object that is not there was deleted by itself, and not with its whole kind.

        `written` is when we last wrote what followed from it; None = not known.
        """
        return self.present and (written is None or self.created is None or self.created < written)


async def read_crd(client: Client, name: str = names.POLICIES_CRD) -> CrdState:
    """Look at a CRD: one that is gone or new took its objects with it."""
    try:
        crd = await client.get(f"{paths.CRDS}/{name}", accept=metadata_only())
    except ApiError as error:
        if error.status == 404:
            return CrdState(False)
        raise
    metadata = crd["metadata"]
    return CrdState("deletionTimestamp" not in metadata, datetime.fromisoformat(metadata["creationTimestamp"]))
