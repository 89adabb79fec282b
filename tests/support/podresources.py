"""What the kubelet says about who holds which device: its PodResources API, asked by tests."""

from collections import defaultdict
from pathlib import Path
from types import TracebackType

import grpc

from gpusharing.deviceplugin.podresources_v1.podresources_v1_pb2 import (
    AllocatableResourcesRequest,
    ListPodResourcesRequest,
)
from gpusharing.deviceplugin.podresources_v1.podresources_v1_pb2_grpc import PodResourcesListerStub


class PodResources:
    """A client of one kubelet's socket; a context manager."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix://{socket}")
        self._stub = PodResourcesListerStub(self._channel)

    def __enter__(self) -> "PodResources":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def held(self) -> dict[str, dict[str, list[str]]]:
        """Pod → resource → ids, sorted; pods without devices have no entry."""
        pods: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        answer = self._stub.List(ListPodResourcesRequest(), timeout=10, wait_for_ready=True)
        for pod in answer.pod_resources:
            for container in pod.containers:
                for entry in container.devices:  # one entry for each device
                    pods[pod.name][entry.resource_name] += entry.device_ids
        return {pod: {name: sorted(ids) for name, ids in held.items()} for pod, held in pods.items()}

    def allocatable(self) -> dict[str, list[str]]:
        """Resource → healthy ids, sorted."""
        healthy: dict[str, list[str]] = defaultdict(list)
        answer = self._stub.GetAllocatableResources(AllocatableResourcesRequest(), timeout=10, wait_for_ready=True)
        for entry in answer.devices:
            healthy[entry.resource_name] += entry.device_ids
        return {name: sorted(set(ids)) for name, ids in healthy.items()}
