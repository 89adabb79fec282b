"""How well two GPUs are connected: NVIDIA's points for PCIe distance and NVLink, and what counts as linked."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    """Every pair of a list of GPUs, by their places in the list; symmetric."""

    scores: tuple[tuple[int, ...], ...] = ()
    linked: tuple[tuple[bool, ...], ...] = ()

    def score(self, gpus: Sequence[int]) -> int:
        """Return the sum over all pairs of the set."""
        return sum(self.scores[one][other] for at, one in enumerate(gpus) for other in gpus[:at])

    def unlinked(self, gpus: Sequence[int]) -> int:
        """Return how many pairs of the set NVLink does not join."""
        return sum(not self.linked[one][other] for at, one in enumerate(gpus) for other in gpus[:at])


def links_of(gpus: Sequence[Gpu | None], inventory: Inventory) -> Links:
    """Return what connects these GPUs. None = a GPU that is not in the inventory: nothing is known of its links."""
    links = [
        [inventory.link(one, other) if one and other and one is not other else None for other in gpus] for one in gpus
    ]
    return Links(
        scores=tuple(tuple(map(pair_score, row)) for row in links),
        linked=tuple(tuple(map(is_linked, row)) for row in links),
    )
