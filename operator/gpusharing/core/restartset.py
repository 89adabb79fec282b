"""Reports of nodes → how scattered the pods are, and the command that deletes a restart set (decision 57)."""

import shlex
from collections.abc import Mapping, Sequence

from gpusharing.api.fragmentation import FragmentationOverview, GpuShares, NodeFragmentation
from gpusharing.api.node import FragmentationReport, GpuNodeStatus, RestartSet


def fragmentation_overview(
    reports: Mapping[str, GpuNodeStatus], kubectl: Sequence[str] = ("kubectl",)
) -> FragmentationOverview:
    """Return the picture of these nodes. `kubectl` is how that is called to reach them."""
    nodes = [_node(name, status, kubectl) for name, status in sorted(reports.items())]
    known = [node.fragmentation for node in nodes if node.fragmentation]
    return FragmentationOverview(
        gpus=sum(len(node.gpus) for node in nodes),
        free_whole_gpus=sum(each.free_whole_gpus for each in known),
        possible_whole_gpus=sum(each.possible_whole_gpus for each in known),
        nodes=nodes,
    )


def delete_command(restart: RestartSet, kubectl: Sequence[str] = ("kubectl",)) -> str:
    """Return one line for a shell that deletes all pods before any of them is made anew; empty = not all are named."""
    if restart.more:
        return ""
    pods: dict[str, list[str]] = {}
    for pod in restart.pods:
        namespace, _, name = pod.partition("/")
        pods.setdefault(namespace, []).append(name)
    # without --wait=false kubectl waits for the pods of one namespace to end before it begins with the next
    calls = ([*kubectl, "delete", "pod", "--wait=false", "-n", space, *names] for space, names in sorted(pods.items()))
    return " && ".join(map(shlex.join, calls))


def _node(name: str, status: GpuNodeStatus, kubectl: Sequence[str]) -> NodeFragmentation:
    occupancy = {row.gpu: row for row in status.occupancy}
    found: FragmentationReport | None = status.fragmentation
    return NodeFragmentation(
        node=name,
        model=status.gpus[0].model if status.gpus else "",
        gpus=[
            GpuShares(
                index=gpu.index,
                uuid=gpu.uuid,
                healthy=gpu.healthy,
                shares=occupancy[gpu.uuid].shares if gpu.uuid in occupancy else 0,
                in_use=occupancy[gpu.uuid].in_use if gpu.uuid in occupancy else 0,
            )
            for gpu in status.gpus
        ],
        fragmentation=found,
        command=delete_command(found.restart, kubectl) if found and found.restart else "",
    )
