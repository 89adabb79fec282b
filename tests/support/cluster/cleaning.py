"""Takes away what earlier tests left, so that each starts from a cluster without nodes, policies and records."""

import contextlib

from tests.support.cluster.api import CRDS, NODES, Api, ApiStatusError, Object, config_maps, events, leases
from tests.support.eventually import eventually

_NAMESPACES = ("gpu-sharing-system", "default")
_FOREVER = "metadata.name!=kube-root-ca.crt"
_NODE_LEASES = leases("kube-node-lease")


def remove_leftovers(api: Api) -> None:
    """Delete all Nodes, all objects of our group, and the ConfigMaps, Leases and Events of the namespaces in use.

    A Node with a kubelet (it has a Lease in kube-node-lease) and what a cluster itself puts into a namespace stay.
    """
    kubelets = [lease["metadata"]["name"] for lease in api.list(_NODE_LEASES)]
    doomed = {NODES: ",".join(f"metadata.name!={name}" for name in kubelets)}
    doomed |= dict.fromkeys(_collections_of_our_group(api), "")
    for namespace in _NAMESPACES:
        doomed |= {config_maps(namespace): _FOREVER, leases(namespace): "", events(namespace): ""}
    for collection, selector in doomed.items():
        _empty(api, collection, selector)


def _collections_of_our_group(api: Api) -> list[str]:
    specs = [crd["spec"] for crd in api.list(CRDS) if crd["spec"]["group"] == "gpusharing.io"]
    return [
        collection
        for spec in specs
        for version in spec["versions"]
        if version["storage"]
        for collection in _collections(api, spec, f"/apis/{spec['group']}/{version['name']}")
    ]


def _collections(api: Api, spec: Object, version: str) -> list[str]:
    """The paths of a kind's objects; a server deletes a collection in one namespace at a time."""
    plural = spec["names"]["plural"]
    if spec["scope"] == "Cluster":
        return [f"{version}/{plural}"]
    namespaces = {item["metadata"]["namespace"] for item in api.list(f"{version}/{plural}")}
    return [f"{version}/namespaces/{namespace}/{plural}" for namespace in sorted(namespaces)]


def _empty(api: Api, collection: str, selector: str) -> None:
    query = {"limit": "100"} | ({"fieldSelector": selector} if selector else {})
    if not api.list(collection, **query):
        return
    selected = {"fieldSelector": selector} if selector else {}
    api.delete_collection(collection, **selected)

    def is_empty() -> None:
        left = api.list(collection, **query)
        for item in left:
            _let_go(api, collection, item)
        assert not left, [item["metadata"]["name"] for item in left]

    eventually(is_empty, what=f"{collection} is empty")


def _let_go(api: Api, collection: str, item: Object) -> None:
    """Remove the finalizers that a test put on an object; nobody else would."""
    if item["metadata"].get("finalizers"):
        with contextlib.suppress(ApiStatusError):  # it may have gone meanwhile
            api.patch(collection, item["metadata"]["name"], {"metadata": {"finalizers": None}})
