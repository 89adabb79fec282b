"""Random sets of services by which the planner is measured (placement guide, section 11): seeds and mixes."""

from collections.abc import Callable
from random import Random

from gpusharing.api.placement import Algorithm, PlacementSpec

SERVICES, NODE_GPUS = 40, 16

MIXES: dict[str, Callable[[Random], int]] = {
    "LLM-like": lambda random: random.choices((1, 2, 4, 8, 3, 5, 6, 7), (30, 25, 20, 10, 5, 4, 3, 3))[0],
    "uniform 1-8": lambda random: random.randint(1, 8),
    "uniform 1-16": lambda random: random.randint(1, 16),
    "3-7": lambda random: random.randint(3, 7),
}


def mixed(mix: str, seed: int, algorithm: Algorithm = "exact") -> PlacementSpec:
    """Forty services of the mix on nodes of 16 GPUs, the first of them the lead."""
    random = Random(seed)
    services = [{"name": f"s{at}", "gpus": MIXES[mix](random)} for at in range(SERVICES)]
    pools = [{"name": "gpu", "nodes": "auto", "gpusPerNode": NODE_GPUS, "maxNodes": SERVICES}]
    return PlacementSpec.model_validate({"pools": pools, "lead": "s0", "algorithm": algorithm, "services": services})
