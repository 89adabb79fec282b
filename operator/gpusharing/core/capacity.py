"""How many devices a node has under a config label: by its report, or by GPU Feature Discovery's labels."""

from collections.abc import Mapping
from functools import lru_cache

from gpusharing.api import names
from gpusharing.api.pluginconfig import Flags, InvalidPluginConfig, PluginConfig, load
from gpusharing.core.advertise import implied, predicted_from_labels
from gpusharing.core.gfd import read_labels
from gpusharing.core.reports import shared_gpus
from gpusharing.core.world import World

Devices = Mapping[str, int]
UNSHARED = PluginConfig()


def devices_now(world: World, name: str) -> Devices | None:
    """Return resource → devices of the node as it is; None = nobody says.

    A config that we know tells best. Else the plugin's report does, else the labels of GPU Feature Discovery: they
    describe what is served, by whatever config.
    """
    node, report = world.nodes[name], world.reports.get(name)
    label = node.config_label
    if label and config_of(world, name, label) is not None:
        return devices_under(world, name, label)
    if report is not None and report.resources and report.config.served == label:
        rows = [row for row in report.resources if not row.name.startswith(names.PLACE_DOMAIN)]
        return {row.name: row.devices - row.retiring for row in rows}
    labels = read_labels(node.labels, node.allocatable)
    strategy = labels.mig_strategy if labels.mig_strategy in {"single", "mixed"} else None
    flags = Flags.model_validate({"migStrategy": strategy})
    whole = predicted_from_labels(PluginConfig(flags=flags), labels)
    if whole is None:
        return None
    return {
        resource: count * _replicas(node.labels.get(f"{resource}.replicas", "")) for resource, count in whole.items()
    }


def _replicas(text: str) -> int:
    return max(1, int(text)) if text.isascii() and text.isdigit() else 1


def devices_under(world: World, name: str, label: str) -> Devices | None:
    """Return resource → devices of the node once its config label has this value; None = nobody can know.

    Without a label the plugin's own flags count, which are not known here: it is taken to share nothing.
    """
    config, report = config_of(world, name, label), world.reports.get(name)
    if config is None:
        return None
    if report is not None and report.gpus:
        return implied(config, shared_gpus(report))
    node = world.nodes[name]
    return predicted_from_labels(config, read_labels(node.labels, node.allocatable))


def config_of(world: World, name: str, label: str) -> PluginConfig | None:
    """Return the config that the label's value names: a policy's, or one of the node's record or the shared one."""
    if not label:
        return UNSHARED
    for policy in world.policies.values():
        if policy.rendered is not None and policy.rendered.name == label:
            return policy.rendered.config
    record = world.records.get(name)
    text = (record.data if record is not None else {}).get(label) or world.shared.data.get(label)
    return _load(text) if text else None


@lru_cache(maxsize=1024)
def _load(text: str) -> PluginConfig | None:
    try:
        return load(text)
    except InvalidPluginConfig:
        return None


def gpu_count(world: World, name: str) -> int | None:
    """Return how many GPUs the node has; None = nobody says."""
    report = world.reports.get(name)
    if report is not None and report.gpus:
        return len(report.gpus)
    labels = read_labels(world.nodes[name].labels)
    # with migStrategy single the label counts MIG devices
    return labels.devices if labels.devices and labels.mig_strategy != "single" else None
