"""What was last seen of placements, of the nodes' reservations and of quotas; and what the nodes are to be told."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from gpusharing.controller.keys import PLACEMENTS_KEY, Key
from gpusharing.controller.sightings import Sightings
from gpusharing.core.matching import Node
from gpusharing.core.placement.cluster import Cluster
from gpusharing.core.placement.inventory import reservable
from gpusharing.core.placement.observed import SeenGpuNode, SeenNode, read_gpu_node
from gpusharing.core.placement.projection import Reservations, has_to_be_told, project
from gpusharing.core.placement.quota import Quota, read_quota
from gpusharing.core.placement.stored import Placement, read_placement
from gpusharing.core.status import NodeState

PlacingKind = Literal["placement", "quota"]
# how long a GPU that a pod had first counts as in use: what the plugin says of its occupancy may be older
TAKEN_SECONDS = 30.0


class Placing:
    """The part of the cache that placements are planned from."""

    def __init__(self, *, on: bool, lost_after: timedelta) -> None:
        # whether placements are planned at all
        self.on = on
        # whether a whole list of them was seen and none has failed since: unknown is never empty
        self.known = False
        # whether they are watched; None = the watches have not begun
        self.watched: bool | None = None
        self._lost_after = lost_after
        self.placements: dict[str, Placement] = {}
        self.gpu_nodes: dict[str, SeenGpuNode] = {}
        self.quotas: dict[str, Quota] = {}
        # node → what its plugin is to be told
        self.wanted: dict[str, Reservations] = {}
        # namespace/name → the ConfigMaps that were written for it, as long as nobody says that they are not there
        self.env_written: dict[str, list[dict[str, Any]]] = {}
        # GPU → until when it counts as in use, by the clock of the workers
        self.taken: dict[str, float] = {}
        self.seen: dict[PlacingKind, Sightings] = {
            "placement": Sightings(namespaced=True),
            "quota": Sightings(namespaced=True),
        }

    # --- what was seen

    def put_placement(self, obj: Mapping[str, Any]) -> set[Key]:
        """Take in a placement."""
        if not self.seen["placement"].is_news(obj["metadata"]):
            return set()
        placement = read_placement(obj)
        known = self.placements.get(placement.key)
        self.placements[placement.key] = placement
        return set() if known == placement else {PLACEMENTS_KEY} | self._project()

    def drop_placement(self, key: str, uid: str = "") -> set[Key]:
        """Forget a placement (of this uid)."""
        known = self.placements.get(key)
        if known is None or (uid and known.uid != uid):
            return set()
        del self.placements[key]
        return self._concerns() | self._project()

    def put_gpu_node(self, obj: Mapping[str, Any]) -> set[Key]:
        """Take in a `GpuNode`; one that cannot be read counts as none."""
        gpu_node = read_gpu_node(obj)
        if gpu_node is None:
            return self.drop_gpu_node(obj["metadata"]["name"])
        if self.gpu_nodes.get(gpu_node.name) == gpu_node:
            return set()
        self.gpu_nodes[gpu_node.name] = gpu_node
        return self._concerns() | self.to_be_told(gpu_node.name)

    def drop_gpu_node(self, name: str) -> set[Key]:
        """Forget a `GpuNode`."""
        return self._concerns() if self.gpu_nodes.pop(name, None) is not None else set()

    def put_quota(self, obj: Mapping[str, Any]) -> set[Key]:
        """Take in a ResourceQuota; one that says nothing about GPUs counts as none."""
        if not self.seen["quota"].is_news(obj["metadata"]):
            return set()
        quota = read_quota(obj)
        key = self.seen["quota"].key(obj["metadata"])
        if quota is None:
            return self.drop_quota(key)
        if self.quotas.get(key) == quota:
            return set()
        self.quotas[key] = quota
        return self._concerns()

    def drop_quota(self, key: str) -> set[Key]:
        """Forget a ResourceQuota."""
        return self._concerns() if self.quotas.pop(key, None) is not None else set()

    def bury(self, kind: PlacingKind, metadata: Mapping[str, Any]) -> set[Key]:
        """Take in a deletion that a watch tells of; one that was overtaken by the next of the name is none."""
        if not self.seen[kind].bury(metadata):
            return set()
        key = self.seen[kind].key(metadata)
        return self.drop_placement(key, metadata.get("uid", "")) if kind == "placement" else self.drop_quota(key)

    def node_changed(self, before: Node | None, after: Node | None) -> set[Key]:
        """Return what follows where a Node is another one than before; labels count, as pools select by them."""
        return self._concerns() if _facts(before) != _facts(after) else set()

    def owner_changed(self, before: NodeState | None, after: NodeState | None) -> set[Key]:
        """Return what follows where placements may reserve GPUs of a node, and might not before, or the reverse."""
        return self._concerns() if _may_reserve(before) is not _may_reserve(after) else set()

    def listed(self, *, known: bool) -> set[Key]:
        """Note that everything was listed, or could not be. Returns what has to be looked at."""
        self.known = known
        self.env_written.clear()  # each resync writes them anew
        if not known:
            return set()
        keys = self._concerns() | self._project()
        return keys | {key for name in self.gpu_nodes for key in self.to_be_told(name)}

    # --- what follows

    def to_be_told(self, name: str) -> set[Key]:
        """Return the node's key where its spec differs from what the stored plans say."""
        gpu_node = self.gpu_nodes.get(name)
        if not self.known or gpu_node is None or not has_to_be_told(gpu_node, self.wanted.get(name, ())):
            return set()
        return {("node", name)}

    def cluster(
        self, nodes: Mapping[str, Node], states: Mapping[str, NodeState], clock: float, now: datetime
    ) -> Cluster:
        """Return what placements are planned on."""
        for gpu_node in self.gpu_nodes.values():
            for _, uuid in gpu_node.taken():
                self.taken.setdefault(uuid, clock + TAKEN_SECONDS)
        self.taken = {uuid: until for uuid, until in self.taken.items() if until > clock}
        planned = {each.node_name for placement in self.placements.values() for _, each in placement.assignments()}
        return Cluster(
            now,
            {
                name: SeenNode(node, _may_reserve(states.get(name)), self.gpu_nodes.get(name))
                for name, node in nodes.items()
                if name in self.gpu_nodes or name in planned or _may_reserve(states.get(name))
            },
            dict(self.placements),
            tuple(self.quotas.values()),
            frozenset(self.taken),
            self._lost_after,
        )

    def _concerns(self) -> set[Key]:
        return {PLACEMENTS_KEY} if self.placements else set()

    def _project(self) -> set[Key]:
        """Compute anew what every node is to be told. Returns the nodes for which that is news."""
        if not self.known:
            return set()
        present = {name: gpu_node.wanted or () for name, gpu_node in self.gpu_nodes.items()}
        before, self.wanted = self.wanted, project(self.placements.values(), present)
        names = before.keys() | self.wanted.keys()
        return {key for name in names if before.get(name) != self.wanted.get(name) for key in self.to_be_told(name)}


def _facts(node: Node | None) -> tuple[object, ...] | None:
    return (node.uid, node.labels, node.ready, node.unready_since, node.schedulable) if node is not None else None


def _may_reserve(state: NodeState | None) -> bool:
    return state is not None and reservable(state.assignment)
