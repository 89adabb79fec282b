from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hardware import ConfigBuilder, HardwareBuilder, gpu_uuid, make_config, make_hardware, mig_uuid

from gpusharing.api.sharing import DeviceListStrategy
from gpusharing.core.edits import DeviceSpec, Edits, Mount, edits_for
from gpusharing.core.errors import InvalidInput
from gpusharing.core.host import HostFacts
from gpusharing.core.resources import Resource, resources_of

G0, G1 = gpu_uuid(0), gpu_uuid(1)
M0, M1 = mig_uuid(1, 0), mig_uuid(1, 1)
FOLDER = "/var/run/nvidia-container-devices"
GPU_CDI = "k8s.device-plugin.nvidia.com/gpu"
HARDWARE = make_hardware(2).mig(1, "1g.10gb", "1g.10gb")
MIG_MINORS = {(11, 1, None): 21, (11, 1, 0): 22, (11, 2, None): 23, (11, 2, 0): 24}
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
HOST = HostFacts(
    nodes=frozenset({"/dev/nvidiactl", "/dev/nvidia-uvm", CHANNEL}),
    mig_minors=MIG_MINORS,
    cdi_classes=frozenset({"gpu", "imex-channel", "gdrcopy"}),
)


def edits(config: ConfigBuilder, *ids: str, hardware: HardwareBuilder = HARDWARE, host: HostFacts = HOST) -> Edits:
    served = config.build()
    resource = resources_of(served, hardware.build())[0]
    return edits_for(served, resource, ids, hardware.build(), host)


def visible(config: ConfigBuilder, *ids: str) -> str:
    return edits(config, *ids).envs["NVIDIA_VISIBLE_DEVICES"]


# --- which devices, and by which name


def test_by_default_an_environment_variable_lists_uuids_and_that_is_all() -> None:
    assert edits(make_config(), G1, G0) == Edits(envs={"NVIDIA_VISIBLE_DEVICES": f"{G1},{G0}"})


def test_shares_of_one_gpu_name_it_once_in_order_of_the_request() -> None:
    config = make_config().shared(4)
    assert visible(config, f"{G1}::3", f"{G0}::1", f"{G1}::0", f"{G0}::2") == f"{G1},{G0}"
    assert visible(config.set(device_id_strategy="index"), f"{G1}::3", f"{G0}::1", f"{G1}::0") == "1,0"


def test_mig_devices_are_named_by_their_uuid_or_by_gpu_and_slot() -> None:
    config = make_config().mig("mixed")
    assert visible(config, M1, M0) == f"{M1},{M0}"
    assert visible(config.set(device_id_strategy="index"), M1, M0, G0) == "1:2,1:0,0"


@pytest.mark.parametrize("strategy", ["uuid", "index"])
@pytest.mark.parametrize("lists", ["envvar", "volume-mounts", "cdi-cri"])
def test_a_service_of_a_placement_is_told_uuids_and_the_hosts_indexes_only_as_information(
    strategy: str, lists: DeviceListStrategy
) -> None:
    served = make_config().shared(4).lists(lists).set(device_id_strategy=strategy).build()
    name = "place.gpusharing.io/policy.p.team"
    got = edits_for(served, Resource(name, ()), [f"{G1}::0123abcd", G0], make_hardware(2).build(), HOST)
    assert (got.envs["GPU_PLACEMENT_COUNT"], got.envs["GPU_PLACEMENT_INDEXES"]) == ("2", "1,0")
    # a CDI name is no device list: it is looked up on the host
    by_cdi = [f"{GPU_CDI}={it}" for it in ((G1, G0) if strategy == "uuid" else ("1", "0"))]
    assert {
        "envvar": got.envs.get("NVIDIA_VISIBLE_DEVICES") == f"{G1},{G0}",
        "volume-mounts": [mount.container_path for mount in got.mounts] == [f"{FOLDER}/{G1}", f"{FOLDER}/{G0}"],
        "cdi-cri": list(got.cdi_devices[:2]) == by_cdi,
    }[lists]


def test_an_id_of_a_device_that_is_gone_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^MIG-gone is not on this node any more. hint: delete the pod"):
        edits(make_config(), "MIG-gone::2")


# --- the parts, one by one (contract 6)

PARTS: dict[str, tuple[ConfigBuilder, dict[str, Any]]] = {
    "volume mounts": (
        make_config().lists("volume-mounts"),
        {"envs": {"NVIDIA_VISIBLE_DEVICES": FOLDER}, "mounts": (Mount(f"{FOLDER}/{G0}", "/dev/null"),)},
    ),
    "volume mounts win over the variable": (
        make_config().lists("envvar", "volume-mounts").set(imex_channels=(0,)),
        {
            "envs": {"NVIDIA_VISIBLE_DEVICES": FOLDER, "NVIDIA_IMEX_CHANNELS": "0"},
            "mounts": (Mount(f"{FOLDER}/{G0}", "/dev/null"), Mount(f"{FOLDER}/imex/0", "/dev/null")),
        },
    ),
    "an IMEX channel in a variable": (
        make_config().set(imex_channels=(0,)),
        {"envs": {"NVIDIA_VISIBLE_DEVICES": G0, "NVIDIA_IMEX_CHANNELS": "0"}},
    ),
    "CDI names for the runtime": (
        make_config().lists("cdi-cri"),
        {"cdi_devices": (f"{GPU_CDI}={G0}",)},
    ),
    "CDI names by index": (
        make_config().lists("cdi-cri").set(device_id_strategy="index"),
        {"cdi_devices": (f"{GPU_CDI}=0",)},
    ),
    "CDI alone ends there, device specs included": (
        make_config().lists("cdi-cri").set(pass_device_specs=True, gdrcopy=True, gds=True, imex_channels=(0,)),
        {
            "envs": {"NVIDIA_GDRCOPY": "enabled", "NVIDIA_GDS": "enabled"},
            "cdi_devices": (
                f"{GPU_CDI}={G0}",
                "k8s.device-plugin.nvidia.com/imex-channel=0",
                "k8s.device-plugin.nvidia.com/gdrcopy=all",
            ),
        },
    ),
    "CDI beside the variable": (
        make_config().lists("cdi-cri", "envvar"),
        {"cdi_devices": (f"{GPU_CDI}={G0}",), "envs": {"NVIDIA_VISIBLE_DEVICES": G0}},
    ),
    "three features": (
        make_config().set(gdrcopy=True, gds=True, mofed=True),
        {
            "envs": {
                "NVIDIA_GDRCOPY": "enabled",
                "NVIDIA_GDS": "enabled",
                "NVIDIA_MOFED": "enabled",
                "NVIDIA_VISIBLE_DEVICES": G0,
            }
        },
    ),
    "device specs": (
        make_config().set(pass_device_specs=True, imex_channels=(0,)),
        {
            "envs": {"NVIDIA_VISIBLE_DEVICES": G0, "NVIDIA_IMEX_CHANNELS": "0"},
            "devices": tuple(
                DeviceSpec(node, node, "rw") for node in ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia10", CHANNEL)
            ),
        },
    ),
    "device specs below a driver root": (
        make_config().set(pass_device_specs=True, driver_root="/run/nvidia/driver/"),
        {
            "envs": {"NVIDIA_VISIBLE_DEVICES": G0},
            "devices": tuple(
                DeviceSpec(node, f"/run/nvidia/driver{node}")
                for node in ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia10")
            ),
        },
    ),
}


@pytest.mark.parametrize(("config", "want"), PARTS.values(), ids=PARTS.keys())
def test_a_strategy_makes_these_edits(config: ConfigBuilder, want: dict[str, Any]) -> None:
    assert edits(config, G0) == Edits(**want)


def test_the_device_root_wins_over_the_driver_root() -> None:
    config = make_config().set(pass_device_specs=True, driver_root="/driver", dev_root="/")
    assert edits(config, G0).devices[-1] == DeviceSpec("/dev/nvidia10", "/dev/nvidia10")


def test_mps_shares_get_the_pipe_and_the_shared_memory_of_their_resource() -> None:
    got = edits(make_config().mps(2, renameByDefault=True), f"{G0}::1")
    pipe = "/mps/nvidia.com/gpu.shared/pipe"
    assert got == Edits(
        envs={"CUDA_MPS_PIPE_DIRECTORY": pipe, "NVIDIA_VISIBLE_DEVICES": G0},
        mounts=(
            Mount(pipe, "/run/nvidia/mps/nvidia.com/gpu.shared/pipe"),
            Mount("/dev/shm", "/run/nvidia/mps/shm"),
        ),
    )


def test_under_mps_cdi_alone_keeps_the_pipe() -> None:
    got = edits(make_config().mps(2).lists("cdi-cri"), f"{G0}::1")
    assert got.envs == {"CUDA_MPS_PIPE_DIRECTORY": "/mps/nvidia.com/gpu/pipe"}
    assert len(got.mounts) == 2


def test_mig_devices_of_one_gpu_have_its_node_once() -> None:
    got = edits(make_config().mig("mixed").set(pass_device_specs=True), M0, M1)
    caps = [f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in (21, 22, 23, 24)]
    assert [device.container_path for device in got.devices] == [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia11",
        *caps,
    ]


def test_a_mig_device_without_capability_nodes_is_refused_only_where_they_are_handed_over() -> None:
    config = make_config().mig("mixed")
    bare = HostFacts()
    assert edits(config, M0, host=bare).envs == {"NVIDIA_VISIBLE_DEVICES": M0}
    with pytest.raises(InvalidInput, match="has no capability node"):
        edits(config.set(pass_device_specs=True), M0, host=bare)


# --- CDI annotations


def annotation(config: ConfigBuilder, *ids: str) -> tuple[str, str]:
    ((key, value),) = edits(config, *ids).annotations.items()
    return key, value


def test_a_cdi_annotation_has_the_key_of_the_reference_by_pattern() -> None:
    config = make_config().shared(2).lists("cdi-annotations")
    key, value = annotation(config, f"{G0}::1", f"{G1}::0")
    assert value == f"{GPU_CDI}={G0},{GPU_CDI}={G1}"
    prefix, _, unique = key.partition("_")
    assert prefix == "cdi.k8s.io/nvidia-device-plugin"
    assert [len(part) for part in unique.split("-")] == [8, 4, 4, 4, 12]
    # the name behind the slash is a label name: 63 characters at most
    assert len(key.partition("/")[2]) <= 63
    other, _ = annotation(config.set(cdi_annotation_prefix="nvidia.cdi.k8s.io/"), f"{G0}::1")
    assert other.startswith("nvidia.cdi.k8s.io/nvidia-device-plugin_")


@pytest.mark.obligation("P14")
def test_the_same_call_gets_the_same_answer_and_another_resource_another_key() -> None:
    config = make_config().shared(2).lists("cdi-annotations")
    assert edits(config, f"{G0}::1") == edits(config, f"{G0}::1")
    renamed = make_config().shared(2, renameByDefault=True).lists("cdi-annotations")
    assert annotation(config, f"{G0}::1")[0] != annotation(renamed, f"{G0}::1")[0]


# --- laws

strategies = st.lists(st.sampled_from(get_args(DeviceListStrategy)), min_size=1, max_size=4, unique=True)
requests = st.lists(
    st.builds(lambda gpu, replica: f"{gpu_uuid(gpu)}::{replica}", st.integers(0, 3), st.integers(0, 3)),
    min_size=1,
    max_size=8,
    unique=True,
)


@st.composite
def configs(draw: st.DrawFn) -> ConfigBuilder:
    config = make_config().mps(4) if draw(st.booleans()) else make_config().shared(4)
    return config.lists(*draw(strategies)).set(
        device_id_strategy=draw(st.sampled_from(["uuid", "index"])),
        pass_device_specs=draw(st.booleans()),
        gdrcopy=draw(st.booleans()),
        imex_channels=draw(st.sampled_from([(), (0,)])),
    )


@given(configs(), requests)
@settings(deadline=None, max_examples=80)
def test_every_strategy_names_exactly_the_gpus_of_the_request(config: ConfigBuilder, ids: list[str]) -> None:
    served, got = config.build(), edits(config, *ids, hardware=make_hardware(4))
    index = {gpu_uuid(n): str(n) for n in range(4)}
    gpus = list(dict.fromkeys(one.partition("::")[0] for one in ids))
    want = gpus if served.device_id_strategy == "uuid" else [index[gpu] for gpu in gpus]
    if "cdi-cri" in served.device_list_strategies:
        assert [name for name in got.cdi_devices if name.startswith(GPU_CDI)] == [f"{GPU_CDI}={name}" for name in want]
    if "volume-mounts" in served.device_list_strategies:
        files = [mount.container_path.removeprefix(f"{FOLDER}/") for mount in got.mounts]
        assert [file for file in files if "/" not in file] == want
        assert got.envs["NVIDIA_VISIBLE_DEVICES"] == FOLDER
    elif "envvar" in served.device_list_strategies:
        assert got.envs["NVIDIA_VISIBLE_DEVICES"] == ",".join(want)


@given(configs(), requests)
@settings(deadline=None, max_examples=80)
def test_nothing_is_handed_over_twice_and_paths_are_absolute(config: ConfigBuilder, ids: list[str]) -> None:
    got = edits(config, *ids, hardware=make_hardware(4))
    for paths in ([mount.container_path for mount in got.mounts], [spec.container_path for spec in got.devices]):
        assert len(paths) == len(set(paths))
        assert all(path.startswith("/") and "//" not in path for path in paths)
    assert all(spec.permissions == "rw" for spec in got.devices)
    assert bool(got.devices) == (
        config.build().pass_device_specs
        and any(not strategy.startswith("cdi-") for strategy in config.build().device_list_strategies)
    )
