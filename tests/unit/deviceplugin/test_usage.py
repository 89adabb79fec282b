"""Who holds which ids, by the kubelet's word and by what we gave out since. On a fake clock (looptime)."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from gpusharing.core.occupancy import PodDevices
from gpusharing.deviceplugin.kubeletword import KubeletWord
from gpusharing.deviceplugin.usage import PollTimes, Usage

pytestmark = [pytest.mark.looptime]

GPU = "nvidia.com/gpu"


class Kubelet:
    """Answers as it is told to, and notes when it was asked."""

    def __init__(self) -> None:
        self.rows: tuple[PodDevices, ...] | None = ()
        self.problem = ""
        self.asked: list[float] = []
        self.names: frozenset[str] = frozenset()

    def holds(self, *ids: str) -> None:
        self.rows = (PodDevices("team", "web", "main", GPU, ids),)

    async def pods(self) -> Sequence[PodDevices] | None:
        self.asked.append(asyncio.get_running_loop().time())
        return self.rows

    async def allocatable(self) -> Mapping[str, frozenset[str]] | None:
        return {GPU: frozenset({"a", "b"})}


class Told:
    """Counts how often something changed."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@contextmanager
def running(usage: Usage) -> Iterator[None]:
    task = asyncio.ensure_future(usage.run())
    try:
        yield
    finally:
        task.cancel()


async def test_before_the_first_look_nobody_knows_who_holds_what() -> None:
    usage = Usage(Kubelet(), Told())
    assert usage.held() is None
    assert usage.problem


async def test_a_look_shows_what_pods_hold_and_what_the_kubelet_can_give() -> None:
    kubelet, told = Kubelet(), Told()
    kubelet.holds("a")
    usage = Usage(kubelet, told)
    await usage.look()
    assert usage.held() == {GPU: frozenset({"a"})}
    assert usage.allocatable == {GPU: frozenset({"a", "b"})}
    assert told.times == 1


@pytest.mark.fault("F23")
async def test_an_unreadable_kubelet_makes_everything_unknown_and_says_why() -> None:
    kubelet, told = Kubelet(), Told()
    kubelet.holds("a")
    usage = Usage(kubelet, told)
    await usage.look()
    kubelet.rows, kubelet.problem = None, "rejected by rate limit"
    await usage.look()
    assert usage.held() is None
    assert usage.allocatable is None
    assert usage.problem == "rejected by rate limit"
    assert told.times == 2


async def test_a_look_that_shows_the_same_tells_nobody() -> None:
    kubelet, told = Kubelet(), Told()
    usage = Usage(kubelet, told)
    await usage.look()
    await usage.look()
    assert told.times == 1


async def test_what_we_gave_out_is_held_until_a_look_that_could_have_seen_it() -> None:
    kubelet = Kubelet()
    usage = Usage(kubelet, Told())
    await usage.look()
    usage.gave(GPU, ["a"])
    assert usage.held() == {GPU: frozenset({"a"})}
    await asyncio.sleep(0.5)
    await usage.look()  # the kubelet may not have stored it yet
    assert usage.held() == {GPU: frozenset({"a"})}
    await asyncio.sleep(0.6)
    await usage.look()
    assert usage.held() == {}


@pytest.mark.fault("F23")
@pytest.mark.parametrize(("jitter", "gap"), [(0.0, 5.0), (1.0, 10.0)])
async def test_the_kubelet_is_asked_every_five_to_ten_seconds(jitter: float, gap: float) -> None:
    kubelet = Kubelet()
    with running(Usage(kubelet, Told(), jitter=lambda: jitter)):
        await asyncio.sleep(21)
    assert kubelet.asked == pytest.approx([gap * n for n in range(int(21 / gap) + 1)])


async def test_a_look_that_is_asked_for_comes_sooner_but_never_at_once_again() -> None:
    kubelet = Kubelet()
    usage = Usage(kubelet, Told(), PollTimes(every=5, jitter=0, least=0.5))
    with running(usage):
        await asyncio.sleep(0.1)
        usage.look_within(0.0)
        await asyncio.sleep(2)
        usage.look_within(1.0)
        usage.look_within(3.0)
        await asyncio.sleep(2)
    assert kubelet.asked == pytest.approx([0, 0.5, 3.1])


async def test_after_an_allocation_the_kubelet_is_asked_within_a_second() -> None:
    kubelet = Kubelet()
    usage = Usage(kubelet, Told())
    with running(usage):
        await asyncio.sleep(2)
        usage.gave(GPU, ["a"])
        await asyncio.sleep(2)
    assert kubelet.asked == pytest.approx([0, 3.0])


# --- what no look has confirmed


async def unconfirmed(kubelet: Kubelet, *, pods: set[str]) -> Usage:
    """What we gave out, after two looks that could have shown it, with these pods on the node."""
    usage = Usage(kubelet, Told())
    usage.gave(GPU, ["a"])
    kubelet.names = frozenset(pods)
    await asyncio.sleep(2)
    await usage.look()
    await usage.look()
    return usage


async def test_what_we_gave_out_and_no_look_shows_is_held_while_a_pod_is_there_that_may_have_it() -> None:
    usage = await unconfirmed(kubelet := Kubelet(), pods={"team/init", "team/web"})
    assert usage.held() == {}
    assert usage.held_or_unconfirmed() == {GPU: {"a"}}
    kubelet.names = frozenset({"team/web", "team/later"})
    await usage.look()
    assert usage.held_or_unconfirmed() == {GPU: {"a"}}
    kubelet.names = frozenset({"team/later"})
    await usage.look()
    assert usage.held_or_unconfirmed() == {}


async def test_pods_that_were_there_before_do_not_have_it() -> None:
    usage = Usage(kubelet := Kubelet(), Told())
    kubelet.names = frozenset({"kube-system/proxy"})
    await usage.look()
    await asyncio.sleep(6)
    usage.gave(GPU, ["a"])
    kubelet.names |= {"team/short"}
    await asyncio.sleep(2)
    await usage.look()
    assert usage.held_or_unconfirmed() == {GPU: {"a"}}
    kubelet.names -= {"team/short"}
    await usage.look()
    assert usage.held_or_unconfirmed() == {}


@pytest.mark.parametrize(("restarted", "before"), [(True, 6.0), (False, 4.0)], ids=["the kubelet is new", "not long"])
async def test_pods_that_were_not_there_long_before_may_have_it(restarted: bool, before: float) -> None:
    usage = Usage(kubelet := Kubelet(), Told())
    kubelet.names = frozenset({"kube-system/proxy"})
    await usage.look()
    await asyncio.sleep(before)
    if restarted:
        KubeletWord(usage).restarted()
    usage.gave(GPU, ["a"])
    await asyncio.sleep(2)
    await usage.look()
    assert usage.held_or_unconfirmed() == {GPU: {"a"}}


async def test_a_pod_of_a_name_that_was_gone_in_between_may_have_it() -> None:
    usage = Usage(kubelet := Kubelet(), Told())
    for names in ({"team/web-0"}, set[str](), {"team/web-0"}):
        kubelet.names = frozenset(names)
        await usage.look()
        await asyncio.sleep(4)
    usage.gave(GPU, ["a"])
    await asyncio.sleep(2)
    await usage.look()
    assert usage.held_or_unconfirmed() == {GPU: {"a"}}


async def test_what_has_not_shown_for_ten_minutes_is_nobodys() -> None:
    usage = await unconfirmed(Kubelet(), pods={"team/web"})
    await asyncio.sleep(590)
    await usage.look()
    assert usage.held_or_unconfirmed() == {GPU: {"a"}}
    await asyncio.sleep(10)
    await usage.look()
    assert usage.held_or_unconfirmed() == {}


async def test_once_it_has_shown_the_kubelets_word_counts_alone() -> None:
    usage = await unconfirmed(kubelet := Kubelet(), pods={"team/web"})
    kubelet.holds("a")
    await usage.look()
    kubelet.holds()
    await usage.look()
    assert usage.held_or_unconfirmed() == {GPU: frozenset()}


async def test_on_a_node_without_pods_nobody_can_have_it() -> None:
    usage = await unconfirmed(Kubelet(), pods=set())
    assert usage.held_or_unconfirmed() == {}


async def test_while_the_kubelet_is_unreadable_all_of_that_is_unknown() -> None:
    usage = await unconfirmed(kubelet := Kubelet(), pods={"team/web"})
    kubelet.rows = None
    await usage.look()
    assert usage.held_or_unconfirmed() is None
    kubelet.rows = ()
    await usage.look()
    assert usage.held_or_unconfirmed() == {GPU: {"a"}}
