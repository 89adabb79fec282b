"""What the kubelet's calls get to see of one resource."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hardware import ConfigBuilder, gpu_uuid, make_config, make_hardware

from gpusharing.core.devices import Inventory
from gpusharing.core.errors import InvalidInput
from gpusharing.core.host import HostFacts
from gpusharing.core.listing import Listing, advance
from gpusharing.core.resources import resources_of
from gpusharing.deviceplugin.view import View

GPU = "nvidia.com/gpu"
G0, G1 = gpu_uuid(0), gpu_uuid(1)
TWO = make_hardware(2).build()
PACKED = make_config().shared(4).allocation(policy="packed")


class Heard:
    """What a view told."""

    def __init__(self) -> None:
        self.gave: list[tuple[str, tuple[str, ...]]] = []
        self.overruled: list[str] = []
        self.answered = 0


class Seen:
    """A view of `nvidia.com/gpu` that shows a config on hardware."""

    def __init__(self, config: ConfigBuilder = PACKED, inventory: Inventory = TWO) -> None:
        self.heard = Heard()
        self.view = View(
            GPU,
            gave=lambda name, ids: self.heard.gave.append((name, tuple(ids))),
            overruled=self.heard.overruled.append,
            answered=self._answered,
        )
        self.listing, self.inventory = Listing(), inventory
        self.held: dict[str, frozenset[str]] = {}
        self.to(config)

    def _answered(self) -> None:
        self.heard.answered += 1

    def to(self, config: ConfigBuilder, *, sick: Sequence[str] = (), now: float = 0.0) -> bool:
        """Another config, or other health; returns whether the list is another one."""
        served = config.build()
        self.listing = advance(
            self.listing,
            resources_of(served, self.inventory),
            served,
            sick=dict.fromkeys(sick, "XID 79"),
            held=self.held,
            calls_open=frozenset(),
            now=now,
        )
        return self.show()

    def show(self) -> bool:
        return self.view.show(self.listing, self.inventory, HostFacts(), self.held)

    @property
    def ids(self) -> list[str]:
        return [device.id for device, _ in self.view.listed()]


def test_the_list_is_the_same_object_until_it_changes() -> None:
    seen = Seen()
    before = seen.view.listed()
    assert not seen.show()
    assert seen.view.listed() is before
    assert seen.to(PACKED, sick=[G0])
    assert [healthy for _, healthy in seen.view.listed()] == [False] * 4 + [True] * 4


async def test_a_preference_follows_policy_and_what_is_held() -> None:
    seen = Seen()
    free = [device for device in seen.ids if device != f"{G1}::0"]
    seen.held = {GPU: frozenset({f"{G1}::0"})}
    seen.show()
    assert (await seen.view.prefer(free, (), 2)).ids == (f"{G1}::1", f"{G1}::2")


async def test_what_other_resources_hold_counts_too() -> None:
    seen = Seen(make_config().shared(4))
    seen.held = {"nvidia.com/mig-1g.10gb": frozenset({G0})}
    seen.show()
    assert (await seen.view.prefer(seen.ids, (), 1)).ids == (f"{G1}::0",)


@pytest.mark.fault("F12")
async def test_a_gpu_with_a_sick_share_comes_last() -> None:
    seen = Seen()
    seen.to(PACKED, sick=[f"{G0}::3"])
    available = [device.id for device, healthy in seen.view.listed() if healthy]
    assert (await seen.view.prefer(available, (), 1)).ids == (f"{G1}::0",)


@pytest.mark.obligation("P4")
@settings(max_examples=60, deadline=None)
@given(
    available=st.lists(st.sampled_from([*(f"{gpu}::{n}" for gpu in (G0, G1) for n in range(4)), "unknown", ""])),
    must_include=st.lists(st.sampled_from([f"{G0}::0", f"{G1}::3", "unknown", G0])),
    size=st.integers(-2, 12),
)
async def test_whatever_is_asked_the_answer_is_a_whole_choice_or_none(
    available: list[str], must_include: list[str], size: int
) -> None:
    seen = Seen()
    chosen = (await seen.view.prefer(available, must_include, size)).ids
    assert len(chosen) in {0, size}
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= {*available, *must_include}


async def test_unknown_ids_are_told() -> None:
    seen = Seen()
    choice = await seen.view.prefer([*seen.ids, "GPU-gone::0"], ["GPU-gone::0"], 2)
    assert choice.unknown == ("GPU-gone::0",)


async def test_with_nothing_but_retiring_ids_there_is_no_preference() -> None:
    seen = Seen()
    seen.held = {GPU: frozenset(seen.ids)}
    seen.listing = advance(
        seen.listing, (), make_config().build(), sick={}, held=seen.held, calls_open=frozenset(), now=2.0
    )
    seen.show()
    assert (await seen.view.prefer(seen.ids, (), 1)).ids == ()


async def test_an_answer_counts_as_held_and_a_refusal_does_not() -> None:
    seen = Seen()
    await seen.view.allocate([f"{G0}::1", f"{G0}::0"])
    with pytest.raises(InvalidInput, match="has no device"):
        await seen.view.allocate(["GPU-gone::0"])
    assert seen.heard.gave == [(GPU, (f"{G0}::1", f"{G0}::0"))]


@pytest.mark.fault("F24")
async def test_duplicate_ids_are_one_device_and_ids_of_a_config_that_is_gone_are_refused_by_name() -> None:
    seen = Seen()
    twice = await seen.view.allocate([f"{G0}::1", f"{G0}::1"])
    assert twice == await seen.view.allocate([f"{G0}::1"])
    with pytest.raises(InvalidInput, match=G0):
        await seen.view.allocate([G0])


async def test_together_or_not_at_all_says_what_is_free_where() -> None:
    seen = Seen(make_config().shared(4).allocation(policy="packed", keep_together="required"))
    seen.held = {GPU: frozenset({f"{G0}::0"})}
    seen.show()
    with pytest.raises(InvalidInput, match=r"free: GPU 0: 3, GPU 1: 4"):
        await seen.view.allocate([f"{G0}::1", f"{G1}::1"])


def test_a_call_is_open_until_the_last_one_is_answered() -> None:
    seen = Seen()
    seen.view.opened()
    seen.view.opened()
    seen.view.closed()
    assert seen.view.is_answering
    assert seen.heard.answered == 0
    seen.view.closed()
    assert not seen.view.is_answering
    assert seen.heard.answered == 1


async def test_links_that_change_change_the_preference_although_the_ids_stay() -> None:
    seen = Seen()
    seen.inventory = replace(TWO, gpus=tuple(replace(gpu, index=1 - gpu.index) for gpu in TWO.gpus))
    seen.show()
    assert (await seen.view.prefer(seen.ids, (), 1)).ids == (f"{G1}::0",)
