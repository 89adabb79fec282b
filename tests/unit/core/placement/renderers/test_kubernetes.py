"""Patches: the resource of the service on its container, and nothing that is the user's."""

from typing import Any

import pytest
import yaml
from tests.support.placements import expected_job

from gpusharing.core.placement.renderers import kubernetes


def patches(case: str, **wanted: Any) -> dict[str, Any]:
    return {file.path: yaml.safe_load(file.text) for file in kubernetes.render(expected_job(case, **wanted))}


def limits(patch: Any) -> Any:
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    return container["resources"]["limits"]


def test_a_deployment_gets_its_limit_its_labels_and_no_surge() -> None:
    assert patches("P01")["policy.patch.yaml"] == {
        "spec": {
            "strategy": {"rollingUpdate": {"maxSurge": 0}},
            "template": {
                "metadata": {
                    "labels": {"gpusharing.io/placement": "rl-eval", "gpusharing.io/service": "policy"},
                },
                "spec": {
                    "containers": [
                        {
                            "name": "policy",
                            "resources": {"limits": {"place.gpusharing.io/policy.rl-eval.team-a": "2"}},
                        }
                    ]
                },
            },
        }
    }


@pytest.mark.parametrize("workload", ["statefulset", "pod"])
def test_only_a_deployment_can_surge(workload: str) -> None:
    patch = patches("P01", workload=workload, container="main")["policy.patch.yaml"]
    pod = patch if workload == "pod" else patch["spec"]["template"]
    assert "strategy" not in patch["spec"]
    assert pod["spec"]["containers"][0]["name"] == "main"


def test_a_service_without_gpus_sees_none() -> None:
    patch = patches("P22 tiers")["router.patch.yaml"]
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container == {"name": "router", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]}
    assert "strategy" not in patch["spec"]


def test_whole_nodes_have_a_name_and_a_patch_per_rank() -> None:
    written = patches("P16")
    assert [path for path in written if path.startswith("giant")] == ["giant.r0.patch.yaml", "giant.r1.patch.yaml"]
    assert limits(written["giant.r1.patch.yaml"]) == {"place.gpusharing.io/giant.r1.rl-eval.team-a": "4"}


def test_instances_share_a_name_and_ask_for_one_instance_each() -> None:
    written = patches("Q34")
    assert limits(written["x.patch.yaml"]) == {"place.gpusharing.io/x.rl-eval.team-a": "4"}
    (text,) = (file.text for file in kubernetes.render(expected_job("Q34")) if file.path == "x.patch.yaml")
    assert text.splitlines()[1] == "# One pod for each of the 3 instances: set replicas to 3."


def test_a_fraction_counts_gpus() -> None:
    assert limits(patches("P48")["llm.patch.yaml"]) == {"place.gpusharing.io/llm.rl-eval.team-a": "2"}


def test_who_shares_has_a_name_of_its_own() -> None:
    assert limits(patches("P50")["embed.patch.yaml"]) == {"place.gpusharing.io/embed.rl-eval.team-a": "1"}
