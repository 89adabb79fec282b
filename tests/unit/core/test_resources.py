from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hardware import ConfigBuilder, HardwareBuilder, gpu_uuid, make_config, make_hardware, mig_uuid

from gpusharing.core.advertise import implied
from gpusharing.core.devices import Inventory
from gpusharing.core.errors import InvalidInput
from gpusharing.core.inventoryreport import gpu_report
from gpusharing.core.resources import Device, Resource, resources_of, served_gpus, unknown_resources

GPU = "nvidia.com/gpu"
PLAIN = make_hardware(3)
PARTLY_MIG = make_hardware(3).mig(1, "1g.10gb", "3g.40gb", "1g.10gb").mig(2, "1g.10gb+me")
ALL_MIG = make_hardware(2).mig(0, "1g.10gb", "1g.10gb").mig(1, "1g.10gb")
SMALL, BIG, ENGINE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb.me"


def ids(config: ConfigBuilder, hardware: HardwareBuilder) -> dict[str, list[str]]:
    found = resources_of(config.build(), hardware.build())
    return {resource.name: [device.id for device in resource.devices] for resource in found}


def refusal(config: ConfigBuilder, hardware: HardwareBuilder) -> str:
    with pytest.raises(InvalidInput) as caught:
        resources_of(config.build(), hardware.build())
    return str(caught.value)


LISTS: dict[str, tuple[ConfigBuilder, HardwareBuilder, dict[str, list[str]]]] = {
    "whole GPUs have their UUIDs": (make_config(), PLAIN, {GPU: [gpu_uuid(n) for n in range(3)]}),
    "shares are counted from 0, GPU by GPU": (
        make_config().shared(2),
        make_hardware(2),
        {GPU: [f"{gpu_uuid(0)}::0", f"{gpu_uuid(0)}::1", f"{gpu_uuid(1)}::0", f"{gpu_uuid(1)}::1"]},
    ),
    "a rename replaces the name": (
        make_config().shared(2, renameByDefault=True),
        make_hardware(1),
        {f"{GPU}.shared": [f"{gpu_uuid(0)}::0", f"{gpu_uuid(0)}::1"]},
    ),
    "none ignores MIG": (make_config(), PARTLY_MIG, {GPU: [gpu_uuid(n) for n in range(3)]}),
    "single shows MIG devices as GPUs": (
        make_config().mig("single"),
        ALL_MIG,
        {GPU: [mig_uuid(0, 0), mig_uuid(0, 1), mig_uuid(1, 0)]},
    ),
    "single without MIG is as none": (make_config().mig("single"), make_hardware(1), {GPU: [gpu_uuid(0)]}),
    "mixed has a resource for each profile": (
        make_config().mig("mixed"),
        PARTLY_MIG,
        {GPU: [gpu_uuid(0)], SMALL: [mig_uuid(1, 0), mig_uuid(1, 2)], ENGINE: [mig_uuid(2, 0)], BIG: [mig_uuid(1, 1)]},
    ),
    "mixed passes over a GPU in MIG mode without devices": (
        make_config().mig("mixed"),
        make_hardware(2).mig(0),
        {GPU: [gpu_uuid(1)]},
    ),
    "mixed, one profile shared and renamed": (
        make_config().mig("mixed").shared({BIG: 2}, renameByDefault=True),
        make_hardware(1).mig(0, "3g.40gb", "1g.10gb"),
        {f"{BIG}.shared": [f"{mig_uuid(0, 0)}::0", f"{mig_uuid(0, 0)}::1"], SMALL: [mig_uuid(0, 1)]},
    ),
    "a name without its domain is NVIDIA's": (
        make_config().shared({"gpu": 2}),
        make_hardware(1),
        {GPU: [f"{gpu_uuid(0)}::0", f"{gpu_uuid(0)}::1"]},
    ),
    "no GPU, no resource": (make_config().shared(4), make_hardware(0), {}),
}


@pytest.mark.parametrize(("config", "hardware", "want"), LISTS.values(), ids=LISTS.keys())
def test_a_config_makes_these_ids(config: ConfigBuilder, hardware: HardwareBuilder, want: dict[str, list[str]]) -> None:
    assert ids(config, hardware) == want


def test_a_device_knows_its_gpu_and_the_numa_node_of_that() -> None:
    hardware = PARTLY_MIG.build()
    found = {resource.name: resource for resource in resources_of(make_config().mig("mixed").build(), hardware)}
    assert found[ENGINE].devices == (Device(mig_uuid(2, 0), mig_uuid(2, 0), gpu_uuid(2), 1),)


def test_devices_come_by_index_whatever_the_order_of_discovery() -> None:
    hardware = PARTLY_MIG.build()
    shuffled = Inventory(
        tuple(replace(gpu, mig_devices=gpu.mig_devices[::-1]) for gpu in hardware.gpus[::-1]), hardware.driver_version
    )
    config = make_config().mig("mixed").shared({SMALL: 2}).build()
    assert resources_of(config, shuffled) == resources_of(config, hardware)


def test_of_a_resource_that_is_listed_twice_the_larger_number_wins() -> None:
    config = make_config().shared({GPU: 2, "gpu": 3})
    assert len(ids(config, make_hardware(1))[GPU]) == 3
    assert len(ids(make_config().shared({GPU: 3, "gpu": 2}), make_hardware(1))[GPU]) == 3


def test_replicas_and_mps_are_known_of_each_resource() -> None:
    shared, plain = resources_of(
        make_config().mig("mixed").shared({GPU: 4}).build(), make_hardware(2).mig(1, "1g.10gb").build()
    )
    assert (shared.replicas, shared.mps, shared.short_name) == (4, False, "gpu")
    assert (plain.replicas, plain.mps, plain.short_name) == (1, False, "mig-1g.10gb")
    (mps,) = resources_of(make_config().mps(4).build(), make_hardware(1).build())
    assert (mps.replicas, mps.mps) == (4, True)


def test_only_unshared_gpus_are_whole() -> None:
    def whole(config: ConfigBuilder, hardware: HardwareBuilder) -> list[bool]:
        return [resource.whole_gpus for resource in resources_of(config.build(), hardware.build())]

    assert whole(make_config(), PLAIN) == [True]
    assert whole(make_config().shared(2), PLAIN) == [False]
    assert whole(make_config().mig("single"), ALL_MIG) == [False]


@pytest.mark.parametrize("model", ["DGX Display", "NVIDIA DGX Display"])
def test_a_gpu_that_drives_a_monitor_is_skipped_everywhere(model: str) -> None:
    hardware = make_hardware(2).change(0, model=model)
    assert ids(make_config(), hardware) == {GPU: [gpu_uuid(1)]}
    # it would be one without MIG among others with it
    assert ids(make_config().mig("single"), hardware.mig(1, "1g.10gb")) == {GPU: [mig_uuid(1, 0)]}
    assert implied(make_config().build().config, [gpu_report(gpu, True) for gpu in hardware.build().gpus]) == {GPU: 1}
    assert [gpu.index for gpu in served_gpus(hardware.build())] == [1]


REFUSED: dict[str, tuple[ConfigBuilder, HardwareBuilder, str]] = {
    "single, on some GPUs only": (
        make_config().mig("single"),
        PARTLY_MIG,
        "migStrategy: single, but MIG is enabled on GPU 1, 2 and not on GPU 0. hint: enable MIG on all GPUs",
    ),
    "single, a GPU without devices": (
        make_config().mig("single"),
        ALL_MIG.mig(1),
        "migStrategy: single, but GPU 1 in MIG mode without any MIG device. hint: create MIG devices",
    ),
    "single, several profiles": (
        make_config().mig("single"),
        ALL_MIG.mig(1, "3g.40gb", "1g.10gb+me"),
        "the MIG devices have 3 profiles: 1g.10gb, 1g.10gb+me, 3g.40gb. hint: give all GPUs one profile",
    ),
    "mixed, a compute instance smaller than its GPU instance": (
        make_config().mig("mixed"),
        make_hardware(1).mig(0, "1c.3g.40gb"),
        "MIG device 0 of GPU 0 is a 1c.3g.40gb, 1 of 3 compute slices, for which there is no resource. hint: create",
    ),
    "MPS and mixed, without any MIG": (
        make_config().mig("mixed").mps(2),
        make_hardware(1),
        "sharing.mps with migStrategy: mixed: MPS serves whole GPUs only. hint: share by sharing.timeSlicing",
    ),
    "MPS and single, with MIG": (
        make_config().mig("single").mps(2),
        ALL_MIG,
        "sharing.mps with migStrategy: single, but GPU 0 is in MIG mode",
    ),
    "MPS without a root": (
        make_config().mps(2).set(mps_root=""),
        make_hardware(1),
        "sharing.mps without an mpsRoot: the plugin finds the daemon's pipe below it. hint: set --mps-root",
    ),
    "too many for MPS": (
        make_config().mps(49),
        make_hardware(1),
        "sharing.mps: 49 replicas, but MPS allows at most 48 on GPU 0 (NVIDIA A100-SXM4-80GB, compute capability 8.0)",
    ),
    "too many for MPS on a V100": (
        make_config().mps(17),
        make_hardware(2).change(1, model="Tesla V100", compute_capability=(7, 0)),
        "MPS allows at most 16 on GPU 1 (Tesla V100, compute capability 7.0). hint: set replicas to 16 or fewer",
    ),
    "an id that is too long": (
        make_config(),
        make_hardware(1).change(0, uuid=f"GPU-{'0' * 60}"),
        "of nvidia.com/gpu has 64 characters, ids have at most 63. hint: this is no UUID",
    ),
    "an id that becomes too long by its replica": (
        make_config().shared(11),
        make_hardware(1).change(0, uuid=f"GPU-{'0' * 56}"),
        '::10" of nvidia.com/gpu has 64 characters',
    ),
    "a name that the kubelet does not take": (
        make_config().mig("mixed").shared({f"nvidia.com/mig-1g.{'1' * 49}gb": 2}, renameByDefault=True),
        make_hardware(1).mig(0, f"1g.{'1' * 49}gb"),
        'gb.shared" is no resource name that the kubelet takes. hint: at most 63 letters',
    ),
}


@pytest.mark.fault("F18")
@pytest.mark.parametrize(("config", "hardware", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_what_nvidias_plugin_dies_on_is_a_refused_config(
    config: ConfigBuilder, hardware: HardwareBuilder, want: str
) -> None:
    got = refusal(config, hardware)
    assert want in got
    assert "\n" not in got


def test_mps_serves_a_gpu_whose_capability_is_not_known_as_a_newer_one() -> None:
    assert len(ids(make_config().mps(48), make_hardware(1).change(0, compute_capability=(0, 0)))[GPU]) == 48


def test_mps_ignores_mig_where_the_strategy_does() -> None:
    assert len(ids(make_config().mps(4), make_hardware(1).mig(0, "1g.10gb"))[GPU]) == 4


@pytest.mark.obligation("P7")
def test_60000_devices_are_served_and_70000_refused() -> None:
    config, hardware = make_config().shared(7500), make_hardware(8)
    (resource,) = resources_of(config.build(), hardware.build())
    assert len(resource.devices) == 60_000
    got = refusal(make_config().shared(8750), hardware)
    assert "nvidia.com/gpu: 70000 devices make a list of 4." in got
    assert "the kubelet takes at most 3.9 MiB. hint: lower its replicas: about 60,000 devices fit" in got


@pytest.mark.obligation("P7")
def test_a_billion_replicas_are_refused_before_they_are_made() -> None:
    assert "nvidia.com/gpu: 2000000000 devices make a list of" in refusal(
        make_config().shared(1_000_000_000), make_hardware(2)
    )


def test_a_name_under_sharing_that_no_device_has_is_told() -> None:
    def unknown(config: ConfigBuilder, hardware: HardwareBuilder) -> tuple[str, ...]:
        return unknown_resources(config.build(), hardware.build())

    typo = make_config().shared({"nvidia.com/gpus": 2, GPU: 2, SMALL: 3}, renameByDefault=True)
    assert unknown(typo, PARTLY_MIG) == ("nvidia.com/gpus", SMALL)
    assert unknown(typo.mig("mixed"), PARTLY_MIG) == ("nvidia.com/gpus",)
    assert unknown(make_config().shared({"gpu": 2}), PLAIN) == ()
    assert unknown(make_config().shared(2), make_hardware(0)) == (GPU,)
    assert unknown(make_config(), PLAIN) == ()


profiles = st.sampled_from(["1g.10gb", "1g.10gb+me", "3g.40gb", "7g.80gb"])
hardwares = st.lists(st.none() | st.lists(profiles, max_size=4), max_size=4).map(
    lambda drawn: _hardware([list(profiles) if profiles is not None else None for profiles in drawn])
)
sharings: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "replicas": st.dictionaries(st.sampled_from([GPU, SMALL, BIG, ENGINE]), st.integers(2, 5), min_size=1),
        "renameByDefault": st.booleans(),
    }
)


def _hardware(mig: list[list[str] | None]) -> HardwareBuilder:
    hardware = make_hardware(len(mig))
    for index, profiles in enumerate(mig):
        if profiles is not None:
            hardware = hardware.mig(index, *profiles)
    return hardware


@st.composite
def configs(draw: st.DrawFn) -> ConfigBuilder:
    config = make_config().mig(draw(st.sampled_from(["none", "single", "mixed"])))
    drawn = draw(st.none() | sharings)
    return config if drawn is None else config.shared(drawn["replicas"], renameByDefault=drawn["renameByDefault"])


def made(config: ConfigBuilder, hardware: HardwareBuilder) -> tuple[Resource, ...] | None:
    try:
        return resources_of(config.build(), hardware.build())
    except InvalidInput:
        return None


@given(configs(), hardwares)
@settings(deadline=None, max_examples=120)
def test_the_plugin_makes_as_many_ids_as_the_controller_implies(
    config: ConfigBuilder, hardware: HardwareBuilder
) -> None:
    resources = made(config, hardware)
    if resources is not None:
        got = {resource.name: len(resource.devices) for resource in resources}
        reported = [gpu_report(gpu, healthy=True) for gpu in hardware.build().gpus]
        want = implied(config.build().config, reported)
        assert got == {name: count for name, count in want.items() if count}


@given(configs(), hardwares)
@settings(deadline=None, max_examples=60)
@pytest.mark.obligation("P7")
@pytest.mark.obligation("P8")
def test_ids_are_unique_on_the_node_and_the_same_each_time(config: ConfigBuilder, hardware: HardwareBuilder) -> None:
    resources = made(config, hardware)
    if resources is not None:
        everything = [device.id for resource in resources for device in resource.devices]
        assert len(everything) == len(set(everything))
        assert made(config, hardware) == resources
        assert [resource.name for resource in resources] == sorted(resource.name for resource in resources)


@given(configs(), hardwares)
@settings(deadline=None, max_examples=60)
def test_each_share_lies_on_the_gpu_that_it_names(config: ConfigBuilder, hardware: HardwareBuilder) -> None:
    for resource in made(config, hardware) or ():
        order = []
        for device in resource.devices:
            gpu = next(gpu for gpu in hardware.gpus if gpu.uuid == device.gpu)
            slots = {mig.uuid: mig.index for mig in gpu.mig_devices} | {gpu.uuid: -1}
            assert device.numa_node == gpu.numa_node
            assert device.id.partition("::")[0] == device.base
            order.append((gpu.index, slots[device.base]))
        assert order == sorted(order)
