"""What can go wrong with a placement in a cluster, each with its sentence (guide, section 7)."""

from collections.abc import Sequence

from gpusharing.api import names
from gpusharing.core.placement.problems import Code, Problem


def quota_exceeded(namespace: str, may_use: int, needs: int, others: int) -> Problem:
    """Return the error that the namespace's quota has too little for the placement."""
    message = f"namespace {namespace} may use {may_use} GPU(s), this placement needs {needs} and others hold {others}"
    return Problem(Code.QUOTA_EXCEEDED, message, f"raise requests.{names.GPU_RESOURCE} of the ResourceQuota")


def reservation_conflict(uuid: str, node: str, service: str) -> Problem:
    """Return what is said where a pod was faster."""
    message = f"GPU {uuid} on {node} was taken by another pod before service '{service}' could have it; planning again"
    return Problem(Code.RESERVATION_CONFLICT, message, services=(service,))


def node_lost(node: str, slot: str, services: Sequence[str]) -> Problem:
    """Return what is said while a node of the plan is not there."""
    message = f"{node} of slot {slot} is gone or not ready; services {', '.join(services)} are affected"
    return Problem(Code.NODE_LOST, message, services=tuple(services))


def gpu_unhealthy(index: int, uuid: str, service: str, node: str) -> Problem:
    """Return what is said while a GPU of a service is broken; the service stays where it is."""
    message = (
        f"GPU {index} ({uuid}) of service '{service}' on {node} is unhealthy; annotate {names.REBALANCE_ANNOTATION} to "
        "move the service"
    )
    return Problem(Code.GPU_UNHEALTHY, message, services=(service,))
