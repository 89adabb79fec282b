"""The device manager's sets: which endpoints are connected, which ids are healthy, what a node then counts (3.2, 6)."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Rule = Literal["1.34", "1.37"]
GRACE_SECONDS = 300.0
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


class RegisterRefused(Exception):
    """`Register` fails with this text; the status code is always UNKNOWN."""


@dataclass(eq=False, slots=True)
class Endpoint:
    """One registration: the resource, the socket, and whatever the owner calls it by."""

    resource: str
    socket: str
    client: Any = None
    preferred: bool = False
    pre_start: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """What a node-status pass reads: numbers by resource, and the resources that were just forgotten."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    removed: tuple[str, ...]


@dataclass(slots=True)
class Checkpoint:
    """What survives a restart: who holds what, and which resources were registered."""

    pods: dict[tuple[str, str, str], frozenset[str]] = field(default_factory=dict)
    resources: frozenset[str] = frozenset()


def check_register(version: str, resource: str) -> None:
    """Refuse as the kubelet does, with its own texts."""
    if version != "v1beta1":
        raise RegisterRefused(
            f'requested API version "{version}" is not supported by kubelet. Supported version is ["v1beta1"]'
        )
    prefix, slash, name = resource.partition("/")
    valid = slash and len(prefix) <= 244 and _PREFIX.fullmatch(prefix) and _NAME.fullmatch(name)
    if not valid or "kubernetes.io/" in resource or resource.startswith("requests."):
        raise RegisterRefused(f'the ResourceName "{resource}" is invalid')


class DeviceManager:
    """The three sets of each resource: healthy, unhealthy, and all with their NUMA nodes."""

    def __init__(self, rule: Rule, clock: Callable[[], float], checkpoint: Checkpoint | None = None) -> None:
        self.rule = rule
        self._clock = clock
        self.healthy: dict[str, set[str]] = {}
        self.unhealthy: dict[str, set[str]] = {}
        self.devices: dict[str, dict[str, tuple[int, ...]]] = {}
        # of each resource, the newest last: that one is asked to allocate
        self.endpoints: dict[str, list[Endpoint]] = {}
        self._stopped: dict[str, float] = {}
        # before 1.37 by resource, since then by resource and socket
        self._clients: dict[tuple[str, ...], Endpoint] = {}
        self.pods = dict(checkpoint.pods) if checkpoint else {}
        for resource in sorted(checkpoint.resources if checkpoint else ()):
            self.healthy[resource], self.unhealthy[resource], self.devices[resource] = set(), set(), {}
            self._stopped[resource] = clock()

    def checkpoint(self) -> Checkpoint:
        """What is on disk now."""
        return Checkpoint(dict(self.pods), frozenset(self.healthy))

    # --- endpoints ---------------------------------------------------------------------------------------------

    def check_free(self, endpoint: Endpoint) -> None:
        """From 1.37 on a second registration of one socket is refused, and the live client forgotten (3.2)."""
        if self.rule == "1.37" and any(
            other.socket == endpoint.socket for other in self.endpoints.get(endpoint.resource, ())
        ):
            self._clients.pop((endpoint.resource, endpoint.socket), None)
            raise RegisterRefused(f"device plugin already connected: {endpoint.resource}")

    def connected(self, endpoint: Endpoint) -> None:
        """The options were answered: this endpoint is asked to allocate from now on."""
        self._clients[self._key(endpoint)] = endpoint
        others = self.endpoints.get(endpoint.resource, []) if self.rule == "1.37" else []
        self.endpoints[endpoint.resource] = [*others, endpoint]
        self._stopped.pop(endpoint.resource, None)
        for sets in (self.healthy, self.unhealthy):
            sets.setdefault(endpoint.resource, set())
        self.devices.setdefault(endpoint.resource, {})

    def listed(self, resource: str, devices: Iterable[tuple[str, str, tuple[int, ...]]]) -> None:
        """A list replaces everything, whoever sent it. An id that is sent twice may be in both sets."""
        entries = tuple(devices)
        self.healthy[resource] = {device for device, health, _ in entries if health == "Healthy"}
        self.unhealthy[resource] = {device for device, health, _ in entries if health != "Healthy"}
        self.devices[resource] = {device: numa for device, _, numa in entries}

    def ended(self, endpoint: Endpoint) -> Endpoint | None:
        """The endpoint's stream has ended; the one whose connection is closed for it, which may be another's."""
        client = self._clients.pop(self._key(endpoint), None)
        if client is None:
            return None
        resource = endpoint.resource
        left = [other for other in self.endpoints.get(resource, ()) if other is not client]
        if self.rule == "1.37" and left:
            self.endpoints[resource] = left
            return client
        # kept as the one that is asked: it answers with an error
        self._stopped[resource] = self._clock()
        self.unhealthy[resource] |= self.healthy[resource]
        self.healthy[resource] = set()
        if self.rule == "1.37":
            self.endpoints[resource] = []
        return client

    def _key(self, endpoint: Endpoint) -> tuple[str, ...]:
        return (endpoint.resource, endpoint.socket) if self.rule == "1.37" else (endpoint.resource,)

    def has_stopped(self, resource: str) -> bool:
        """Whether the endpoint that would be asked is kept only for the 5 minutes after its end."""
        return resource in self._stopped

    # --- what a node counts ------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        """Numbers as of now; resources without an endpoint for 5 minutes are forgotten here."""
        now = self._clock()
        removed = tuple(sorted(name for name, at in self._stopped.items() if now - at > GRACE_SECONDS))
        for name in removed:
            for sets in (self.healthy, self.unhealthy, self.devices, self.endpoints, self._stopped):
                sets.pop(name, None)
        return Counts(
            capacity={name: len(ids) + len(self.unhealthy[name]) for name, ids in sorted(self.healthy.items())},
            allocatable={name: len(ids) for name, ids in sorted(self.healthy.items())},
            removed=removed,
        )
