"""What outlives a restart of the plugin, as values: the last good config, and every listed id with its config.

Both are needed before the API server or NVML answer (decision 36): ids that pods hold must stay listed, and `Allocate`
answers a retiring one by the config that it was listed under.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Any, Literal

from gpusharing.api.meta import Model
from gpusharing.api.problems import parse
from gpusharing.core.acceptance import Accepted, ConfigText, accept
from gpusharing.core.errors import InvalidInput
from gpusharing.core.listing import Entry, Listing
from gpusharing.core.options import Options
from gpusharing.core.resources import Device, Resource
from gpusharing.core.sealed import seal, unseal
from gpusharing.core.serving import ServedConfig

KIND, SCHEMA = "checkpoint", 1
_HINT = "it is written anew with the next change; until the config can be read nothing is served"


class SavedConfig(Model):
    """A config as it was found, or as our controller would have rendered it."""

    name: str
    text: str | None
    rendered: bool


class SavedDevices(Model):
    """Ids in a row that stand for one GPU or MIG device."""

    base: str
    gpu: str
    numa_node: int | None
    state: Literal["served", "withheld", "retiring"]
    ids: list[str]


class SavedList(Model):
    """Ids of one resource that were listed under one config."""

    resource: str
    replicas: int
    mps: bool
    # place in `configs`
    config: int
    devices: list[SavedDevices]


class Checkpoint(Model):
    """Everything that is kept."""

    # the last good config; none = no config was ever good
    served: SavedConfig | None
    # without it a config that needs CDI would be refused for as long as the API server is away
    runtime: str
    configs: list[SavedConfig]
    lists: list[SavedList]


# --- to text and back


def encode(checkpoint: Checkpoint) -> str:
    """Return the checkpoint as text."""
    return seal(KIND, SCHEMA, checkpoint.model_dump(mode="json", by_alias=True))


def decode(text: str) -> Checkpoint:
    """Read a checkpoint. Raises InvalidInput with what is wrong with it."""
    checkpoint, problems = parse(Checkpoint, unseal(text, KIND, SCHEMA, hint=_HINT))
    if checkpoint is None:
        raise InvalidInput(str(problems[0]), hint=_HINT)
    if any(not 0 <= listed.config < len(checkpoint.configs) for listed in checkpoint.lists):
        raise InvalidInput("a list names a config that is not there", hint=_HINT)
    return checkpoint


# --- from what is served and back


def checkpoint_of(accepted: Accepted | None, listing: Listing, runtime: str) -> Checkpoint:
    """Return what to keep of the config that is served, of the lists, and of the node's container runtime."""
    configs = _Configs()
    lists = [saved for name, entries in listing.lists.items() for saved in _saved(name, entries.values(), configs)]
    served = _config(accepted.source) if accepted else None
    return Checkpoint(served=served, runtime=runtime, configs=configs.saved, lists=lists)


def restore(checkpoint: Checkpoint, options: Options, now: float) -> tuple[Accepted | None, Listing, tuple[str, ...]]:
    """Return the last good config, the lists as of `now`, and why a part of them is lost.

    Flags and environment may have changed meanwhile, so a config that was good may be refused.
    """
    lost: list[str] = []
    accepted = _accepted(checkpoint.served, options, checkpoint.runtime, lost) if checkpoint.served else None
    configs = [
        _known(saved, accepted) or _accepted(saved, options, checkpoint.runtime, lost) for saved in checkpoint.configs
    ]
    lists: dict[str, dict[str, Entry]] = {}
    for listed in checkpoint.lists:
        config = configs[listed.config]
        if config is not None:
            lists.setdefault(listed.resource, {}).update(_entries(listed, config.served, now))
    frozen = {name: MappingProxyType(entries) for name, entries in lists.items()}
    return accepted, Listing(MappingProxyType(frozen)), tuple(lost)


class _Configs:
    """The configs that ids were listed under, each once; as our controller would render them."""

    def __init__(self) -> None:
        self.saved: list[SavedConfig] = []
        self._places: dict[int, int] = {}

    def place_of(self, config: ServedConfig) -> int:
        """Return the config's place. The objects live as long as the listing, so identity tells them apart."""
        place = self._places.get(id(config))
        if place is None:
            saved = _canonical(config)
            if saved not in self.saved:
                self.saved.append(saved)
            place = self._places[id(config)] = self.saved.index(saved)
        return place


def _canonical(config: ServedConfig) -> SavedConfig:
    return SavedConfig(name=config.name, text=config.config.to_yaml(), rendered=True)


def _config(source: ConfigText) -> SavedConfig:
    return SavedConfig(name=source.name, text=source.text, rendered=source.rendered)


def _saved(name: str, entries: Iterable[Entry], configs: _Configs) -> Iterator[SavedList]:
    """Yield the lists of one resource: one for each config and each number of replicas, in their order."""
    by_kind: dict[tuple[int, int, bool], list[Entry]] = {}
    for entry in entries:
        kind = (configs.place_of(entry.config), entry.resource.replicas, entry.resource.mps)
        by_kind.setdefault(kind, []).append(entry)
    for (config, replicas, mps), listed in by_kind.items():
        devices = [
            SavedDevices(base=base, gpu=gpu, numa_node=numa, state=state, ids=[entry.device.id for entry in same])
            for (base, gpu, numa, state), same in groupby(listed, key=_where)
        ]
        yield SavedList(resource=name, replicas=replicas, mps=mps, config=config, devices=devices)


def _where(entry: Entry) -> tuple[str, str, int | None, Any]:
    return entry.device.base, entry.device.gpu, entry.device.numa_node, entry.state


def _known(saved: SavedConfig, accepted: Accepted | None) -> Accepted | None:
    """Return the last good config if it is this one: most ids are listed under it, and it need not be read twice."""
    return accepted if accepted is not None and _canonical(accepted.served) == saved else None


def _accepted(saved: SavedConfig, options: Options, runtime: str, lost: list[str]) -> Accepted | None:
    try:
        return accept(ConfigText(saved.name, saved.text, saved.rendered), options, runtime)
    except InvalidInput as error:
        lost.append(f"config {saved.name or 'without a name'}: {error}")
        return None


def _entries(listed: SavedList, config: ServedConfig, now: float) -> Mapping[str, Entry]:
    states = {device_id: saved.state for saved in listed.devices for device_id in saved.ids}
    devices = tuple(
        Device(device_id, saved.base, saved.gpu, saved.numa_node) for saved in listed.devices for device_id in saved.ids
    )
    resource = Resource(listed.resource, devices, listed.replicas, listed.mps)
    return {device.id: Entry(device, resource, config, states[device.id], now) for device in devices}
