"""A cluster with placements, in memory: the controller's decisions and the plugins' answers, until nothing changes."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.support.builders import NOW, make_node
from tests.support.reservations import ReservationDouble

from gpusharing.api import names
from gpusharing.api.meta import Condition
from gpusharing.api.node import Reservation
from gpusharing.core.matching import Node
from gpusharing.core.placement.cluster import Cluster
from gpusharing.core.placement.observed import SeenGpu, SeenGpuNode, SeenNode
from gpusharing.core.placement.projection import has_to_be_told, project
from gpusharing.core.placement.quota import Quota
from gpusharing.core.placement.replanning import Decision, replan
from gpusharing.core.placement.standing import placement_status
from gpusharing.core.placement.stored import Placement, read_placement

Wire = dict[str, Any]


def uuid(node: str, index: int) -> str:
    """The GPU at an index of a node."""
    return f"GPU-{node}{index}"


def resource(service: str, placement: str = "p", namespace: str = "team-a") -> str:
    """What pods ask for."""
    return f"{names.PLACE_DOMAIN}{service}.{placement}.{namespace}"


def placement_object(name: str, spec: Wire, *, namespace: str = "team-a", age: int = 0, **metadata: Any) -> Wire:
    """A placement as the API server has it, `age` days old."""
    created = (NOW - timedelta(days=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    uid = f"uid-{namespace}-{name}"
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.PLACEMENT_KIND,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "generation": 1,
            "creationTimestamp": created,
            **metadata,
        },
        "spec": spec,
        "status": {"observedGeneration": 0},
    }


class Stage:
    """Nodes with ideal plugins, and placements; `settle` lets everybody work until nothing changes."""

    def __init__(self) -> None:
        self.now = NOW
        self.nodes: dict[str, SeenNode] = {}
        self.plugins: dict[str, ReservationDouble] = {}
        self.placements: dict[str, Placement] = {}
        self.quotas: list[Quota] = []
        self.taken: set[str] = set()
        # what was decided last, by namespace/name
        self.decided: dict[str, Decision] = {}
        # nodes whose plugin says nothing
        self.silent: set[str] = set()

    # --- what there is

    def node(self, name: str, gpus: int = 4, *, reservable: bool = True, **labels: str) -> None:
        node = replace(make_node(name).build(), ready=True, schedulable=True)
        node = replace(node, labels={**node.labels, **labels})
        seen = tuple(SeenGpu(index, uuid(name, index)) for index in range(gpus))
        self.nodes[name] = SeenNode(node, reservable, SeenGpuNode(name, f"uid-{name}", 1, ready=True, gpus=seen))
        self.plugins[name] = ReservationDouble()

    def change_node(self, name: str, *, reservable: bool | None = None, **fields: Any) -> None:
        """Change what the Node says: ready, unready_since, schedulable."""
        seen = self.nodes[name]
        node: Node = replace(seen.node, **fields)
        self.nodes[name] = replace(seen, node=node, reservable=seen.reservable if reservable is None else reservable)

    def change_gpu(self, name: str, index: int, **fields: Any) -> None:
        """Change what the plugin says of one GPU: healthy, mig_mode, in_use."""
        gpu_node = self.nodes[name].gpu_node
        assert gpu_node is not None
        gpus = tuple(replace(gpu, **fields) if gpu.index == index else gpu for gpu in gpu_node.gpus)
        self.report(name, gpus=gpus)

    def pod(self, name: str, index: int) -> None:
        """A pod that holds a share of the GPU, unless the GPU is reserved."""
        if any(uuid(name, index) in gpus for gpus in self.plugins[name].ledger.values()):
            return
        self.plugins[name].shared.add(uuid(name, index))
        self.change_gpu(name, index, in_use=1)

    def pod_ends(self, name: str, index: int) -> None:
        self.plugins[name].shared.discard(uuid(name, index))
        self.change_gpu(name, index, in_use=0)

    def grab(self, name: str, index: int) -> None:
        """A pod that takes the GPU when it is to be reserved the next time."""
        self.plugins[name].grabbed.add(uuid(name, index))

    def runs(self, name: str, service_resource: str, *indexes: int) -> None:
        """Pods that hold these GPUs under a name of a placement; none = they end."""
        self.plugins[name].held[service_resource] = {uuid(name, index) for index in indexes}

    def lose(self, name: str) -> None:
        del self.nodes[name], self.plugins[name]

    def put(self, obj: Wire) -> Placement:
        """Create a placement, or replace its spec and annotations."""
        placement = read_placement(obj)
        known = self.placements.get(placement.key)
        if known is not None:
            generation = known.generation + (known.spec != placement.spec)
            placement = replace(placement, status=known.status, generation=generation, created=known.created)
        self.placements[placement.key] = placement
        return placement

    def delete(self, key: str) -> None:
        del self.placements[key]
        self.decided.pop(key, None)

    # --- what follows

    @property
    def cluster(self) -> Cluster:
        return Cluster(
            self.now,
            dict(sorted(self.nodes.items())),
            dict(self.placements),
            tuple(self.quotas),
            frozenset(self.taken),
        )

    def plan(self) -> bool:
        """One pass of the controller's planning. Returns whether a status was written."""
        written = False
        for placement in sorted(self.placements.values(), key=lambda each: each.rank):
            cluster = self.cluster
            decision = self.decided[placement.key] = replan(cluster, placement)
            status = placement_status(cluster, decision)
            if status != placement.status:
                self.placements[placement.key] = replace(placement, status=status)
                written = True
        return written

    def tell(self) -> bool:
        """Write the projection to the nodes. Returns whether one was written."""
        wanted = project(self.placements.values(), self.present())
        written = False
        for name, seen in self.nodes.items():
            if seen.gpu_node is not None and has_to_be_told(seen.gpu_node, wanted.get(name, ())):
                spec = wanted.get(name, ())
                self.report(name, wanted=spec, generation=seen.gpu_node.generation + 1)
                written = True
        return written

    def present(self) -> dict[str, tuple[Reservation, ...]]:
        """What each node is told now."""
        return {name: seen.gpu_node.wanted or () for name, seen in self.nodes.items() if seen.gpu_node}

    def answer(self) -> bool:
        """Every plugin answers. Returns whether one had something new to say."""
        news = False
        for name, seen in self.nodes.items():
            if seen.gpu_node is None or name in self.silent:
                continue
            entries = tuple(self.plugins[name].answer(seen.gpu_node.wanted, seen.gpu_node.generation))
            news = news or (entries, seen.gpu_node.generation) != (seen.gpu_node.entries, seen.gpu_node.answered)
            self.report(name, entries=entries, answered=seen.gpu_node.generation)
            self.taken |= {gpu for _, gpu in self.nodes[name].gpu_node.taken()}  # type: ignore[union-attr]
        return news

    def settle(self, passes: int = 20) -> int:
        """Until nothing changes. Returns how many passes something changed in."""
        for number in range(passes):
            if not any([self.plan(), self.tell(), self.answer()]):
                return number
            self._occupancy()
        raise AssertionError(f"still not at rest after {passes} passes: {self.decided}")

    def _occupancy(self) -> None:
        """Every plugin says which GPUs pods hold of the shared resource."""
        for name, double in self.plugins.items():
            for uuid_ in double.shared:
                self.change_gpu(name, int(uuid_.removeprefix(f"GPU-{name}")), in_use=1)

    def report(self, name: str, **fields: Any) -> None:
        seen = self.nodes[name]
        assert seen.gpu_node is not None
        self.nodes[name] = replace(seen, gpu_node=replace(seen.gpu_node, **fields))

    # --- what became of it

    def condition(self, kind: str = "Ready", key: str = "team-a/p") -> tuple[str, str]:
        """Status and reason of a condition; empty = there is none."""
        found = self._conditions(key).get(kind)
        return (found.status, found.reason) if found else ("", "")

    def message(self, kind: str = "Ready", key: str = "team-a/p") -> str:
        return self._conditions(key)[kind].message

    def _conditions(self, key: str) -> dict[str, Condition]:
        return {each.type: each for each in self.placements[key].status.conditions}

    def places(self, key: str = "team-a/p") -> dict[str, str]:
        """Service → its GPUs, `a 1,2` or `a 0 | b 0`."""
        found: dict[str, list[str]] = {}
        for service, each in self.placements[key].assignments():
            found.setdefault(service, []).append(f"{each.node_name} {','.join(map(str, each.indexes))}")
        return {service: " | ".join(where) for service, where in found.items()}

    def told(self, name: str) -> dict[str, list[str]]:
        """What the node is told: resource, without its domain, → GPUs."""
        wanted = self.present()[name]
        return {each.resource.removeprefix(names.PLACE_DOMAIN): each.gpus for each in wanted}


def problems(placement: Placement) -> Iterable[str]:
    """Code and message of everything in the status."""
    return [f"{each.code}: {each.message}" for each in placement.status.problems]
