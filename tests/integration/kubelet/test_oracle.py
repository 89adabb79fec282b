"""The double against the kubelet's own device manager: the same script, and both must say the same."""

import asyncio
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.kubeletdouble import AdmissionFailed, Behaviour, Container, KubeletDouble, Pod
from tests.support.kubeletplugin import Plugin, eventually, own_sockets
from tests.support.kubeletview import GPU, StubView
from tests.support.oddplugin import Entry, OddPlugin, first_of_the_available
from tests.support.oracle import Oracle, bring_oracle


@pytest.fixture(scope="module", autouse=True)
def _oracle_is_built() -> None:
    bring_oracle()


def entries(healthy: int, sick: int = 0) -> Sequence[Entry]:
    well = [(f"GPU-{n}", "Healthy") for n in range(healthy)]
    return [*well, *((f"SICK-{n}", "Unhealthy") for n in range(sick))]


PREFERENCES = {
    "good": first_of_the_available,
    "error": lambda request: "no advice",
    "no response": lambda request: [],
    "empty": lambda request: [[]],
    "fewer": lambda request: [first_of_the_available(request)[0][:1]],
    "more": lambda request: [sorted(request.available_deviceIDs)],
    "unknown": lambda request: [["who", "are", "you"]],
    "repeated": lambda request: [list(first_of_the_available(request)[0]) * 2],
    "two responses": lambda request: [*first_of_the_available(request), ["GPU-7"]],
}
ANSWERS = {"good": 1, "two responses": 2, "no response": 0, "error": "the GPU is on fire"}
PODS = {
    "one": (Container("main", {GPU: 1}),),
    "three": (Container("main", {GPU: 3}),),
    "nine": (Container("main", {GPU: 9}),),
    "unknown": (Container("main", {"nvidia.com/other": 1}),),
    "init": (Container("i", {GPU: 3}, "init"), Container("a", {GPU: 2}), Container("b", {GPU: 2})),
    "sidecar": (Container("i", {GPU: 2}, "init"), Container("s", {GPU: 1}, "sidecar"), Container("a", {GPU: 2})),
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("show"), st.integers(0, 8), st.integers(0, 2)),
        st.tuples(st.just("admit"), st.sampled_from(sorted(PODS)), st.just(0)),
        st.tuples(st.just("delete"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("prefer"), st.sampled_from(sorted(PREFERENCES)), st.just(0)),
        st.tuples(st.just("answer"), st.sampled_from(sorted(ANSWERS)), st.just(0)),
        st.sampled_from([("stop", 0, 0), ("start", 0, 0), ("restart", 0, 0), ("age", 0, 0)]),
    ),
    min_size=1,
    max_size=12,
)


class Script:
    """Plays one step on both sides, and compares."""

    def __init__(self, root: Path) -> None:
        self._offset = 0.0
        behaviour = Behaviour(readmit=3600)
        self.double = KubeletDouble(root / "double", behaviour=behaviour, clock=self._now)
        self.oracle = Oracle(root / "oracle")
        self.oracle.folder.mkdir()
        self.plugins = (OddPlugin(GPU), OddPlugin(GPU))
        self.running = False
        self.pods: list[Pod] = []
        self.asked = 0
        self.shown: Sequence[Entry] = ()

    def _now(self) -> float:
        return asyncio.get_running_loop().time() + self._offset

    async def play(self, step: tuple[str, object, int]) -> None:
        match step:
            case ("show", int(healthy), sick):
                self.shown = entries(healthy, sick)
                for plugin in self.plugins:
                    plugin.show(self.shown)
            case ("admit", str(which), _):
                self.asked += 1  # a pod that failed and one that comes after it are two pods
                await self._admit(Pod(f"pod-{self.asked}", *PODS[which]))
            case ("delete", int(index), _) if self.pods:
                pod = self.pods.pop(index % len(self.pods))
                await self.oracle.delete(pod.name)
                await self.double.delete(pod)
            case ("prefer", str(which), _):
                for plugin in self.plugins:
                    plugin.prefer = PREFERENCES[which]
            case ("answer", str(which), _):
                for plugin in self.plugins:
                    plugin.answer = lambda ids: ANSWERS[which]
            case ("stop", _, _):
                await self._stop()
            case ("start", _, _) if not self.running:
                await self._start()
            case ("restart", _, _):
                await self._restart()
            case ("age", _, _):
                self._offset += 301
                await self.oracle.age(301)
        await self._agree(step)

    async def _start(self) -> None:
        self.running = True
        await self.plugins[0].start(self.double.folder)
        await self.plugins[1].start(self.oracle.folder)

    async def _stop(self) -> None:
        self.running = False
        for plugin in self.plugins:
            await plugin.stop()

    async def _restart(self) -> None:
        # the device manager counts a list before it has written it down
        await eventually(lambda: self._written() == set(self.double.manager.healthy), "the checkpoint is written")
        await self.oracle.kill()
        await self.double.restart()
        await self._stop()
        await self.oracle.start(active=[pod.name for pod in self.pods])

    def _written(self) -> set[str]:
        try:
            content = json.loads((self.oracle.folder / "kubelet_internal_checkpoint").read_text())
        except FileNotFoundError:
            return set()
        return set(content["Data"]["RegisteredDevices"])

    async def _admit(self, pod: Pod) -> None:
        theirs = await self.oracle.admit(pod)
        held, refusal = {}, ""
        try:
            held = (await self.double.admit(pod)).ids
        except AdmissionFailed as error:
            refusal = str(error)
        assert kind_of(refusal) == kind_of(theirs.get("error", ""))
        if refusal:
            return
        ours = {f"{container}/{resource}": len(ids) for (container, resource), ids in held.items()}
        assert ours == {key: len(ids) for key, ids in theirs.get("ids", {}).items()}
        assert self.plugins[0].offered == self.plugins[1].offered
        self.pods.append(pod)

    async def _agree(self, step: object) -> None:
        want: dict[str, tuple[int, int]] = {}
        if self.running:
            healthy = sum(health == "Healthy" for _, health in self.shown)
            want = {GPU: (len(self.shown), healthy)}
        end = asyncio.get_running_loop().time() + 10
        while True:
            theirs = await self.oracle.counts()
            counts = self.double.manager.counts()
            ours = {name: (count, counts.allocatable[name]) for name, count in counts.capacity.items()}
            settled = ours == want if self.running else not any(allocatable for _, allocatable in ours.values())
            if settled and ours == theirs:
                return
            if asyncio.get_running_loop().time() > end:
                raise AssertionError(f"after {step}: the double has {ours}, the oracle {theirs}, wanted {want}")
            await asyncio.sleep(0.01)


def kind_of(error: str) -> str:
    """The error without the double's frame, ids, and numbers that depend on the order."""
    text = error.removeprefix("Allocate failed due to ").removesuffix(", which is unexpected")
    text = re.sub(r"endpoint .* has been stopped", "endpoint has been stopped", text)
    return re.sub(r'"[^"]*"|pod \S+|allocation response.*', "…", text)


async def compare(steps: Sequence[tuple[str, object, int]]) -> None:
    with tempfile.TemporaryDirectory(prefix="k") as root:
        script = Script(Path(root))
        async with script.double, script.oracle:
            try:
                for step in [("show", 8, 0), ("start", 0, 0), *steps]:
                    await script.play(step)
            finally:
                await script._stop()


@settings(max_examples=30, deadline=None)
@given(steps=STEPS)
@example(steps=[("admit", "init", 0), ("admit", "sidecar", 0), ("delete", 0, 0), ("admit", "three", 0)])
@example(steps=[("admit", "three", 0), ("restart", 0, 0), ("start", 0, 0), ("admit", "nine", 0), ("admit", "three", 0)])
@example(steps=[("stop", 0, 0), ("admit", "one", 0), ("age", 0, 0), ("admit", "one", 0), ("start", 0, 0)])
@example(steps=[("answer", "no response", 0), ("admit", "three", 0), ("answer", "good", 0), ("admit", "three", 0)])
def test_double_and_device_manager_say_the_same_of_any_script(steps: Sequence[tuple[str, object, int]]) -> None:
    asyncio.run(compare(steps))


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("k")


async def counted(oracle: Oracle, want: tuple[int, int]) -> None:
    async with asyncio.timeout(20):
        while (await oracle.counts()).get(GPU) != want:
            await asyncio.sleep(0.01)


@pytest.mark.obligation("P2")
@pytest.mark.fault("F01")
async def test_the_real_device_manager_is_killed_and_started_again_and_has_the_list(folder: Path) -> None:
    async with Oracle(folder) as oracle, Plugin(folder, StubView()) as plugin:
        await counted(oracle, (8, 8))
        for _ in range(5):
            await oracle.kill()
            await oracle.start()
            await counted(oracle, (8, 8))
        assert plugin.server.status.stream_open
        assert len(own_sockets(folder)) == 1


@pytest.mark.fault("F02")
async def test_the_real_device_manager_gets_another_socket_for_one_that_was_removed(folder: Path) -> None:
    async with Oracle(folder) as oracle, Plugin(folder, StubView()) as plugin:
        await counted(oracle, (8, 8))
        for name in own_sockets(folder):
            (folder / name).unlink()
        await eventually(lambda: plugin.server.counts.streams == 2, "registered again")
        await counted(oracle, (8, 8))


@pytest.mark.fault("F51")
async def test_the_real_device_manager_knows_a_resource_for_five_minutes_after_its_plugin_and_then_no_more(
    folder: Path,
) -> None:
    async with Oracle(folder) as oracle:
        async with Plugin(folder, StubView()):
            await counted(oracle, (8, 8))
        await counted(oracle, (8, 0))
        await oracle.age(240)
        assert await oracle.counts() == {GPU: (8, 0)}
        await oracle.age(61)
        assert await oracle.counts() == {}
        assert await oracle.counts() == {}  # nothing that would write the name back


@pytest.mark.fault("F07")
async def test_the_real_device_manager_drops_the_newer_of_two_plugins_which_comes_back(folder: Path) -> None:
    async with Oracle(folder) as oracle, Plugin(folder, StubView()) as older:
        await counted(oracle, (8, 8))
        async with Plugin(folder, StubView(5)) as newer:
            await counted(oracle, (5, 5))
            await older.server.stop()
            await counted(oracle, (5, 5))
            await eventually(lambda: newer.server.counts.registrations == 2, "registered again")
            await counted(oracle, (5, 5))


@pytest.mark.fault("F24")
@pytest.mark.obligation("P14")
async def test_the_real_device_manager_says_our_sentence(folder: Path) -> None:
    async with Oracle(folder) as oracle, Plugin(folder, StubView(2)) as plugin:
        await counted(oracle, (2, 2))
        ok = await oracle.admit(Pod("a", limits={GPU: 1}))
        assert ok["envs"] == {"main": {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}}
        plugin.view._listed = ()
        answer = await oracle.admit(Pod("b", limits={GPU: 1}))
        assert answer["error"].startswith(
            "rpc error: code = NotFound desc = nvidia.com/gpu has no device 'GPU-1'. hint:"
        )
