"""How well two GPUs are connected: NVIDIA's points for PCIe distance and NVLink, and what counts as linked."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from gpusharing.core.devices import Gpu, Inventory, Link

NVLINK_POINTS, NVLINKS_MAX = 100, 18
# NVML's levels of the common ancestor go from 0 (same board) to 50 (across sockets): 60 to 10 points.
PCIE_POINTS = 60


def pair_score(link: Link | None) -> int:
    """Return the points of a pair (contract 5.4); 0 where the link could not be read (12.3)."""
    if link is None:
        return 0
    pcie = min(max(PCIE_POINTS - link.common_ancestor, 0), PCIE_POINTS)
    return pcie + NVLINK_POINTS * min(max(link.nvlinks, 0), NVLINKS_MAX)


def is_linked(link: Link | None) -> bool:
    """Whether NVLink joins the two, directly or over one NVSwitch (decision 54)."""
    return link is not None and (link.switched or link.nvlinks > 0)


@dataclass(frozen=True, slots=True)
class Links:
    """Every pair of a list of GPUs, by their places in the list, in either order; a GPU and itself count nothing."""

    scores: Mapping[tuple[int, int], int] = field(default_factory=dict)
    # 1 = NVLink does not join the two
    unlinked_pairs: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def score(self, gpus: Iterable[int]) -> int:
        """Return the sum over all pairs of the set."""
        return sum(map(self.scores.__getitem__, combinations(gpus, 2)))

    def unlinked(self, gpus: Iterable[int]) -> int:
        """Return how many pairs of the set NVLink does not join."""
        return sum(map(self.unlinked_pairs.__getitem__, combinations(gpus, 2)))


def links_of(gpus: Sequence[Gpu | None], inventory: Inventory) -> Links:
    """Return what connects these GPUs. None = a GPU that is not in the inventory: nothing is known of its links."""
    links = {
        (at, to): inventory.link(one, other) if one and other and at != to else None
        for at, one in enumerate(gpus)
        for to, other in enumerate(gpus)
    }
    return Links(
        scores={pair: pair_score(link) for pair, link in links.items()},
        unlinked_pairs={(at, to): int(at != to and not is_linked(link)) for (at, to), link in links.items()},
    )
