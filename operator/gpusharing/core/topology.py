"""Which GPUs reach each other over NVLink."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpusharing.core.devices import Gpu, Link


def with_link_groups(gpus: Sequence[Gpu], links: Mapping[tuple[str, str], Link]) -> tuple[Gpu, ...]:
    """Return the GPUs with their link groups, numbered by the first GPU of each; a GPU without NVLinks has none."""
    joined = {gpu.uuid: {gpu.uuid} for gpu in gpus}
    for (one, other), link in links.items():
        if (link.nvlinks or link.switched) and one in joined and other in joined:
            both = joined[one] | joined[other]
            joined |= dict.fromkeys(both, both)
    groups: dict[frozenset[str], int] = {}
    for gpu in sorted(gpus, key=lambda gpu: gpu.index):
        if len(joined[gpu.uuid]) > 1:
            groups.setdefault(frozenset(joined[gpu.uuid]), len(groups))
    return tuple(replace(gpu, link_group=groups.get(frozenset(joined[gpu.uuid]))) for gpu in gpus)
