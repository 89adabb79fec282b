"""Random sets of services by which the planner is measured (placement guide, section 11): seeds and mixes."""

from collections.abc import Callable
from random import Random

from gpusharing.api.placement import Algorithm, PlacementSpec

SERVICES, NODE_GPUS = 40, 16

_POOL: dict[str, object] = {"name": "gpu", "nodes": "auto", "gpusPerNode": NODE_GPUS, "maxNodes": SERVICES}
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
    pools = [_POOL]
    return PlacementSpec.model_validate({"pools": pools, "lead": "s0", "algorithm": algorithm, "services": services})


def mixed_fractions(seed: int) -> PlacementSpec:
    """Forty services, two thirds of them with a fraction of each of their GPUs."""
    random = Random(seed)
    services: list[dict[str, object]] = []
    for at in range(SERVICES):
        fraction = {"fraction": f"{random.randint(5, 95)}%"} if random.random() < 2 / 3 else {}
        services.append({"name": f"s{at}", "gpus": random.randint(1, NODE_GPUS), **fraction})
    pools = [{**_POOL, "sharing": {"replicas": 10}}]
    return PlacementSpec.model_validate({"pools": pools, "services": services})
