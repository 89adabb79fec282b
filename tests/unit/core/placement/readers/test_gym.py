"""NeMo Gym's submit file: who needs GPUs in it, and in which pool."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusharing.api.placement import PlacementSpec
from gpusharing.api.problems import Problem
from gpusharing.core.placement.readers import gym

Data = dict[str, Any]


def submit(
    services: Data, pools: Data | None = None, policy_model: str | None = None, **more: Any
) -> tuple[gym.Reading | None, list[Problem]]:
    """Read a file with these services, on one pool of 4-GPU nodes unless said otherwise."""
    compute = {"cluster": {"type": "slurm", "node_pools": pools or {"gpu": {"nodes": "auto", "gpus_per_node": 4}}}}
    driver = {} if policy_model is None else {"policy_model": policy_model}
    environment = more.pop("environment", {})
    return gym.read({"services": services, "compute": compute, "driver": driver, **more}, environment)


def spec(*arguments: Any, **more: Any) -> Data:
    """The spec that a right file asks for."""
    reading, problems = submit(*arguments, **more)
    assert problems == []
    assert reading is not None
    assert PlacementSpec.model_validate(reading.spec)
    return reading.spec


def services(*arguments: Any, **more: Any) -> dict[str, Data]:
    """The services of a right file, by name; without port and pool."""
    found = spec(*arguments, **more)["services"]
    return {each["name"]: {k: v for k, v in each.items() if k not in {"name", "port", "pool"}} for each in found}


def wrong(*arguments: Any, **more: Any) -> list[str]:
    """What is wrong with a file, in words."""
    reading, problems = submit(*arguments, **more)
    assert reading is None
    return [str(problem) for problem in problems]


def vllm(**more: Any) -> Data:
    return {"type": "vllm", "container": "vllm", "model": "m", **more}


TWO_POOLS = {"gpu": {"nodes": 2, "gpus_per_node": 8}, "aux": {"nodes": 1, "gpus_per_node": 4}}


def test_the_shape_of_a_service_is_its_parallel_sizes() -> None:
    judge, policy = vllm(tensor_parallel_size=1), vllm(tensor_parallel_size=2, number_of_instances=3, port=8001)
    assert spec({"judge": judge, "policy": policy}, policy_model="policy") == {
        "pools": [{"name": "gpu", "nodes": "auto", "gpusPerNode": 4}],
        "lead": "policy",
        "services": [
            {"name": "judge", "kind": "vllm", "pool": "gpu", "port": 8000, "parallelism": {}},
            {
                "name": "policy",
                "kind": "vllm",
                "pool": "gpu",
                "port": 8001,
                "parallelism": {"tensor": 2, "instances": 3},
            },
        ],
    }


def test_names_with_underscores_become_labels() -> None:
    found = spec({"vllm_model": vllm()}, {"big_pool": {"nodes": 1}}, policy_model="vllm_model")
    assert (found["lead"], found["pools"]) == ("vllm-model", [{"name": "big-pool", "nodes": 1}])
    assert found["services"][0]["pool"] == "big-pool"


def test_names_that_become_equal_are_refused() -> None:
    assert wrong({"a_b": vllm(), "a-b": vllm()}) == [
        'services: "a-b", expected names that differ in more than case, _ and .'
    ]
    assert wrong({"_": vllm()}) == ['services._: "_", expected a name of letters, digits, - and _']


# --- who takes no GPUs


def test_sharing_owns_nothing() -> None:
    assert services({"embed": vllm(share_gpus=True)})["embed"] == {"kind": "vllm", "parallelism": {}, "share": True}


@pytest.mark.parametrize("kind", ["router", "judge_v2"])
def test_routers_and_kinds_that_are_not_known_take_none(kind: str) -> None:
    assert services({"x": {"type": kind}})["x"]["gpus"] == 0


def test_an_endpoint_of_somebody_else_is_not_deployed_and_leads_nothing() -> None:
    found = spec({"policy": vllm(base_url="https://models/v1"), "judge": vllm()}, policy_model="policy")
    assert found["services"][0] == {"name": "policy", "gpus": 0, "deploy": False, "pool": "gpu"}
    assert "lead" not in found


# --- Ray


def test_ray_takes_what_is_left_unless_it_says_zero() -> None:
    assert services({"ray": {"type": "ray"}})["ray"] == {"kind": "ray", "leftover": {"min": 1}}
    assert services({"ray": {"type": "ray", "num_gpus": 0}})["ray"] == {"kind": "ray", "gpus": 0}


def test_ray_keeps_a_list_written_by_hand() -> None:
    found = services({"ray": {"type": "ray", "env": {"CUDA_VISIBLE_DEVICES": "lit:3"}}})
    assert found["ray"] == {"kind": "ray", "visibleDevices": "3"}


def test_ray_is_a_service_in_each_pool_it_spans_and_in_the_drivers() -> None:
    found = spec({"ray": {"type": "ray", "node_pools": ["aux"]}}, TWO_POOLS)["services"]
    assert [(each["name"], each["pool"]) for each in found] == [("ray-gpu", "gpu"), ("ray-aux", "aux")]
    alone = spec({"ray": {"type": "ray", "node_pools": ["gpu"]}}, TWO_POOLS)["services"]
    assert [(each["name"], each["pool"]) for each in alone] == [("ray", "gpu")]


# --- pools


def test_a_service_belongs_to_the_pool_that_it_names() -> None:
    found = spec({"policy": vllm(node_pool="gpu"), "judge": vllm(node_pool="aux")}, TWO_POOLS)["services"]
    assert [each["pool"] for each in found] == ["gpu", "aux"]


def test_a_service_that_spans_several_pools_is_left_out_and_said() -> None:
    reading, _ = submit({"policy": vllm(), "judge": vllm(node_pool="aux")}, TWO_POOLS)
    assert reading is not None
    assert [each["name"] for each in reading.spec["services"]] == ["judge"]
    assert reading.notices == (
        "service 'policy' names no node_pool of a job with several pools, so it spans all of them; "
        "nothing is planned for it",
    )


def test_a_lead_that_is_left_out_leads_nothing() -> None:
    reading, _ = submit({"policy": vllm(), "judge": vllm(node_pool="aux")}, TWO_POOLS, policy_model="policy")
    assert reading is not None
    assert "lead" not in reading.spec
    assert spec({"judge": vllm()}, policy_model="typo")["lead"] == "typo"  # which the planner refuses


def test_in_a_job_of_one_node_every_service_is_there() -> None:
    pools = {"gpu": {"nodes": 1, "gpus_per_node": 4}, "aux": {"nodes": 0}}
    found = spec({"policy": vllm(node_pool="gpu"), "judge": vllm(node_pool="aux")}, pools)
    assert ([pool["name"] for pool in found["pools"]], found["services"][1]["pool"]) == (["gpu"], "gpu")


@pytest.mark.parametrize(
    ("service", "pool", "evenly"),
    [
        ({"number_of_instances": 4}, {"nodes": 2, "gpus_per_node": 8}, True),
        ({"number_of_instances": 4}, {"nodes": 1, "gpus_per_node": 8}, False),
        ({"number_of_instances": 4}, {"nodes": "auto", "gpus_per_node": 8}, False),
        ({"number_of_instances": 1}, {"nodes": 2, "gpus_per_node": 8}, False),
        ({"number_of_instances": 4, "use_ray_serve": True}, {"nodes": 2, "gpus_per_node": 8}, False),
        ({"number_of_instances": 2, "tensor_parallel_size": 16}, {"nodes": 4, "gpus_per_node": 8}, False),
        ({"number_of_instances": 4}, {"nodes": 2}, True),
    ],
)
def test_instances_are_spread_evenly_over_nodes_unless_ray_serve_runs_them(
    service: Data, pool: Data, evenly: bool
) -> None:
    assert ("distribute" in services({"policy": vllm(**service)}, {"gpu": pool})["policy"]) == evenly


# --- prefill and decode


def test_tiers_own_their_nodes_and_the_router_takes_none() -> None:
    tiers = {
        "type": "vllm_pd",
        "port": 9000,
        "prefill": {"node_pool": "gpu", "tensor_parallel_size": 4},
        "decode": {"node_pool": "aux", "tensor_parallel_size": 2},
    }
    found = spec({"policy": tiers}, TWO_POOLS, policy_model="policy")
    assert found["lead"] == "policy"
    assert found["services"] == [
        {
            "name": "policy-prefill",
            "kind": "vllm",
            "pool": "gpu",
            "port": 9001,
            "parallelism": {"tensor": 4},
            "exclusiveNodes": True,
        },
        {
            "name": "policy-decode",
            "kind": "vllm",
            "pool": "aux",
            "port": 9002,
            "parallelism": {"tensor": 2},
            "exclusiveNodes": True,
        },
        {"name": "policy", "kind": "router", "pool": "gpu", "gpus": 0, "port": 9000},
    ]


def test_a_server_on_every_node_is_an_instance_per_node() -> None:
    tiers = {"prefill": {"node_pool": "gpu", "tensor_parallel_size": 8}, "decode": {"node_pool": "aux"}}
    found = services({"policy": {"type": "vllm_pd", "server_per_node": True, **tiers}}, TWO_POOLS)
    assert found["policy-prefill"]["parallelism"] == {"tensor": 8, "instances": 2}


def test_tiers_that_are_written_one_by_one_own_their_nodes_too() -> None:
    tiers = {"p": vllm(kv_role="producer"), "d": vllm(kv_role="consumer")}
    assert [each.get("exclusiveNodes") for each in services(tiers).values()] == [True, True]


def test_a_tier_without_a_pool_is_refused() -> None:
    tiers = {"type": "vllm_pd", "prefill": {"node_pool": "gpu"}, "decode": {}}
    assert wrong({"policy": tiers}, TWO_POOLS) == ["services.policy.decode.node_pool: null, expected one of gpu, aux"]


# --- GPUs written by hand


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ("lit:0,2", {"visibleDevices": "0,2"}),
        ("lit:GPU-aa,GPU-bb", {"visibleDevices": "GPU-aa,GPU-bb"}),
        ("host:MINE", {"visibleDevices": "1,3"}),
        ("runtime:THEIRS", {"visibleDevicesFromEnv": "THEIRS"}),
    ],
)
def test_lists_are_taken_from_the_file_the_host_or_the_job(written: str, want: Data) -> None:
    found = services({"policy": vllm(env={"CUDA_VISIBLE_DEVICES": written})}, environment={"MINE": "1,3"})
    assert found["policy"] == {"kind": "vllm", "parallelism": {}, **want}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("0,2", "a value with the prefix lit:, host: or runtime:"),
        ("host:OTHER", "OTHER to be set where the file is read"),
        ("runtime:not a name", "the name of an environment variable behind the prefix"),
    ],
)
def test_a_list_that_cannot_be_known_is_refused(written: str, expected: str) -> None:
    assert wrong({"policy": vllm(env={"CUDA_VISIBLE_DEVICES": written})}) == [
        f'services.policy.env.CUDA_VISIBLE_DEVICES: "{written}", expected {expected}'
    ]


# --- what is wrong


def test_everything_wrong_is_said_at_once() -> None:
    broken = {"a": vllm(node_pool="nowhere"), "b": vllm(env={"CUDA_VISIBLE_DEVICES": "1"})}
    assert [text.partition(":")[0] for text in wrong(broken, TWO_POOLS)] == [
        "services.a.node_pool",
        "services.b.env.CUDA_VISIBLE_DEVICES",
    ]


def test_an_interpolation_is_not_guessed() -> None:
    (said,) = wrong({"policy": vllm(tensor_parallel_size="${oc.env:TP}")})
    assert said.startswith('services.policy.tensor_parallel_size: "${oc.env:TP}"')
    assert said.endswith("hint: write the value itself: interpolations are resolved by Gym only")


@pytest.mark.parametrize(
    "data", [None, [], "text", {}, {"services": {}}, {"services": {"a": 1}, "compute": {}}], ids=str
)
def test_any_other_document_is_refused_with_words(data: object) -> None:
    reading, problems = gym.read(data, {})
    assert reading is None
    assert all(problem.message for problem in problems)
    assert problems


SERVICES = st.fixed_dictionaries(
    {"type": st.sampled_from(["vllm", "vllm_pd", "ray", "router", "other"])},
    optional={
        "node_pool": st.sampled_from(["gpu", "aux", "nowhere"]),
        "node_pools": st.lists(st.sampled_from(["gpu", "aux"]), max_size=2),
        "number_of_instances": st.integers(1, 4),
        "tensor_parallel_size": st.integers(1, 8),
        "share_gpus": st.booleans(),
        "num_gpus": st.integers(0, 2),
        "server_per_node": st.booleans(),
        "prefill": st.just({"node_pool": "gpu"}) | st.just({}),
        "decode": st.just({"node_pool": "aux"}),
        "env": st.just({"CUDA_VISIBLE_DEVICES": "lit:0,1"}) | st.just({"CUDA_VISIBLE_DEVICES": "host:NOBODY"}),
    },
)


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.sampled_from(["a", "b", "c_d"]), SERVICES, min_size=1), st.sampled_from([TWO_POOLS, None]))
def test_a_file_is_a_spec_in_our_words_or_has_something_wrong(found: Data, pools: Data | None) -> None:
    reading, problems = submit(found, pools, policy_model="a")
    assert (reading is None) == bool(problems)
    if reading is not None and reading.spec["services"]:
        model = PlacementSpec.model_validate(reading.spec)
        assert {service.pool for service in model.services} <= {pool.name for pool in model.pools}
        assert not model.lead or "a" not in found or model.lead in {service.name for service in model.services}
