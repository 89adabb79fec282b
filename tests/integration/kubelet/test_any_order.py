"""After any order of what a kubelet, a pod and a config can do there is one stream, and both sides have the same."""

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.kubeletdouble import AdmissionFailed, Behaviour, KubeletDouble, Pod
from tests.support.kubeletplugin import Plugin, own_sockets
from tests.support.kubeletview import GPU, StubView

from gpusharing.deviceplugin.registration import RegistrationTimes

EVENTS = st.lists(
    st.sampled_from(
        [
            "restart",
            "slow restart",
            "lost checkpoint",
            "socket removed",
            "streams closed",
            "refuse",
            "accept",
            "no stream",
            "one stream",
            "shrink",
            "grow",
            "sick",
            "admit",
            "pause",
        ]
    ),
    min_size=1,
    max_size=8,
)


async def play(event: str, kubelet: KubeletDouble, plugin: Plugin) -> None:
    if event in {"restart", "slow restart", "lost checkpoint"}:
        await kubelet.restart(down=0.06 * (event == "slow restart"), checkpoint=event != "lost checkpoint")
    if event == "socket removed":
        for name in own_sockets(kubelet.folder):
            (kubelet.folder / name).unlink(missing_ok=True)
    if event == "streams closed":
        await kubelet.close_streams()
    if event in {"refuse", "accept"}:
        kubelet.behaviour.refuse = "busy" if event == "refuse" else ""
    if event in {"no stream", "one stream"}:
        kubelet.behaviour.streams = int(event == "one stream")
    if event in {"shrink", "grow", "sick"}:
        plugin.show({"shrink": 2, "grow": 8, "sick": 8}[event], sick=("GPU-1",) if event == "sick" else ())
    if event == "admit":
        with suppress(AdmissionFailed):
            await kubelet.admit(Pod("p", limits={GPU: 1}))
    await asyncio.sleep(0.03 * (event == "pause"))


async def history(events: list[str], rule: str) -> None:
    times = RegistrationTimes(
        register=0.5, stream=0.1, trial=0.3, margin=0.01, backoff=0.005, backoff_cap=0.05, grace=0.2
    )
    with tempfile.TemporaryDirectory(prefix="k") as root:
        folder = Path(root) / "dp"
        behaviour = Behaviour(dial_limit=0.3, readmit=0.05)
        async with KubeletDouble(folder, rule=rule, behaviour=behaviour) as kubelet:  # type: ignore[arg-type]
            async with Plugin(folder, StubView(), times=times) as plugin:
                for event in events:
                    await play(event, kubelet, plugin)
                behaviour.refuse, behaviour.streams = "", 1
                ours = plugin.view.listed()
                healthy = {device.id for device, well in ours if well}
                await kubelet.until(
                    lambda: (
                        kubelet.streams(GPU) == 1
                        and kubelet.manager.healthy.get(GPU) == healthy
                        and kubelet.manager.unhealthy.get(GPU) == {device.id for device, _ in ours} - healthy
                        and len(own_sockets(folder)) == 1
                    ),
                    f"one stream and equal sets after {events}",
                )
                endpoints = [endpoint for _, endpoint in kubelet.registers]
                assert len(set(endpoints)) == len(endpoints)
            assert own_sockets(folder) == []


@pytest.mark.obligation("P9")
@pytest.mark.obligation("P3")
@pytest.mark.parametrize("rule", ["1.34", "1.37"])
@settings(max_examples=25, deadline=None)
@given(events=EVENTS)
def test_after_any_order_of_events_there_is_one_stream_and_both_have_the_same_sets(
    rule: str, events: list[str]
) -> None:
    asyncio.run(history(events, rule))
