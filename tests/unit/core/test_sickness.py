"""Why no pod gets a device that the config has."""

from typing import Any

import pytest
from tests.support.hardware import gpu_uuid, make_config, make_hardware, mig_uuid

from gpusharing.core.ledger import Claim, Ledger, reserved_part
from gpusharing.core.listing import Listing, advance
from gpusharing.core.resources import resources_of
from gpusharing.core.sickness import all_sick, gone, sick_devices, unreservable

FOUR = make_hardware(4)
SERVED, MPS = make_config("shares").shared(2).build(), make_config("mps").mps(2).build()
G0, G1, G2, G3 = (gpu_uuid(n) for n in range(4))
JUDGE = "place.gpusharing.io/judge.p.team"
RESERVED = Ledger({G1: Claim("reserved", JUDGE, (JUDGE,)), G2: Claim("releasing", JUDGE, (JUDGE,))})


@pytest.mark.parametrize(
    ("inventory", "served", "why"),
    [
        (FOUR.build(), SERVED, {}),
        (FOUR.mig(1).mig(2).mig(3).build(), SERVED, {G1: "a placement has it as a whole, and now it is in MIG mode"}),
        (FOUR.without(1, 2, 3).build(), SERVED, {G1: f"{G1} is no longer there"}),
        (FOUR.build(), MPS, {G1: "a placement has it, and now MPS shares the GPUs of the node"}),
        (None, SERVED, {}),
        (FOUR.without(1).build(), None, {}),
    ],
    ids=["as it was", "MIG", "gone", "MPS", "GPUs not seen", "config not known"],
)
def test_only_a_gpu_that_is_reserved_can_be_a_misfit(inventory: Any, served: Any, why: dict[str, str]) -> None:
    assert unreservable(RESERVED, inventory, served) == why


def test_whoever_misses_a_device_says_so_and_the_drivers_word_counts_most() -> None:
    listing = advance(
        Listing(),
        wanted := (*resources_of(SERVED, FOUR.build()), *reserved_part(RESERVED, FOUR.build())),
        SERVED,
        sick={},
        held={},
        calls_open=frozenset(),
        now=0.0,
    )
    inventory = FOUR.without(0).mig(1).mig(3).build()
    found = sick_devices(listing, wanted, RESERVED, inventory, SERVED, {G3: "XID 79", G1: "XID 48"})
    assert found == {G0: f"{G0} is no longer there", G1: "XID 48", G3: "XID 79"}
    assert all_sick(listing, "no driver") == dict.fromkeys((G0, G1, G2, G3), "no driver")


def test_a_mig_device_that_the_config_has_and_the_node_lost_is_named() -> None:
    mixed, before = make_config("mixed").mig("mixed").build(), FOUR.mig(1, "1g.10gb", "1g.10gb")
    wanted = resources_of(mixed, before.build())
    assert gone(wanted, FOUR.mig(1, "1g.10gb").build()) == {mig_uuid(1, 1): f"{mig_uuid(1, 1)} is no longer there"}
