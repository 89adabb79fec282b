"""Simulated inventories as text."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpusharing.core.devices import Inventory, Link
from gpusharing.core.errors import InvalidInput
from gpusharing.core.mig import _BOARDS
from gpusharing.core.topology import with_link_groups
from gpusharing.discovery.inventoryfile import load_inventory

FOLDER = Path(__file__).parents[2] / "vectors" / "inventories"
FILES = sorted(FOLDER.glob("*.yaml"))
A100 = "NVIDIA A100-SXM4-80GB"
BOARD_UUID = "GPU-00000000-0000-0000-0000-000000000001"


def load(text: str, node: str = "a") -> Inventory:
    return load_inventory(text, node=node, name="test").inventory


def with_gpu(**fields: Any) -> str:
    return yaml.safe_dump({"gpus": [{"index": 0, "model": A100, "memoryMiB": 81920, **fields}]})


def with_mig(*devices: str, model: str = A100, **fields: Any) -> str:
    entries = [dict(zip(("profile", "start"), (d.split("@")[0], int(d.split("@")[1])), strict=True)) for d in devices]
    return with_gpu(model=model, migDevices=entries, **fields)


def refusal(text: str) -> str:
    with pytest.raises(InvalidInput) as refused:
        load(text)
    return str(refused.value)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
class TestRealMachines:
    def test_everything_is_read(self, path: Path) -> None:
        text = path.read_text()
        raw, got = yaml.safe_load(text), load(text)
        for entry, gpu in zip(raw["gpus"], got.gpus, strict=True):
            assert (gpu.index, gpu.model, gpu.memory_mib) == (entry["index"], entry["model"], entry["memoryMiB"])
            assert gpu.numa_node == (None if entry["numaNode"] == -1 else entry["numaNode"])
            assert gpu.link_group == entry["linkGroup"]
            assert gpu.pci_bus_id == entry["pciBusId"]
            assert gpu.compute_capability >= (7, 0)
            assert gpu.minor == gpu.index
        levels = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
        for i, one in enumerate(got.gpus):
            for j, other in enumerate(got.gpus):
                if i == j:
                    continue
                count, switch = raw["links"][i][j], raw["nvlinkVia"] == "switch"
                want = Link(levels[raw["pci"][i][j]], 0 if switch else count, switch and count > 0)
                assert got.link(one, other) == want

    def test_the_link_groups_are_what_the_links_say(self, path: Path) -> None:
        got = load(path.read_text())
        assert with_link_groups(got.gpus, got.links) == got.gpus

    def test_uuids_are_the_same_each_time_and_others_on_another_node(self, path: Path) -> None:
        text = path.read_text()
        uuids = [gpu.uuid for gpu in load(text).gpus]
        assert uuids == [gpu.uuid for gpu in load(text).gpus]
        assert not set(uuids) & {gpu.uuid for gpu in load(text, "b").gpus}
        assert len(set(uuids)) == len(uuids)


class TestOptionalKeys:
    def test_they_are_taken(self) -> None:
        text = with_gpu(uuid=BOARD_UUID, minor=3, computeCapability=8.7, numaNode=1) + "driverVersion: 570.1\n"
        with pytest.raises(InvalidInput, match="driverVersion"):
            load(text)  # a number, not text
        got = load(text.replace("570.1", "'570.1'"))
        gpu = got.gpus[0]
        assert (gpu.uuid, gpu.minor, gpu.compute_capability, gpu.numa_node) == (BOARD_UUID, 3, (8, 7), 1)
        assert got.driver_version == "570.1"

    def test_without_links_nothing_is_known_of_pairs(self) -> None:
        text = yaml.safe_dump({"gpus": [{"index": n, "model": A100, "linkGroup": 0} for n in range(2)]})
        got = load(text)
        assert got.link(*got.gpus) is None
        assert [gpu.link_group for gpu in got.gpus] == [0, 0]

    def test_a_link_group_that_is_said_counts(self) -> None:
        gpus = [{"index": n, "model": A100, "linkGroup": 5} for n in range(2)]
        pci = [["X", "SYS"], ["SYS", "X"]]
        got = load(yaml.safe_dump({"gpus": gpus, "links": [[0, 4], [4, 0]], "pci": pci}))
        assert [gpu.link_group for gpu in got.gpus] == [5, 5]

    def test_a_gpu_without_links_does_not_hang_on_the_switch(self) -> None:
        gpus = [{"index": n, "model": A100} for n in range(3)]
        links = [[0, 12, 0], [12, 0, 0], [0, 0, 0]]
        pci = [["X" if i == j else "SYS" for j in range(3)] for i in range(3)]
        got = load(yaml.safe_dump({"gpus": gpus, "links": links, "pci": pci, "nvlinkVia": "switch"}))
        assert [gpu.link_group for gpu in got.gpus] == [0, 0, None]

    def test_a_node_may_have_no_gpu(self) -> None:
        assert load("gpus: []").gpus == ()

    def test_gpus_are_taken_in_the_order_of_their_indices(self) -> None:
        text = yaml.safe_dump({"gpus": [{"index": n, "model": f"model {n}"} for n in (1, 0)]})
        assert [gpu.model for gpu in load(text).gpus] == ["model 0", "model 1"]


class TestMig:
    @pytest.mark.parametrize("board", _BOARDS.values(), ids=list(_BOARDS))
    def test_every_profile_of_every_known_model_can_be_simulated(self, board: Any) -> None:
        for model in board.models:
            for profile in board.profiles:
                device = load(with_mig(f"{profile.name}@{profile.starts[0]}", model=model)).gpus[0].mig_devices[0]
                assert (device.profile, device.start) == (profile.name, profile.starts[0])
                assert device.gpu_slices == device.compute_slices == profile.slices
                assert device.memory_mib > 0

    def test_devices_turn_mig_on_and_have_instances_of_their_own(self) -> None:
        gpu = load(with_mig("3g.40gb@0", "1g.10gb@4", "1g.10gb@5")).gpus[0]
        assert gpu.mig_mode
        assert [(d.index, d.gi, d.ci) for d in gpu.mig_devices] == [(0, 1, 0), (1, 2, 0), (2, 3, 0)]
        assert len({d.uuid for d in gpu.mig_devices}) == 3

    def test_compute_instances_share_the_gpu_instance_at_their_start(self) -> None:
        gpu = load(with_mig("1c.3g.40gb@4", "2c.3g.40gb@0", "1c.3g.40gb@4")).gpus[0]
        assert [(d.gi, d.ci, d.compute_slices, d.gpu_slices) for d in gpu.mig_devices] == [
            (1, 0, 1, 3),
            (2, 0, 2, 3),
            (1, 1, 1, 3),
        ]
        assert len({d.uuid for d in gpu.mig_devices}) == 3

    def test_mig_may_be_on_without_devices(self) -> None:
        assert load(with_gpu(migMode=True)).gpus[0].mig_mode

    @pytest.mark.parametrize(
        ("text", "want"),
        [
            (with_mig("1g.5gb@0"), "NVIDIA A100-SXM4-80GB has no MIG profile 1g.5gb"),
            (with_mig("3g.40gb@0", "1g.10gb@2"), "migDevices[1]: 1g.10gb at 2 overlaps 3g.40gb at 0"),
            (with_mig("1g.10gb@0", model="NVIDIA L4"), "the MIG profiles of NVIDIA L4 are not known"),
            (with_mig("1g.10gb@0", migMode=False), "migMode: false, but there are migDevices"),
        ],
    )
    def test_geometry_that_cannot_be_is_refused(self, text: str, want: str) -> None:
        assert want in refusal(text)


def test_the_example_of_the_docs_loads() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "simulated-inventory.md"
    example = page.read_text().split("```yaml\n")[1].split("```")[0]
    got = load_inventory(example, node="a", name="test")
    assert [len(gpu.mig_devices) for gpu in got.inventory.gpus] == [0, 2]
    assert len(got.faults) == 3


class TestRefusals:
    @pytest.mark.parametrize(
        ("text", "want"),
        [
            ("", "is not a mapping"),
            ("[]", "is not a mapping"),
            ("gpus: 3", "gpus"),
            ("gpus: [", "not valid YAML"),
            ("gpus: []\n---\ngpus: []", "more than one document"),
            ("gpus: []\ngpus: []", "stands twice"),
            ("gpus: []\nfalts: []", "did you mean faults?"),
            ("name: x", "gpus is required"),
            (with_gpu(index=1), "NVML counts GPUs from 0 without gaps"),
            (with_gpu(uuid="GPU-1"), "gpus[0].uuid"),
            (with_gpu(memoryMiB="80"), "gpus[0].memoryMiB"),
            (with_gpu(pciBusId="07:00"), "gpus[0].pciBusId"),
            (with_gpu(computeCapability="eight"), "gpus[0].computeCapability"),
            (with_gpu() + "links: [[0, 1]]\npci: [[X]]", "links: not 1 rows of 1"),
            (with_gpu() + "links: [[3]]\npci: [[X]]", "links[0]: 3 between a GPU and itself"),
            (with_gpu() + "links: [[0]]", "pci: missing"),
            (with_gpu() + "pci: [[Y]]", "pci[0][0]"),
            (with_gpu() + "faults: [{gpu: 1, lost: true}]", "faults[0].gpu: there is no GPU 1"),
            (with_gpu() + "faults: [{lost: true}]", "faults[0]: gpu is missing"),
            (with_gpu() + "faults: [{gpu: 0}]", "not a fault that can be simulated"),
            (with_gpu() + "faults: [{gpu: 0, lost: true, xid: 79}]", "not a fault that can be simulated"),
            (with_gpu() + "faults: [{gpu: 0, lost: true, gi: 1}]", "faults[0].gi: has no meaning beside lost"),
            (with_gpu() + "faults: [{id: banana, sick: true}]", "banana is not a device id"),
            (with_gpu() + "faults: [{nvml: sometimes}]", "faults[0].nvml"),
        ],
    )
    def test_say_where_and_what(self, text: str, want: str) -> None:
        assert want in refusal(text)

    def test_name_the_line(self) -> None:
        assert refusal(f"gpus:\n- index: 0\n  model: {A100}\n  memoryMb: 3\n").startswith("line 4: gpus[0].memoryMb")

    def test_asymmetric_matrices_are_named(self) -> None:
        gpus = [{"index": n, "model": A100} for n in range(2)]
        pci = [["X", "SYS"], ["SYS", "X"]]
        text = yaml.safe_dump({"gpus": gpus, "links": [[0, 4], [2, 0]], "pci": pci})
        assert "links[1]: 2 to 0, but 4 back" in refusal(text)

    @pytest.mark.parametrize("field", ["minor", "uuid", "pciBusId"])
    def test_what_must_be_unique_is(self, field: str) -> None:
        value = {"minor": 4, "uuid": BOARD_UUID, "pciBusId": "00000000:07:00.0"}[field]
        text = yaml.safe_dump({"gpus": [{"index": n, "model": A100, field: value} for n in range(2)]})
        assert f"gpus[1].{field}: {value} stands twice" in refusal(text)

    def test_many_problems_are_counted(self) -> None:
        text = yaml.safe_dump({"gpus": [{"index": n, "model": ""} for n in range(9)]})
        assert refusal(text).endswith("; and 4 more")

    @given(st.text(max_size=200))
    def test_no_text_does_anything_but_load_or_be_refused(self, text: str) -> None:
        with suppress(InvalidInput):
            load(text)
