"""Tokens of the in-node plugin's account, as its pods have them: each names the node that it is good for."""

from pathlib import Path

from tests.support.cluster.access import write_kubeconfig
from tests.support.cluster.api import NODES, Object
from tests.support.fleet import Fleet

from gpusharing.api import names


def token_of_node(fleet: Fleet, node: str, *, account: str = names.PLUGIN, namespace: str = names.NAMESPACE) -> Path:
    """A kubeconfig with a token of that account that is bound to the node itself; it ends with the Node object."""
    return bound_token(fleet, {"kind": "Node", **identity(fleet.api.get(NODES, node))}, account, namespace)


def token_of_pod(fleet: Fleet, pod: Object, account: str) -> Path:
    """A kubeconfig with a token of that account that is bound to a pod, and so names the pod's node."""
    return bound_token(fleet, {"kind": "Pod", **identity(pod)}, account, pod["metadata"]["namespace"])


def identity(obj: Object) -> Object:
    """What names one object and no later one."""
    return {"apiVersion": "v1", "name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}


def bound_token(fleet: Fleet, bound: Object, account: str, namespace: str) -> Path:
    """A kubeconfig with a token that is bound to an object."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    request = fleet.api.raw("POST", path, {"spec": {"boundObjectRef": bound}})
    target = fleet.cluster.folder / f"{account}-{bound['uid']}.kubeconfig"
    user = {"token": request["status"]["token"]}
    return write_kubeconfig(target, fleet.cluster.server, fleet.cluster.ca, user, namespace=namespace)
