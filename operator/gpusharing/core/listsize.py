"""How many bytes a list of devices takes on the wire: the kubelet ends the stream on a message that is too long.

The kubelet takes 4 MiB; we refuse a config above 3.9 MiB, retiring ids included, counted as if every device were
`Unhealthy`, so that no change of health can cross the limit (decision 31, kubelet contract 4).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

from gpusharing.core.errors import InvalidInput

LIST_MAX = int(3.9 * 1024 * 1024)
_UNHEALTHY = 2 + len("Unhealthy")


class Listed(Protocol):
    """What of a device goes over the wire."""

    @property
    def id(self) -> str:
        """The device's id."""

    @property
    def numa_node(self) -> int | None:
        """Its NUMA node; None = not said."""


def list_bytes(devices: Iterable[Listed]) -> int:
    """Return the exact length of the encoded `ListAndWatchResponse` with every device `Unhealthy`."""
    shapes = Counter((len(device.id.encode()), device.numa_node) for device in devices)
    return sum(count * _field(_device_bytes(*shape)) for shape, count in shapes.items())


def check_size(resource: str, devices: Sequence[Listed]) -> None:
    """Raise InvalidInput if the list of the resource is longer than the kubelet takes."""
    _refuse_above_limit(resource, len(devices), list_bytes(devices))


def shortest_list(resource: str, count: int, id_length: int) -> None:
    """Raise InvalidInput if already a list of so many devices with ids of that length is too long."""
    _refuse_above_limit(resource, count, count * (_UNHEALTHY + id_length))


def _refuse_above_limit(resource: str, count: int, size: int) -> None:
    if size > LIST_MAX:
        raise InvalidInput(
            f"{resource}: {count} devices make a list of {size / 2**20:.2f} MiB, the kubelet takes at most 3.9 MiB",
            hint="lower its replicas: about 60,000 devices fit",
        )


def _device_bytes(id_length: int, numa_node: int | None) -> int:
    """Return the length of a `Device`: ID, health, and topology where the NUMA node is known."""
    return _field(id_length) + _UNHEALTHY + _topology_bytes(numa_node)


def _topology_bytes(numa_node: int | None) -> int:
    if numa_node is None:
        return 0
    # proto3 leaves a zero out: NUMANode is then empty
    node = 1 + _varint(numa_node) if numa_node else 0
    return _field(_field(node))


def _field(length: int) -> int:
    """Return the length of a field that holds so many bytes: tag (all numbers are below 16), length, content."""
    return 1 + _varint(length) + length


def _varint(value: int) -> int:
    return max(1, -(-value.bit_length() // 7))
