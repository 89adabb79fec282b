import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hardware import ConfigBuilder, HardwareBuilder, gpu_uuid, make_config, make_hardware, mig_uuid

from gpusharing.core.cdi import simulated_specs
from gpusharing.core.edits import edits_for
from gpusharing.core.errors import InvalidInput
from gpusharing.core.host import HostFacts
from gpusharing.core.resources import resources_of

CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
MIG = make_hardware(2).mig(1, "1g.10gb", "3g.40gb")
MIG_MINORS = {(11, gi, ci): 20 + 2 * gi + (ci is not None) for gi in (1, 2) for ci in (None, 0)}
HOST = HostFacts(nodes=frozenset({"/dev/nvidiactl", CHANNEL}), mig_minors=MIG_MINORS)


def specs(config: ConfigBuilder, hardware: HardwareBuilder = MIG, host: HostFacts = HOST) -> dict[str, dict[str, Any]]:
    return simulated_specs(config.build(), hardware.build(), host)


def names(spec: dict[str, Any]) -> list[str]:
    return [device["name"] for device in spec["devices"]]


def node(path: str, host_path: str = "") -> dict[str, str]:
    return {"path": path, "hostPath": host_path or path, "permissions": "rw"}


def test_a_spec_of_simulated_gpus_has_their_device_nodes_and_nothing_else() -> None:
    assert specs(make_config(), make_hardware(1)) == {
        "gpu": {
            "cdiVersion": "0.5.0",
            "kind": "k8s.device-plugin.nvidia.com/gpu",
            "devices": [{"name": gpu_uuid(0), "containerEdits": {"deviceNodes": [node("/dev/nvidia10")]}}],
            "containerEdits": {"deviceNodes": [node("/dev/nvidiactl")]},
        }
    }


def test_names_follow_the_device_id_strategy() -> None:
    uuids, indices = (
        names(specs(make_config().mig("mixed").set(device_id_strategy=strategy))["gpu"])
        for strategy in ("uuid", "index")
    )
    assert uuids == [gpu_uuid(0), gpu_uuid(1), mig_uuid(1, 0), mig_uuid(1, 1)]
    assert indices == ["0", "1", "1:0", "1:2"]


def test_a_mig_device_has_its_capability_nodes() -> None:
    device = specs(make_config().mig("mixed"))["gpu"]["devices"][2]
    nodes = [entry["path"] for entry in device["containerEdits"]["deviceNodes"]]
    assert nodes == ["/dev/nvidia11", "/dev/nvidia-caps/nvidia-cap22", "/dev/nvidia-caps/nvidia-cap23"]


def test_nodes_lie_below_the_device_root_on_the_host() -> None:
    spec = specs(make_config().set(dev_root="/run/fake"), make_hardware(1))["gpu"]
    assert spec["devices"][0]["containerEdits"]["deviceNodes"] == [node("/dev/nvidia10", "/run/fake/dev/nvidia10")]
    assert spec["containerEdits"]["deviceNodes"] == [node("/dev/nvidiactl", "/run/fake/dev/nvidiactl")]


def test_channels_have_a_class_of_their_own_if_they_are_there() -> None:
    config = make_config().set(imex_channels=(0,))
    spec = specs(config)["imex-channel"]
    assert spec["kind"] == "k8s.device-plugin.nvidia.com/imex-channel"
    assert spec["devices"] == [{"name": "0", "containerEdits": {"deviceNodes": [node(CHANNEL)]}}]
    assert "containerEdits" not in spec
    assert list(specs(config, host=HostFacts(mig_minors=MIG_MINORS))) == ["gpu"]


def test_without_gpus_there_is_no_spec() -> None:
    assert specs(make_config(), make_hardware(0)) == {}
    assert specs(make_config(), make_hardware(1).change(0, model="DGX Display")) == {}


def test_mig_devices_without_capability_nodes_matter_only_where_they_are_served() -> None:
    assert names(specs(make_config(), host=HostFacts())["gpu"]) == [gpu_uuid(0), gpu_uuid(1)]
    with pytest.raises(InvalidInput, match="has no capability node"):
        specs(make_config().mig("mixed"), host=HostFacts())


def test_names_of_mig_devices_stay_when_the_strategy_no_longer_serves_them() -> None:
    assert names(specs(make_config())["gpu"]) == names(specs(make_config().mig("mixed"))["gpu"])


@given(st.sampled_from(["none", "mixed"]), st.sampled_from(["uuid", "index"]), st.booleans())
@settings(deadline=None, max_examples=20)
def test_every_name_that_allocate_answers_is_in_a_spec(strategy: str, ids: str, shared: bool) -> None:
    config = make_config().mig(strategy).lists("cdi-cri").set(device_id_strategy=ids, imex_channels=(0,))
    config = config.shared(2) if shared else config
    made = specs(config)
    there = {f"{spec['kind']}={name}" for spec in made.values() for name in names(spec)}
    for resource in resources_of(config.build(), MIG.build()):
        answer = edits_for(config.build(), resource, [one.id for one in resource.devices], MIG.build(), HOST)
        assert set(answer.cdi_devices) <= there
    json.dumps(made)
