"""Slurm step files under real shells: each service gets its own GPUs, or the step does not start at all."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import pytest
from tests.support.placements import expected_job, job, known_at_run_time_only
from tests.support.shells import SHELLS, Ran, run_script

from gpusharing.core.placement.renderers import Job, slurm

SHOWN = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "GPU_PLACEMENT_ARGS",
    "GPU_PLACEMENT_COUNT",
    "GPU_PLACEMENT_SLOT",
    "GPU_PLACEMENT_RANK",
    "GPU_PLACEMENT_INSTANCES",
    "GPU_PLACEMENT_FIRST_INSTANCE",
)
REFUSED = 78
shells = pytest.mark.parametrize("shell", SHELLS)


def write(folder: Path, case: str, **wanted: Any) -> None:
    write_job(folder, expected_job(case, **wanted))


def write_job(folder: Path, job: Job) -> None:
    for file in slurm.render(job):
        (folder / file.path).write_text(file.text)


def on_named_nodes() -> Job:
    """P15 on nodes of which the second in name is the first slot, as where the lead is there."""
    expected = expected_job("P15")
    first, second = expected.plan.slots
    slots = (replace(first, node="node-b"), replace(second, node="node-a"))
    return replace(expected, plan=replace(expected.plan, slots=slots))


def step(shell: str, folder: Path, service: str, env: Mapping[str, str]) -> Ran:
    """What `sh -c '. FILE; exec …'` would start, with errors on unset variables as many scripts have it."""
    show = "".join(f'[ -z "${{{name}+set}}" ] || echo "{name}=${name}"\n' for name in SHOWN)
    return run_script(shell, f"set -eu\n. ./{service}.step.sh\n{show}", env, folder)


def devices(ran: Ran) -> str:
    assert (ran.code, ran.err) == (0, ""), ran
    return dict(line.split("=", 1) for line in ran.out.splitlines())["CUDA_VISIBLE_DEVICES"]


# --- positions in what Slurm gives the step


@shells
@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("0,1,2,3", "1,2"),
        ("4,5,6,7", "5,6"),
        ("7,6,5,4", "6,5"),
        ("10,11,12,13", "11,12"),
        ("0,1,2", "1,2"),
        ("GPU-a,GPU-b,GPU-c,GPU-d", "GPU-b,GPU-c"),
        (None, "1,2"),
    ],
)
def test_planned_positions_are_taken_from_what_slurm_gives(
    shell: str, given: str | None, want: str, tmp_path: Path
) -> None:
    write(tmp_path, "P01")
    env = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
    ran = step(shell, tmp_path, "policy", env)
    assert devices(ran) == want
    assert ran.out.splitlines()[1:] == [
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "GPU_PLACEMENT_COUNT=2",
        "GPU_PLACEMENT_SLOT=gpu/0",
    ]


@shells
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("0", "needs the GPU at position 1, but Slurm gave this step '0'"),
        ("0,1", "needs the GPU at position 2, but Slurm gave this step '0,1'"),
        ("", "needs the GPU at position 1, but Slurm gave this step ''"),
        ("0,1,", "needs the GPU at position 2, but Slurm gave this step '0,1,'"),
        ("NoDevFiles", "Slurm gave this step no GPUs (NoDevFiles): use --gpus-per-node"),
        ("all,all,all", "'all' in the GPUs of this step is no index or GPU UUID"),
        ("MIG-a,MIG-b,MIG-c", "'MIG-b' in the GPUs of this step is no index or GPU UUID"),
        ("0, 1, 2", "' 1' in the GPUs of this step is no index or GPU UUID"),
        ("*,*,*", "'*' in the GPUs of this step is no index or GPU UUID"),
    ],
)
def test_a_step_without_its_gpus_does_not_start(shell: str, given: str, says: str, tmp_path: Path) -> None:
    write(tmp_path, "P01")
    assert step(shell, tmp_path, "policy", {"CUDA_VISIBLE_DEVICES": given}) == Ran(
        REFUSED, "", f"policy.step.sh: {says}\n"
    )


@shells
def test_two_services_never_meet_whatever_the_order_of_the_list(shell: str, tmp_path: Path) -> None:
    write(tmp_path, "P01")
    for order in islice(permutations("4567"), 0, None, 5):
        env = {"CUDA_VISIBLE_DEVICES": ",".join(order)}
        got = [*devices(step(shell, tmp_path, "judge", env)).split(",")]
        got += devices(step(shell, tmp_path, "policy", env)).split(",")
        assert got == list(order[:3])


# --- several nodes


@shells
def test_unlike_slots_get_unlike_lists_by_node_rank(shell: str, tmp_path: Path) -> None:
    write(tmp_path, "P15")
    wants = [("0", "6,7", "2", "gpu/0"), ("1", "7", "1", "gpu/1")]
    for rank, gpus, count, slot in wants:
        ran = step(shell, tmp_path, "ray", {"SLURM_NODEID": rank, "CUDA_VISIBLE_DEVICES": "4,5,6,7"})
        assert ran.out.splitlines() == [
            f"CUDA_VISIBLE_DEVICES={gpus}",
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
            f"GPU_PLACEMENT_COUNT={count}",
            f"GPU_PLACEMENT_SLOT={slot}",
            f"GPU_PLACEMENT_RANK={rank}",
        ]


@shells
@pytest.mark.parametrize("env", [{"SLURM_NODEID": "2"}, {"SLURM_NODEID": ""}, {}], ids=str)
def test_an_unknown_node_rank_does_not_start(shell: str, env: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, "P15")
    ran = step(shell, tmp_path, "ray", env)
    assert (ran.code, ran.out) == (REFUSED, "")
    assert ran.err == f"ray.step.sh: the node's rank is '{env.get('SLURM_NODEID', '')}', expected 0 or 1\n"


@shells
def test_a_step_per_node_finds_its_slot_by_the_nodes_name(shell: str, tmp_path: Path) -> None:
    write(tmp_path, "P15")
    nodes = {"SLOT_GPU_0": "node3", "SLOT_GPU_1": "node7", "SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0"}
    for name, want in (("node3", "2,3"), ("node7", "3")):
        assert devices(step(shell, tmp_path, "ray", {**nodes, "SLURMD_NODENAME": name})) == want
    elsewhere = step(shell, tmp_path, "ray", {**nodes, "SLURMD_NODENAME": "node9"})
    says = "ray.step.sh: this step has 1 node(s) of 2: source slots.sh where srun is\n"
    assert elsewhere == Ran(REFUSED, "", says)
    # the rank alone would be that of another slot
    unknown = {"SLURM_STEP_NUM_NODES": "1", "SLURM_NODEID": "0", "SLURMD_NODENAME": "node7"}
    assert step(shell, tmp_path, "ray", unknown) == Ran(REFUSED, "", says)


@shells
def test_a_service_alone_on_one_of_its_nodes_keeps_there_what_slurm_gives(shell: str, tmp_path: Path) -> None:
    write(tmp_path, "P58")
    alone = {"SLURM_NODEID": "0", "CUDA_VISIBLE_DEVICES": "7,6,5"}
    assert devices(step(shell, tmp_path, "six", alone)) == "7,6,5"
    assert devices(step(shell, tmp_path, "six", {"SLURM_NODEID": "1", "CUDA_VISIBLE_DEVICES": "7,6,5"})) == "7,6"


@shells
def test_instances_and_the_number_of_the_first_are_told(shell: str, tmp_path: Path) -> None:
    write(tmp_path, "P23")
    ran = step(shell, tmp_path, "policy", {"SLURM_NODEID": "1"})
    assert ran.out.splitlines()[-3:] == [
        "GPU_PLACEMENT_RANK=1",
        "GPU_PLACEMENT_INSTANCES=2",
        "GPU_PLACEMENT_FIRST_INSTANCE=2",
    ]


@shells
def test_a_step_on_another_node_than_its_slots_does_not_start(shell: str, tmp_path: Path) -> None:
    write(tmp_path, "P01")
    node = {"SLOT_GPU_0": "node7", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert devices(step(shell, tmp_path, "policy", {**node, "SLURMD_NODENAME": "node7"})) == "1,2"
    assert step(shell, tmp_path, "policy", {**node, "SLURMD_NODENAME": "node8"}) == Ran(
        REFUSED,
        "",
        "policy.step.sh: gpu/0 is node node7, but this step runs on node8; start it with --nodelist\n",
    )


@shells
def test_where_the_plan_names_nodes_only_the_name_decides(shell: str, tmp_path: Path) -> None:
    write_job(tmp_path, on_named_nodes())
    slots = {"SLOT_GPU_0": "node-b", "SLOT_GPU_1": "node-a", "SLURM_NODEID": "0"}
    assert devices(step(shell, tmp_path, "ray", {**slots, "SLURMD_NODENAME": "node-b"})) == "2,3"
    assert devices(step(shell, tmp_path, "ray", {**slots, "SLURMD_NODENAME": "node-a"})) == "3"
    for node in ({"SLURMD_NODENAME": "node-c"}, {}):
        name = node.get("SLURMD_NODENAME", "")
        says = f"ray.step.sh: node '{name}' is none of the plan's: source slots.sh where srun is\n"
        assert step(shell, tmp_path, "ray", {**slots, **node}) == Ran(REFUSED, "", says)


# --- written by hand


@shells
def test_a_list_written_by_hand_is_taken_as_it_is_unless_pins_are_mapped(shell: str, tmp_path: Path) -> None:
    write(tmp_path, "P06")
    assert devices(step(shell, tmp_path, "policy", {"CUDA_VISIBLE_DEVICES": "4,5,6,7"})) == "2,3"
    write(tmp_path, "P06", map_pins=True)
    assert devices(step(shell, tmp_path, "policy", {"CUDA_VISIBLE_DEVICES": "4,5,6,7"})) == "6,7"


@shells
def test_who_shares_gets_the_list_that_was_written_by_hand(shell: str, tmp_path: Path) -> None:
    request = {
        "pools": [{"name": "gpu", "nodes": 1, "gpusPerNode": 4}],
        "services": [{"name": "a", "visibleDevices": "2,3"}, {"name": "b", "shareWith": "a"}],
    }
    both = {"a": {"indexes": [2, 3]}, "b": {"indexes": [2, 3]}}
    expected = {
        "pools": {"gpu": {"nodesResolved": 1}},
        "slots": {"gpu/0": {"assigned": both, "free": [0, 1], "exported": ["a", "b"]}},
        "leadSlot": None,
        "seesAll": [],
        "warnings": [],
        "notices": [],
    }
    write_job(tmp_path, job({"request": request}, expected))
    for service in both:
        assert devices(step(shell, tmp_path, service, {"CUDA_VISIBLE_DEVICES": "4,5,6,7"})) == "2,3"


@shells
def test_a_list_in_uuids_is_mapped_for_slurm_gives_positions(shell: str, tmp_path: Path) -> None:
    write(tmp_path, "P33")
    assert devices(step(shell, tmp_path, "policy", {"CUDA_VISIBLE_DEVICES": "4,5,6,7"})) == "6,4"


@shells
def test_uuids_are_exported_where_they_are_wanted(shell: str, tmp_path: Path) -> None:
    write(tmp_path, "P33", visible="uuid")
    assert devices(step(shell, tmp_path, "policy", {"CUDA_VISIBLE_DEVICES": "4,5,6,7"})) == "GPU-b2,GPU-b0"


@shells
def test_arguments_take_the_place_of_the_variable(shell: str, tmp_path: Path) -> None:
    write(tmp_path, "P01", visible="args")
    ran = step(shell, tmp_path, "policy", {"CUDA_VISIBLE_DEVICES": "4,5,6,7"})
    assert ran.out.splitlines()[:2] == ["CUDA_DEVICE_ORDER=PCI_BUS_ID", "GPU_PLACEMENT_ARGS=--device-ids 5,6"]
    refused = step(shell, tmp_path, "policy", {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c"})
    assert refused == Ran(REFUSED, "", "policy.step.sh: 'GPU-b' in the GPUs of this step is no index\n")


# --- the batch script


def batch(shell: str, folder: Path, nodes: str, env: Mapping[str, str], show: str) -> Ran:
    """A batch script that sources slots.sh, on a machine whose scontrol expands a list as Slurm's does."""
    (folder / "scontrol").write_text('#!/bin/sh\n[ "$1 $2" = "show hostnames" ] && printf "%s\\n" $3\n')
    (folder / "scontrol").chmod(0o755)
    script = f'set -eu\nPATH="$PWD:$PATH"\n. ./slots.sh\necho {show}'
    return run_script(shell, script, {**env, **({"SLURM_JOB_NODELIST": nodes} if nodes else {})}, folder)


@shells
def test_slots_are_the_nodes_of_the_job_in_order(shell: str, tmp_path: Path) -> None:
    write(tmp_path, "P15")
    assert batch(shell, tmp_path, "node3 node7 node9", {}, "$SLOT_GPU_0 $SLOT_GPU_1") == Ran(0, "node3 node7\n", "")


@shells
@pytest.mark.parametrize("nodes", ["node3", ""])
def test_a_job_with_too_few_nodes_ends_at_once(shell: str, nodes: str, tmp_path: Path) -> None:
    write(tmp_path, "P15")
    ran = batch(shell, tmp_path, nodes, {}, "never")
    says = f"slots.sh: the plan needs 2 node(s), but SLURM_JOB_NODELIST has {len(nodes.split())}\n"
    assert ran == Ran(REFUSED, "", says)


@shells
def test_each_pool_is_a_group_of_a_heterogeneous_job(shell: str, tmp_path: Path) -> None:
    write(tmp_path, "P34")
    groups = {"SLURM_JOB_NODELIST_HET_GROUP_0": "node1", "SLURM_JOB_NODELIST_HET_GROUP_1": "node8"}
    assert batch(shell, tmp_path, "", groups, "$SLOT_GPU_0 $SLOT_AUX_0") == Ran(0, "node1 node8\n", "")


@shells
def test_a_value_of_the_batch_shell_wins_over_what_slurm_sets_in_the_step(shell: str, tmp_path: Path) -> None:
    write_job(tmp_path, known_at_run_time_only())
    show = '"$GPU_PLACEMENT_RELAY_A"'
    assert batch(shell, tmp_path, "node1", {"MY_GPUS": "3,1"}, show) == Ran(0, "3,1\n", "")
    env = {"GPU_PLACEMENT_RELAY_A": "3,1", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert devices(step(shell, tmp_path, "a", env)) == "3,1"


@shells
def test_a_value_that_nobody_set_does_not_start(shell: str, tmp_path: Path) -> None:
    write_job(tmp_path, known_at_run_time_only())
    ran = step(shell, tmp_path, "a", {"CUDA_VISIBLE_DEVICES": "0,1,2,3"})
    says = "a.step.sh: GPU_PLACEMENT_RELAY_A is not set: source slots.sh where MY_GPUS is set\n"
    assert ran == Ran(REFUSED, "", says)
