"""Placements in a cluster with ideal plugins: what is planned, what stays, what is told to the nodes (E01 to E18)."""

from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.planning import pool, service
from tests.support.stage import Stage, Wire, placement_object, problems, resource, uuid

from gpusharing.api.node import ReservationReport
from gpusharing.core.placement.envmaps import EnvWrites, emptied_maps, env_maps
from gpusharing.core.placement.quota import Quota
from gpusharing.core.placement.replanning import replan
from gpusharing.core.placement.standing import placement_status

P = "team-a/p"
RL_EVAL: Wire = {
    "pools": [pool("auto", None, maxNodes=4)],
    "lead": "policy",
    "services": [service("judge", 1), service("policy", 2)],
}


def edited(spec: Wire, *services: Wire, **more: object) -> Wire:
    return placement_object("p", {**spec, **more, "services": list(services)})


@pytest.fixture
def stage() -> Stage:
    """A node of four idle GPUs with a placement of three."""
    stage = Stage()
    stage.node("a")
    stage.put(placement_object("p", RL_EVAL))
    return stage


def test_the_plan_is_stored_before_any_node_is_told_of_it(stage: Stage) -> None:
    stage.plan()
    assert stage.places() == {"judge": "a 0", "policy": "a 1,2"}
    assert stage.condition() == ("False", "Reserving")
    assert stage.told("a") == {}
    assert stage.tell()
    assert stage.told("a") == {
        "judge.p.team-a": [uuid("a", 0)],
        "policy.p.team-a": [uuid("a", 1), uuid("a", 2)],
    }
    stage.plan()
    assert stage.condition() == ("False", "Reserving")
    stage.answer()
    stage.plan()
    assert stage.condition() == ("True", "Active")
    assert [stage.condition(kind) for kind in ("Valid", "Placed", "Reserved")] == [
        ("True", "Valid"),
        ("True", "Placed"),
        ("True", "Active"),
    ]
    status = stage.placements[P].status
    assert (status.summary.gpus_needed, status.summary.gpus_free, status.summary.nodes) == (3, 1, 1)
    assert status.lead_node == "a"


def test_planned_twice_nothing_changes(stage: Stage) -> None:
    stage.settle()
    assert stage.settle() == 0


def test_a_gpu_that_a_pod_took_meanwhile_is_avoided_by_the_new_plan(stage: Stage) -> None:
    stage.plugins["a"].grabbed.add(uuid("a", 1))
    stage.plan()
    stage.tell()
    stage.answer()
    stage.plan()
    assert stage.condition() == ("False", "ReservationConflict")
    assert problems(stage.placements[P])[0] == (
        f"ReservationConflict: GPU {uuid('a', 1)} on a was taken by another pod before service 'policy' could have it; "
        "planning again"
    )
    stage.settle()
    assert stage.condition() == ("True", "Active")
    assert stage.places() == {"judge": "a 0", "policy": "a 2,3"}


def test_a_service_that_lost_a_gpu_and_finds_no_other_has_nothing_and_the_rest_stays(stage: Stage) -> None:
    stage.pod("a", 3)
    stage.plugins["a"].grabbed.add(uuid("a", 1))
    stage.settle()
    assert stage.condition() == ("False", "Unplaceable")
    assert stage.condition("Stalled") == ("True", "Unplaceable")
    assert stage.places() == {"judge": "a 0"}
    assert stage.told("a") == {"judge.p.team-a": [uuid("a", 0)]}
    stage.plugins["a"].grabbed.clear()
    stage.pod_ends("a", 1)
    stage.taken.clear()
    stage.settle()
    assert stage.condition() == ("True", "Active")
    assert stage.places() == {"judge": "a 0", "policy": "a 1,2"}


def test_an_unhealthy_gpu_degrades_and_moves_only_when_it_is_asked_for(stage: Stage) -> None:
    stage.settle()
    stage.change_gpu("a", 2, healthy=False)
    stage.settle()
    assert stage.condition() == ("False", "GpuUnhealthy")
    assert stage.condition("Degraded") == ("True", "GpuUnhealthy")
    assert stage.places() == {"judge": "a 0", "policy": "a 1,2"}
    stage.put(placement_object("p", RL_EVAL, annotations={"gpusharing.io/rebalance": "1"}))
    stage.settle()
    assert stage.places() == {"judge": "a 0", "policy": "a 1,3"}
    assert stage.condition() == ("True", "Active")
    assert stage.condition("Degraded") == ("", "")
    assert stage.placements[P].status.observed_rebalance == "1"


def test_a_gpu_that_is_not_there_is_unhealthy_while_its_plugin_misses_it_and_gone_once_it_does_not(
    stage: Stage,
) -> None:
    stage.settle()
    there = stage.nodes["a"].gpu_node
    assert there is not None
    stage.report("a", gpus=tuple(gpu for gpu in there.gpus if gpu.index != 2), ready=False)
    stage.settle()
    assert stage.condition("Degraded") == ("True", "GpuUnhealthy")
    assert problems(stage.placements[P])[0].startswith(
        f"GpuUnhealthy: GPU 2 ({uuid('a', 2)}) of service 'policy' on a "
    )
    assert stage.places() == {"judge": "a 0", "policy": "a 1,2"}
    stage.report("a", ready=True)
    stage.settle()
    assert stage.condition("Degraded") == ("", "")
    assert stage.places() == {"judge": "a 0", "policy": "a 1,3"}


def test_of_a_lost_node_only_its_services_move(stage: Stage) -> None:
    stage.node("b", gpus=3)
    stage.node("c")
    stage.put(edited(RL_EVAL, service("judge", 1), service("policy", 2), service("reward", 3)))
    stage.settle()
    assert stage.places() == {"judge": "a 0", "policy": "a 1,2", "reward": "b 0,1,2"}
    stage.lose("b")
    stage.plan()
    assert stage.condition() == ("False", "NodeLost")
    assert stage.condition("Degraded") == ("True", "NodeLost")
    assert stage.condition("Reconciling") == ("True", "NodeLost")
    stage.settle()
    assert stage.places() == {"judge": "a 0", "policy": "a 1,2", "reward": "c 0,1,2"}
    assert stage.condition() == ("True", "Active")


def test_a_node_that_is_not_ready_counts_as_lost_after_five_minutes(stage: Stage) -> None:
    stage.settle()
    stage.node("b")
    stage.change_node("a", ready=False, unready_since=stage.now)
    stage.settle()
    assert stage.condition() == ("False", "NodeLost")
    assert stage.places() == {"judge": "a 0", "policy": "a 1,2"}
    assert stage.decided[P].look_again == timedelta(minutes=5)
    stage.now += timedelta(minutes=5)
    stage.settle()
    assert stage.places() == {"judge": "b 0", "policy": "b 1,2"}


@pytest.mark.parametrize(
    "trouble",
    [
        lambda stage: stage.change_node("a", schedulable=False),
        lambda stage: stage.change_node("a", reservable=False),
        lambda stage: stage.report("a", ready=False),
        lambda stage: stage.report("a", ready=False, gpus=()),
    ],
    ids=["cordoned", "no longer allowed", "its plugin is not ready", "its driver is not there"],
)
def test_what_is_bound_stays_on_a_node_that_takes_nothing_new(stage: Stage, trouble: object) -> None:
    stage.settle()
    trouble(stage)  # type: ignore[operator]
    stage.settle()
    assert stage.places() == {"judge": "a 0", "policy": "a 1,2"}
    stage.put(edited(RL_EVAL, service("judge", 1), service("policy", 2), service("new", 1)))
    stage.settle()
    assert stage.condition()[1] in {"Unplaceable", "Planning"}
    assert stage.places() == {"judge": "a 0", "policy": "a 1,2"}


def test_a_gpu_node_that_somebody_deleted_releases_nothing(stage: Stage) -> None:
    stage.settle()
    told = stage.told("a")
    stage.report("a", wanted=None, generation=1, answered=None, entries=(), gpus=(), ready=False)
    stage.plan()
    assert stage.places() == {"judge": "a 0", "policy": "a 1,2"}
    stage.tell()
    assert stage.told("a") == told


def test_a_deleted_placement_is_released_and_created_anew_binds_what_it_had(stage: Stage) -> None:
    stage.settle()
    stage.runs("a", resource("policy"), 1, 2)
    stage.delete(P)
    stage.settle()
    assert stage.told("a") == {}
    stage.put(edited(RL_EVAL, service("policy", 2), service("judge", 1)))
    stage.settle()
    assert stage.places() == {"policy": "a 1,2", "judge": "a 0"}
    assert stage.condition() == ("True", "Active")


def test_what_a_namesake_that_is_not_planned_yet_had_stays_told(stage: Stage) -> None:
    """It was deleted and created anew between two looks: an entry goes for want of a placement of that name only."""
    stage.settle()
    told = stage.told("a")
    stage.delete(P)
    stage.put(placement_object("p", RL_EVAL))
    assert not stage.tell()
    assert stage.told("a") == told


def test_created_anew_with_less_it_keeps_as_much_as_it_needs(stage: Stage) -> None:
    stage.settle()
    stage.runs("a", resource("policy"), 1, 2)
    stage.delete(P)
    stage.settle()
    stage.put(edited(RL_EVAL, service("policy", 1), lead="policy"))
    stage.settle()
    assert stage.places() == {"policy": "a 1"}


def test_a_gpu_that_is_still_released_is_no_other_placements(stage: Stage) -> None:
    stage.settle()
    stage.runs("a", resource("policy"), 1, 2)
    stage.delete(P)
    stage.settle()
    stage.put(placement_object("q", {"pools": [pool(1, None)], "services": [service("x", 3)]}))
    stage.settle()
    assert stage.condition(key="team-a/q") == ("False", "Unplaceable")
    stage.runs("a", resource("policy"))
    stage.settle()
    assert stage.places("team-a/q") == {"x": "a 0,1,2"}


def test_a_node_whose_policy_does_not_allow_placements_is_not_planned_on() -> None:
    stage = Stage()
    stage.node("a", reservable=False)
    stage.put(placement_object("p", RL_EVAL))
    stage.settle()
    assert stage.condition() == ("False", "Unplaceable")
    assert stage.told("a") == {}


def test_more_than_the_quota_leaves_is_not_reserved() -> None:
    stage = Stage()
    stage.node("a")
    stage.quotas = [Quota("team-a", "roomy", 8, 0), Quota("team-a", "tight", 2, 0), Quota("team-b", "none", 0, 0)]
    stage.put(placement_object("p", RL_EVAL))
    stage.settle()
    assert stage.condition() == ("False", "QuotaExceeded")
    assert stage.condition("Placed") == ("False", "QuotaExceeded")
    assert "namespace team-a may use 2 GPU(s), this placement needs 3 and others hold 0" in stage.message()
    assert stage.told("a") == {}
    stage.quotas = []
    stage.settle()
    assert stage.condition() == ("True", "Active")


def test_a_quota_counts_other_placements_and_takes_nothing_away() -> None:
    stage = Stage()
    stage.node("a")
    stage.put(placement_object("p", RL_EVAL, age=1))
    stage.settle()
    stage.quotas = [Quota("team-a", "q", 3, 0)]
    stage.put(placement_object("q", {"pools": [pool(1, None)], "services": [service("x", 1)]}))
    stage.settle()
    assert "may use 3 GPU(s), this placement needs 1 and others hold 3" in stage.message(key="team-a/q")
    stage.quotas = [Quota("team-a", "q", 1, 0)]
    stage.settle()
    assert stage.condition() == ("True", "Active")


def test_an_invalid_edit_keeps_the_last_valid_plan(stage: Stage) -> None:
    stage.settle()
    told = stage.told("a")
    pins = service("judge", visibleDevices="0,1"), service("policy", visibleDevices="1,2")
    stage.put(edited(RL_EVAL, *pins, pools=[pool(1, None)]))
    stage.settle()
    assert stage.condition() == ("False", "Invalid")
    assert stage.condition("Valid") == ("False", "Invalid")
    assert stage.condition("Stalled") == ("True", "Invalid")
    assert stage.message().startswith("services 'judge' and 'policy' both pin GPU 1 of pool 'gpu'; change one")
    assert stage.message().endswith("The previous plan keeps running.")
    assert stage.condition("Reserved") == ("True", "Active")
    assert stage.told("a") == told
    stage.put(placement_object("p", RL_EVAL))
    stage.settle()
    assert stage.condition() == ("True", "Active")
    assert stage.told("a") == told


@pytest.mark.parametrize("pins", [f"{uuid('b', 0)},{uuid('b', 1)}", "5,6"], ids=["by UUID", "by index"])
def test_a_pin_that_no_node_has_yet_waits_for_one_that_has_it(pins: str) -> None:
    stage = Stage()
    stage.node("a")
    stage.put(placement_object("p", {"pools": [pool(1, None)], "services": [service("x", visibleDevices=pins)]}))
    stage.settle()
    assert stage.condition() == ("False", "Unplaceable")
    assert [stage.condition(kind) for kind in ("Valid", "Placed", "Stalled")] == [
        ("True", "Valid"),
        ("False", "Unplaceable"),
        ("True", "Unplaceable"),
    ]
    assert "service 'x' pins" in stage.message()
    stage.node("b", gpus=8)
    stage.settle()
    assert stage.condition() == ("True", "Active")


def test_a_pin_that_nobody_has_beside_a_contradiction_is_invalid(stage: Stage) -> None:
    stage.put(edited(RL_EVAL, service("judge", visibleDevices="9"), service("policy", visibleDevices="1,1")))
    stage.settle()
    assert stage.condition() == ("False", "Invalid")
    assert {each.code for each in stage.placements[P].status.problems} == {"PinOutOfRange", "PinRepeats"}


def test_share_needs_env_in_a_cluster() -> None:
    stage = Stage()
    stage.node("a")
    stage.put(
        placement_object("p", {"pools": [pool(1, None)], "services": [service("a", 1), service("b", share=True)]})
    )
    stage.settle()
    assert stage.condition() == ("False", "Invalid")
    assert "service 'b': share: true needs enforcement: env; use shareWith" in stage.message()


def test_edited_while_it_is_being_reserved_it_ends_up_as_edited(stage: Stage) -> None:
    stage.plan()
    stage.tell()
    stage.put(edited(RL_EVAL, service("judge", 2), service("policy", 2)))
    stage.plan()
    stage.answer()
    stage.settle()
    assert stage.places() == {"judge": "a 0,3", "policy": "a 1,2"}
    assert stage.condition() == ("True", "Active")


def test_of_two_that_want_the_same_gpus_the_older_has_them() -> None:
    stage = Stage()
    stage.node("a")
    stage.put(placement_object("young", RL_EVAL, namespace="team-b"))
    stage.put(placement_object("old", RL_EVAL, age=2))
    stage.settle()
    assert stage.condition(key="team-a/old") == ("True", "Active")
    assert stage.condition(key="team-b/young") == ("False", "Unplaceable")


def test_a_leftover_stays_what_it_was_when_more_becomes_free(stage: Stage) -> None:
    stage.pod("a", 3)
    wanted = edited(RL_EVAL, service("policy", 1), {"name": "rest", "leftover": {"min": 1}}, lead="policy")
    stage.put(wanted)
    stage.settle()
    assert stage.places() == {"policy": "a 0", "rest": "a 1,2"}
    stage.runs("a", resource("rest"), 1, 2)
    stage.change_gpu("a", 1, in_use=1)
    stage.change_gpu("a", 2, healthy=False)
    stage.pod_ends("a", 3)
    stage.settle()
    assert stage.places() == {"policy": "a 0", "rest": "a 1,2"}


def test_a_leftover_stays_when_another_service_is_planned_anew_and_gives_up_no_more_than_that_needs() -> None:
    stage = Stage()
    stage.node("a", gpus=6)
    stage.pod("a", 4)
    stage.pod("a", 5)
    rest = {"name": "rest", "leftover": {"min": 1}}
    stage.put(edited(RL_EVAL, service("policy", 1), rest))
    stage.settle()
    assert stage.places() == {"policy": "a 0", "rest": "a 1,2,3"}
    stage.pod_ends("a", 5)
    stage.put(edited(RL_EVAL, service("policy", 1), rest, service("new", 1)))
    stage.settle()
    assert stage.places() == {"policy": "a 0", "rest": "a 1,2,3", "new": "a 5"}
    stage.put(edited(RL_EVAL, service("policy", 1), rest, service("new", 2)))
    stage.settle()
    assert stage.places() == {"policy": "a 0", "rest": "a 2,3", "new": "a 1,5"}
    assert stage.condition() == ("True", "Active")


def test_a_service_that_lost_a_gpu_goes_to_an_empty_node_rather_than_take_the_last_of_a_leftover() -> None:
    stage = Stage()
    stage.node("a")
    stage.node("b")
    wanted = [service("x", 3), {"name": "rest", "leftover": {"min": 1}}]
    stage.put(placement_object("p", {"pools": [pool("auto", None, maxNodes=2)], "services": wanted}))
    stage.plugins["a"].grabbed.add(uuid("a", 0))
    stage.settle()
    assert stage.places() == {"x": "b 0,1,2", "rest": "a 3"}
    assert stage.condition() == ("True", "Active")


def test_a_leftover_created_anew_takes_all_of_the_rest_not_only_what_its_pods_still_hold(stage: Stage) -> None:
    wanted = edited(RL_EVAL, service("policy", 1), {"name": "rest", "leftover": {"min": 1}})
    stage.put(wanted)
    stage.settle()
    stage.delete(P)
    stage.settle()
    held = ReservationReport(resource=resource("rest"), gpus=[uuid("a", 3)], state="Releasing", in_use=1)
    stage.report("a", entries=(held,))
    stage.put(wanted)
    stage.plan()
    assert stage.places() == {"policy": "a 0", "rest": "a 1,2,3"}


def test_what_pods_hold_is_counted_and_idle_is_said_since_when(stage: Stage) -> None:
    stage.settle()
    idle = stage.placements[P].status.services[1].assignments[0]
    assert (idle.in_use, idle.idle_since) == (0, stage.now)
    stage.now += timedelta(minutes=1)
    stage.runs("a", resource("policy"), 1, 2)
    stage.settle()
    busy = stage.placements[P].status.services[1].assignments[0]
    assert (busy.in_use, busy.idle_since) == (2, None)
    stage.runs("a", resource("policy"))
    stage.settle()
    assert stage.placements[P].status.services[1].assignments[0].idle_since == stage.now


def test_a_report_of_an_older_spec_counts_for_nothing_and_takes_nothing_away(stage: Stage) -> None:
    stage.settle()
    stage.silent.add("a")
    stage.put(placement_object("q", {"pools": [pool(1, None)], "services": [service("x", 1)]}))
    stage.settle()
    assert stage.condition() == ("True", "Active")
    assert stage.condition(key="team-a/q") == ("False", "Reserving")


def test_a_node_from_which_nothing_was_reported_yet_is_waited_for() -> None:
    stage = Stage()
    stage.node("a")
    stage.report("a", ready=False, gpus=())
    stage.put(placement_object("p", RL_EVAL))
    stage.settle()
    assert stage.condition() == ("Unknown", "Planning")
    assert stage.condition("Reconciling") == ("True", "Planning")
    assert stage.condition("Stalled") == ("", "")


def test_env_reserves_nothing_and_says_by_node_which_gpus_are_whose() -> None:
    stage = Stage()
    stage.node("a", reservable=False)
    stage.put(placement_object("p", {**RL_EVAL, "enforcement": "env"}))
    stage.settle()
    assert stage.places() == {"judge": "a 0", "policy": "a 1,2"}
    assert stage.told("a") == {}
    assert stage.condition() == ("True", "Active")
    assert stage.condition("Reserved") == ("", "")
    judge, policy = env_maps(stage.placements[P])
    assert (judge["metadata"]["name"], policy["metadata"]["name"]) == ("p.judge", "p.policy")
    assert policy["metadata"]["ownerReferences"][0]["uid"] == "uid-team-a-p"
    assert policy["data"] == {
        "a": "CUDA_VISIBLE_DEVICES=1,2\nCUDA_DEVICE_ORDER=PCI_BUS_ID\nGPU_PLACEMENT_COUNT=2\nGPU_PLACEMENT_SLOT=gpu/0\n"
    }


COUNTED = "GPU_PLACEMENT_COUNT=2\nGPU_PLACEMENT_SLOT=gpu/0\n"
NAMED = "CUDA_VISIBLE_DEVICES={}\nCUDA_DEVICE_ORDER=PCI_BUS_ID\n"


def test_env_names_no_gpus_to_a_service_that_has_its_node_to_itself_until_others_come(stage: Stage) -> None:
    def said() -> str:
        (body,) = env_maps(stage.placements[P])
        return str(body["data"]["a"])

    stage.put(edited({**RL_EVAL, "enforcement": "env"}, service("policy", 2)))
    stage.settle()
    assert said() == COUNTED
    stage.pod("a", 3)
    stage.settle()
    assert said() == NAMED.format("0,1") + COUNTED
    stage.pod_ends("a", 3)
    stage.settle()
    assert said() == NAMED.format("0,1") + COUNTED


def test_env_names_its_gpus_to_a_service_beside_another_placement(stage: Stage) -> None:
    alone = {"pools": [pool(1, None)], "enforcement": "env"}
    stage.put(placement_object("p", {**alone, "services": [service("x", 2)]}, age=1))
    stage.settle()
    stage.put(placement_object("q", {**alone, "services": [service("y", 1)]}))
    stage.settle()
    assert [next(env_maps(each))["data"]["a"].splitlines()[0] for each in stage.placements.values()] == [
        "CUDA_VISIBLE_DEVICES=0,1",
        "CUDA_VISIBLE_DEVICES=2",
    ]


@pytest.mark.parametrize(
    ("changed", "emptied"),
    [
        ({"services": [service("judge", 1)]}, ["p.policy"]),
        ({"services": [service("judge", 1), service("policy", 2, deploy=False)]}, ["p.policy"]),
        ({"services": [service("judge", 2), service("policy", 2), service("new", 0)]}, []),
        ({"enforcement": "reserve"}, ["p.judge", "p.policy"]),
        ({"services": [service("judge", 9)]}, []),
    ],
    ids=["it is gone", "it is not deployed", "others change", "reserve", "the plan before keeps running"],
)
def test_env_takes_the_gpus_of_a_service_that_leaves_out_of_its_config_map(
    stage: Stage, changed: Wire, emptied: list[str]
) -> None:
    env = {"pools": [pool(1, None)], "services": [service("judge", 1), service("policy", 2)], "enforcement": "env"}
    stage.put(placement_object("p", env))
    stage.settle()
    after = stage.put(placement_object("p", {**env, **changed}))
    found = list(emptied_maps(after, replan(stage.cluster, after).services))
    assert [(each["metadata"]["name"], each["data"]) for each in found] == [(name, {}) for name in emptied]
    stage.settle()
    settled = stage.placements[P]
    assert list(emptied_maps(settled, replan(stage.cluster, settled).services)) == []


def test_what_was_never_env_has_no_config_map_to_be_emptied(stage: Stage) -> None:
    stage.settle()
    after = stage.put(placement_object("p", {**RL_EVAL, "enforcement": "env"}))
    assert list(emptied_maps(after, replan(stage.cluster, after).services)) == []


@pytest.mark.parametrize(
    ("env", "ready", "kstatus"),
    [
        (EnvWrites(), ("True", "Active"), ("", "")),
        (EnvWrites(pending=True), ("Unknown", "Planning"), ("True", "Planning")),
        (
            EnvWrites(refused="ConfigMap p.judge cannot be written: 403"),
            ("False", "WriteFailed"),
            ("True", "WriteFailed"),
        ),
    ],
    ids=["written", "being written", "refused"],
)
def test_env_is_ready_when_its_config_maps_are_there(
    env: EnvWrites, ready: tuple[str, str], kstatus: tuple[str, str]
) -> None:
    stage = Stage()
    stage.node("a")
    placement = stage.put(placement_object("p", {**RL_EVAL, "enforcement": "env"}))
    status = placement_status(stage.cluster, replan(stage.cluster, placement), env)
    stage.placements[P] = replace(placement, status=status)
    assert stage.condition() == ready
    assert stage.condition("Reconciling") == kstatus


def test_a_stored_plan_that_has_a_gpu_of_an_older_placement_gives_way() -> None:
    stage = Stage()
    stage.node("a")
    stage.put(placement_object("old", RL_EVAL, age=2))
    stage.settle()
    thief = stage.put(placement_object("p", {"pools": [pool(1, None)], "services": [service("x", 1)]}))
    stage.settle()
    (x,) = stage.placements[P].status.services
    stolen = x.model_copy(
        update={"assignments": [x.assignments[0].model_copy(update={"indexes": [0], "uuids": [uuid("a", 0)]})]}
    )
    status = stage.placements[P].status.model_copy(update={"services": [stolen]})
    stage.placements[P] = replace(thief, status=status)
    stage.settle()
    assert (stage.places("team-a/old"), stage.places()) == ({"judge": "a 0", "policy": "a 1,2"}, {"x": "a 3"})


def test_services_over_the_same_gpus_have_names_that_are_not_exclusive() -> None:
    stage = Stage()
    stage.node("a")
    shared = {"name": "gpu", "nodes": 1, "sharing": {"replicas": 10}}
    services = [
        service("judge", 1),
        {"name": "embed", "shareWith": "judge"},
        service("llm", 1, fraction="50%"),
        service("x", 1),
    ]
    stage.put(placement_object("p", {"pools": [shared], "services": services}))
    stage.settle()
    exclusive = {service: each.exclusive for service, each in stage.placements[P].assignments()}
    assert exclusive == {"judge": False, "embed": False, "llm": False, "x": True}
    assert stage.condition() == ("True", "Active")
    assert problems(stage.placements[P]) == [
        "SharedNoIsolation: memory and faults are not isolated between services that share a GPU: embed, llm"
    ]


def test_instances_share_one_name_and_ranks_have_one_each() -> None:
    stage = Stage()
    for name in "abc":
        stage.node(name)
    split = {"name": "split", "parallelism": {"tensor": 2, "instances": 2}, "split": "instances"}
    stage.put(placement_object("p", {"pools": [pool(3, None)], "services": [service("big", 6), split]}))
    stage.settle()
    named = {(each.resource.split("/")[1], each.node_name, each.count) for _, each in stage.placements[P].assignments()}
    assert named == {
        ("big.r0.p.team-a", "a", 4),
        ("big.r1.p.team-a", "b", 4),
        ("split.p.team-a", "c", 2),
    }
