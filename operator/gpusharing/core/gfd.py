"""What the labels of GPU Feature Discovery say of a node (contract, section 9.3), also where they are old or wrong."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from gpusharing.api import names

# A model may itself end in a hyphen and letters (NVIDIA-H20-3e), hence the profile's exact grammar.
_PROFILE = r"(?:\d+c\.)?\d+g\.\d+gb(?:\.me(?:\.all)?|\.gfx|-me)?"
_SUFFIXES = re.compile(rf"(?:-MIG-(?P<profile>INVALID|{_PROFILE}))?(?:-SHARED)?$")
_MIG_COUNT = re.compile(rf"nvidia\.com/mig-(?P<profile>{_PROFILE})\.count")
_MIG_RESOURCE = re.compile(rf"nvidia\.com/mig-(?P<profile>{_PROFILE})(?:\.shared)?")
_STRATEGIES = {"none", "time-slicing", "mps"}


@lru_cache(maxsize=4096)  # asked for every node and policy; a cluster has a few dozen products
def model_of(product: str) -> str:
    """Return the product label without what sharing and MIG add to it: `-MIG-<profile>` and `-SHARED`."""
    return product[: _SUFFIXES.search(product).start()]  # type: ignore[union-attr]  # the pattern matches everywhere


@dataclass(frozen=True, slots=True)
class MigCount:
    """How many MIG devices of a profile a node has; `model` where it differs from the node's."""

    profile: str
    count: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class GpuLabels:
    """A reader's conclusions from one node's labels and capacity."""

    model: str
    devices: int
    sharing: str
    replicas: int
    mig_strategy: str = "none"
    mig: tuple[MigCount, ...] = field(default=())
    renamed: bool = False
    vgpu: bool = False
    clique: bool = False
    invalid: bool = False
    disagree: bool = False


def read_labels(labels: Mapping[str, str], capacity: Mapping[str, int] | None = None) -> GpuLabels:
    """Conclude what a node has. Labels that no reader could trust are said to disagree, never guessed."""
    capacity = capacity or {}
    product = labels.get(names.PRODUCT_LABEL, "")
    model = model_of(product)
    suffix = _SUFFIXES.search(product)
    profile = (suffix.group("profile") if suffix else None) or ""
    devices = _number(labels.get(names.COUNT_LABEL))
    mig_strategy = labels.get(names.MIG_STRATEGY_LABEL, "none")
    mig = _mig_counts(labels, capacity, model)
    if mig_strategy == "single" and profile and profile != "INVALID":
        mig = (MigCount(profile, devices),)
    sharing, replicas = _sharing(labels, product)
    renamed = any(name.endswith(names.SHARED_SUFFIX) and count > 0 for name, count in capacity.items())
    disagree = sharing == "unknown" or _capacity_denies(labels, capacity, mig) or (renamed and replicas == 1)
    return GpuLabels(
        model=model,
        devices=devices,
        sharing="unknown" if disagree else sharing,
        replicas=replicas,
        mig_strategy=mig_strategy,
        mig=mig,
        renamed=renamed,
        vgpu=labels.get(names.VGPU_LABEL) == "true",
        clique=names.CLIQUE_LABEL in labels,
        invalid=profile == "INVALID",
        disagree=disagree,
    )


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() else 0


def _sharing(labels: Mapping[str, str], product: str) -> tuple[str, int]:
    replicas = max(1, _number(labels.get(names.REPLICAS_LABEL)))
    said = labels.get(names.SHARING_STRATEGY_LABEL, "")
    if said:
        return said if said in _STRATEGIES else "unknown", replicas
    # GFD before the sharing-strategy label: the suffix and more than one replica are the only signs.
    if replicas > 1 and product.endswith("-SHARED"):
        return "time-slicing", replicas
    return "none", replicas


def _mig_counts(labels: Mapping[str, str], capacity: Mapping[str, int], model: str) -> tuple[MigCount, ...]:
    found = []
    for key in sorted(key for key in labels if key.startswith(names.MIG_RESOURCE_PREFIX)):
        match = _MIG_COUNT.fullmatch(key)
        if not match:
            continue
        profile, count = match["profile"], _number(labels[key])
        product = labels.get(f"{names.MIG_RESOURCE_PREFIX}{profile}.product", "")
        other = model_of(product) if product and model_of(product) != model else ""
        found.append(MigCount(_as_advertised(profile, count, labels, capacity), count, other))
    return tuple(found)


def _as_advertised(profile: str, count: int, labels: Mapping[str, str], capacity: Mapping[str, int]) -> str:
    """Return the plugin's spelling: older GFD and plugin rounded memory differently (3g.21gb for mig-3g.20gb)."""
    if not capacity or f"{names.MIG_RESOURCE_PREFIX}{profile}" in capacity:
        return profile
    slices = profile.split(".")[0]
    unlabelled = [
        match["profile"]
        for name, size in sorted(capacity.items())
        if (match := _MIG_RESOURCE.fullmatch(name))
        and size == count
        and match["profile"].split(".")[0] == slices
        and f"{names.MIG_RESOURCE_PREFIX}{match['profile']}.count" not in labels
    ]
    return unlabelled[0] if len(unlabelled) == 1 else profile


def _capacity_denies(labels: Mapping[str, str], capacity: Mapping[str, int], mig: tuple[MigCount, ...]) -> bool:
    """Whether more MIG devices are advertised than the labels count; fewer may just be sick or in transition."""
    for entry in mig:
        resource = f"{names.MIG_RESOURCE_PREFIX}{entry.profile}"
        replicas = max(1, _number(labels.get(f"{resource}.replicas")))
        if capacity.get(resource, 0) > entry.count * replicas:
            return True
    return False
