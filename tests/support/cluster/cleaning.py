"""Takes away what earlier tests left, so that each starts from a cluster without nodes, policies and records."""

import contextlib
from collections.abc import Sequence

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

_NAMESPACES = {"gpu-sharing-system", "default"}
_LEASES = "/apis/coordination.k8s.io/v1/leases"
_OF_NAMESPACES = {
    "/api/v1/configmaps": config_maps,
    "/api/v1/events": events,
    _LEASES: leases,
    "/apis/gpusharing.io/v1alpha1/gpuplacements": placements,
}


def remove_leftovers(api: Api) -> None:
    """Delete all Nodes, all objects of our kinds, and the ConfigMaps, Leases and Events of the namespaces in use.

    A Node with a kubelet (it has a Lease in kube-node-lease) and what a cluster itself puts into a namespace stay.
    Every test on a cluster pays for every list, 4 ms of CPU: so each is of all namespaces, and the kinds are written
    down.
    """
    found = {kind: _list(api, kind) for kind in (NODES, POLICIES, GPU_NODES, *_OF_NAMESPACES)}
    node_leases = [lease for lease in found[_LEASES] if lease["metadata"]["namespace"] == "kube-node-lease"]
    kubelets = [lease["metadata"]["name"] for lease in node_leases]
    stay = {NODES: kubelets, **{config_maps(namespace): ["kube-root-ca.crt"] for namespace in _NAMESPACES}}
    for kind in (NODES, POLICIES, GPU_NODES):
        _empty(api, kind, found[kind], stay.get(kind, ()))
    for kind, within in _OF_NAMESPACES.items():
        used = {item["metadata"]["namespace"] for item in found[kind]}
        for namespace in used if within is placements else used & _NAMESPACES:  # a server empties one at a time
            items = [item for item in found[kind] if item["metadata"]["namespace"] == namespace]
            _empty(api, within(namespace), items, stay.get(within(namespace), ()))


def _empty(api: Api, collection: str, found: Objects, stay: Sequence[str]) -> None:
    if {item["metadata"]["name"] for item in found} <= set(stay):
        return
    query = {"fieldSelector": ",".join(f"metadata.name!={name}" for name in stay)} if stay else {}
    api.delete_collection(collection, **query)

    def is_empty() -> None:
        left = _list(api, collection, limit="100", **query)
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
