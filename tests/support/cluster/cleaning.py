"""Takes away what earlier tests left, so that each starts from a cluster without nodes, policies and records."""

import contextlib

from tests.support.cluster.api import (
    GPU_NODES,
    NODES,
    POLICIES,
    Api,
    ApiStatusError,
    Object,
    Objects,
    config_maps,
    events,
    leases,
    placements,
)
from tests.support.eventually import eventually

_NAMESPACES = ("gpu-sharing-system", "default")
_FOREVER = "metadata.name!=kube-root-ca.crt"
_NODE_LEASES = leases("kube-node-lease")
_PLACEMENTS = "/apis/gpusharing.io/v1alpha1/gpuplacements"


def remove_leftovers(api: Api) -> None:
    """Delete all Nodes, all objects of our kinds, and the ConfigMaps, Leases and Events of the namespaces in use.

    A Node with a kubelet (it has a Lease in kube-node-lease) and what a cluster itself puts into a namespace stay.
    Every test on a cluster pays for this: the kinds are written down, for to list the CRDs costs as much as half of it.
    """
    kubelets = [lease["metadata"]["name"] for lease in api.list(_NODE_LEASES)]
    doomed = {NODES: ",".join(f"metadata.name!={name}" for name in kubelets), POLICIES: "", GPU_NODES: ""}
    # a server deletes a collection in one namespace at a time
    doomed |= {placements(item["metadata"]["namespace"]): "" for item in _list(api, _PLACEMENTS)}
    for namespace in _NAMESPACES:
        doomed |= {config_maps(namespace): _FOREVER, leases(namespace): "", events(namespace): ""}
    for collection, selector in doomed.items():
        _empty(api, collection, selector)


def _empty(api: Api, collection: str, selector: str) -> None:
    query = {"limit": "100"} | ({"fieldSelector": selector} if selector else {})
    if not _list(api, collection, **query):
        return
    selected = {"fieldSelector": selector} if selector else {}
    api.delete_collection(collection, **selected)

    def is_empty() -> None:
        left = _list(api, collection, **query)
        for item in left:
            _let_go(api, collection, item)
        assert not left, [item["metadata"]["name"] for item in left]

    eventually(is_empty, what=f"{collection} is empty")


def _list(api: Api, collection: str, **query: str) -> Objects:
    """The items of a collection; none if there is no such kind, for its CRD is not installed."""
    try:
        return api.list(collection, **query)
    except ApiStatusError as error:
        if error.status == 404:
            return []
        raise


def _let_go(api: Api, collection: str, item: Object) -> None:
    """Remove the finalizers that a test put on an object; nobody else would."""
    if item["metadata"].get("finalizers"):
        with contextlib.suppress(ApiStatusError):  # it may have gone meanwhile
            api.patch(collection, item["metadata"]["name"], {"metadata": {"finalizers": None}})
