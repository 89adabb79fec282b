"""Where things live in the API."""

from gpusharing.api import names

NODES = "/api/v1/nodes"
POLICIES = f"/apis/{names.API_VERSION}/{names.POLICIES}"
GPU_NODES = f"/apis/{names.API_VERSION}/{names.GPU_NODES}"
QUOTAS = "/api/v1/resourcequotas"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VERSION = "/version"
# Events of cluster-scoped objects live in this namespace, or `kubectl describe` does not show them.
EVENTS = "/api/v1/namespaces/default/events"


def events(namespace: str = "") -> str:
    """Return the path of the Events about objects of a namespace; without one, about cluster-scoped objects."""
    return f"/api/v1/namespaces/{namespace}/events" if namespace else EVENTS


def configmaps(namespace: str) -> str:
    """Return the path of the ConfigMaps of a namespace."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


def pods(namespace: str) -> str:
    """Return the path of the pods of a namespace."""
    return f"/api/v1/namespaces/{namespace}/pods"


def daemon_sets(namespace: str) -> str:
    """Return the path of the DaemonSets of a namespace."""
    return f"/apis/apps/v1/namespaces/{namespace}/daemonsets"


def leases(namespace: str) -> str:
    """Return the path of the Leases of a namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def placements(namespace: str = "") -> str:
    """Return the path of the GpuPlacements of a namespace; without one, of all."""
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{names.API_VERSION}{inside}/{names.PLACEMENTS}"
