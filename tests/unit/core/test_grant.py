from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.hardware import ConfigBuilder, HardwareBuilder, gpu_uuid, make_config, make_hardware, mig_uuid

from gpusharing.core.devices import base_of
from gpusharing.core.edits import Edits
from gpusharing.core.errors import InvalidInput
from gpusharing.core.grant import grant
from gpusharing.core.host import HostFacts
from gpusharing.core.listing import Listing, advance
from gpusharing.core.reservations import reserved_id
from gpusharing.core.resources import Device, Resource, resources_of

GPU, SMALL = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
G0, G1 = gpu_uuid(0), gpu_uuid(1)
TWO_GPUS = make_hardware(2)
SHARED = make_config("shared").shared(4)
REQUIRED = SHARED.allocation(policy="packed", keep_together="required")


def listed(
    *configs: ConfigBuilder,
    hardware: HardwareBuilder = TWO_GPUS,
    sick: Mapping[str, str] | None = None,
    held: Mapping[str, frozenset[str]] | None = None,
) -> Listing:
    """Serve these configs one after the other, a minute apart."""
    listing = Listing()
    for minute, config in enumerate(configs):
        served = config.build()
        listing = advance(
            listing,
            resources_of(served, hardware.build()),
            served,
            sick=sick or {},
            held=held or {},
            calls_open=frozenset(),
            now=60.0 * minute,
        )
    return listing


def granted(listing: Listing, *ids: str, resource: str = GPU, free: Mapping[str, int] | None = None) -> Edits:
    return grant(listing, resource, ids, TWO_GPUS.build(), HostFacts(), free=free or {})


def refusal(listing: Listing, *ids: str, resource: str = GPU, free: Mapping[str, int] | None = None) -> str:
    with pytest.raises(InvalidInput) as caught:
        granted(listing, *ids, resource=resource, free=free)
    text = str(caught.value)
    assert "\n" not in text
    assert ". hint: " in text
    return text


def test_served_ids_get_the_edits_of_the_config() -> None:
    got = granted(listed(SHARED), f"{G0}::1", f"{G1}::1")
    assert got == Edits(envs={"NVIDIA_VISIBLE_DEVICES": f"{G0},{G1}"})


@pytest.mark.fault("F24")
@pytest.mark.obligation("P14")
def test_an_id_on_no_list_is_refused_by_name() -> None:
    listing = listed(SHARED)
    assert refusal(listing, f"{G0}::0", f"{G0}::9").startswith(f'nvidia.com/gpu has no device "{G0}::9". hint: ')
    assert "nvidia.com/mig-1g.10gb has no device" in refusal(listing, f"{G0}::0", resource=SMALL)


@pytest.mark.fault("X12")
def test_an_id_with_escapes_is_quoted_and_cut() -> None:
    got = refusal(listed(SHARED), "\x1b[31m\n" + "x" * 500)
    assert "\x1b" not in got
    assert len(got) < 300


@pytest.mark.fault("F24")
@pytest.mark.obligation("P14")
def test_a_sick_id_is_refused_with_what_is_wrong_with_its_device() -> None:
    got = refusal(listed(SHARED, sick={G1: "XID 79: the GPU has fallen off the bus"}), f"{G0}::0", f"{G1}::2")
    assert got.startswith(f"nvidia.com/gpu: {G1}::2 is unhealthy: XID 79: the GPU has fallen off the bus. hint: ")


@pytest.mark.fault("F24")
@pytest.mark.obligation("P13")
def test_a_retiring_id_is_answered_by_the_config_under_which_it_was_listed() -> None:
    old = make_config("old").lists("volume-mounts")
    listing = listed(old, SHARED, held={GPU: frozenset({G0})})
    assert granted(listing, G0).envs == {"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"}


@pytest.mark.fault("F24")
@pytest.mark.obligation("P13")
def test_a_withheld_id_is_answered_by_the_new_config() -> None:
    listing = listed(make_config("old").lists("volume-mounts"), SHARED, held={GPU: frozenset({G0})})
    assert granted(listing, f"{G0}::3").envs == {"NVIDIA_VISIBLE_DEVICES": G0}


@pytest.mark.fault("F24")
def test_of_a_request_with_a_retiring_id_all_are_answered_by_the_old_config() -> None:
    old = make_config("old").shared(8, failRequestsGreaterThanOne=False).lists("volume-mounts")
    new = make_config("new").shared(4, failRequestsGreaterThanOne=True)
    got = granted(listed(old, new), f"{G0}::1", f"{G0}::6")
    assert got.envs == {"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"}


@pytest.mark.obligation("P14")
def test_a_request_without_ids_is_refused() -> None:
    assert refusal(listed(SHARED)).startswith("nvidia.com/gpu: a request without any id. hint: this is a bug")


FAILS = make_config().shared(4, failRequestsGreaterThanOne=True)


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        (SHARED, False),
        (FAILS, True),
        (make_config().shared(4, failRequestsGreaterThanOne=False), False),
        (make_config().mps(4), True),
        (make_config().mps(4, failRequestsGreaterThanOne=True), True),
        (make_config().mps(4, failRequestsGreaterThanOne=False), False),
    ],
    ids=["unset", "true", "false", "MPS, unset", "MPS, true", "MPS, false"],
)
def test_several_shares_are_refused_where_the_config_says_so_and_under_mps_by_default(
    config: ConfigBuilder, refused: bool
) -> None:
    listing = listed(config)
    granted(listing, f"{G0}::0")
    if refused:
        got = refusal(listing, f"{G0}::0", f"{G0}::1", f"{G1}::1")
        assert got.startswith("nvidia.com/gpu: 3 shares requested, and failRequestsGreaterThanOne allows 1")
        assert got.endswith("more shares would not give the container more of the GPU")
    else:
        granted(listing, f"{G0}::0", f"{G0}::1")


def test_several_unshared_devices_are_no_shares() -> None:
    mixed = FAILS.mig("mixed")
    hardware = make_hardware(2).mig(1, "1g.10gb", "1g.10gb")
    listing = listed(mixed, hardware=hardware)
    ids = (mig_uuid(1, 0), mig_uuid(1, 1))
    assert grant(listing, SMALL, ids, hardware.build(), HostFacts(), free={}).envs
    assert granted(listed(make_config()), G0, G1).envs


def test_shares_on_several_gpus_are_refused_when_they_must_be_together() -> None:
    listing = listed(REQUIRED)
    granted(listing, f"{G0}::0", f"{G0}::3")
    got = refusal(listing, f"{G0}::0", f"{G1}::0", f"{G1}::1", free={G1: 2})
    assert got == (
        "nvidia.com/gpu: no GPU has 3 free shares, and keepTogether is required (free: GPU 0: 0, GPU 1: 2). "
        "hint: request fewer shares, wait for some to be freed, or set keepTogether: preferred"
    )


@pytest.mark.parametrize("keep", ["none", "preferred"])
def test_shares_may_be_on_several_gpus_otherwise(keep: str) -> None:
    granted(listed(SHARED.allocation(keep_together=keep)), f"{G0}::0", f"{G1}::0")


def test_whole_gpus_need_not_be_together() -> None:
    whole = make_config().allocation(policy="packed", keep_together="required")
    assert granted(listed(whole), G0, G1).envs == {"NVIDIA_VISIBLE_DEVICES": f"{G0},{G1}"}


def test_mig_devices_must_be_on_one_gpu_as_shares_must() -> None:
    hardware = make_hardware(2).mig(0, "1g.10gb").mig(1, "1g.10gb")
    listing = listed(REQUIRED.mig("mixed"), hardware=hardware)
    with pytest.raises(InvalidInput, match="keepTogether is required"):
        grant(listing, SMALL, (mig_uuid(0, 0), mig_uuid(1, 0)), hardware.build(), HostFacts(), free={})


# --- names of placements (placement guide, 8.2)

POLICY = "place.gpusharing.io/policy.p.team"


def placed(*gpus: str, owner: str = POLICY, state: str = "served") -> Listing:
    """The same node with these GPUs under the policy's name, as far as they are `served`."""
    served = SHARED.set(device_id_strategy="index").build()
    resource = Resource(POLICY, tuple(Device(reserved_id(gpu, POLICY, owner), gpu, gpu) for gpu in gpus))
    options: dict[str, Any] = {"sick": {}, "held": {}, "calls_open": frozenset()}
    listing = advance(Listing(), [resource], served, now=0.0, **options)
    return listing if state == "served" else advance(listing, [], served, now=1.0, **options)


def test_of_a_gpu_that_is_not_shared_only_what_is_healthy_is_given_out() -> None:
    listing = listed(SHARED, make_config("two").shared(2), held={GPU: frozenset({f"{G0}::3"})})
    assert granted(listing, f"{G0}::3")
    with pytest.raises(InvalidInput, match="its GPU is being reserved, or released") as refused:
        grant(listing, GPU, [f"{G0}::3"], TWO_GPUS.build(), HostFacts(), free={}, claimed={G0})
    assert refused.value.hint
    assert grant(listing, GPU, [f"{G0}::1"], TWO_GPUS.build(), HostFacts(), free={}, claimed={G0})


def test_a_name_that_is_being_released_gives_nothing_out_whatever_is_known_of_its_gpu() -> None:
    assert granted(placed(G0), G0, resource=POLICY)
    assert "cannot be had any more" in refusal(placed(G0, state="retiring"), G0, resource=POLICY)


def test_rules_of_shares_do_not_apply_to_names_of_placements() -> None:
    served = SHARED.allocation(keep_together="required").build()
    refusing = make_config("f").shared(4, failRequestsGreaterThanOne=True).build()
    ids = [reserved_id(gpu, POLICY, "team/p") for gpu in (G0, G1)]
    resource = Resource(POLICY, tuple(Device(id_, base_of(id_), base_of(id_)) for id_ in ids))
    for config in (served, refusing):
        listing = advance(Listing(), [resource], config, sick={}, held={}, calls_open=frozenset(), now=0.0)
        assert granted(listing, *ids, resource=POLICY).envs["NVIDIA_VISIBLE_DEVICES"] == f"{G0},{G1}"
