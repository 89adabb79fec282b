"""What `kubectl apply -k` sends: valid for every supported Kubernetes, restricted, and true to the code."""

import copy
from pathlib import Path

import kubernetes_validate
import pytest
from tests.support.cluster.api import ApiStatusError, Object
from tests.support.fleet import Fleet
from tests.support.manifests import CONFIG, DEFAULT, SHARED_LAYOUT, only, overlay, render

from gpusharing import __version__
from gpusharing.api import names
from gpusharing.controller.settings import Settings

PODS = f"/api/v1/namespaces/{names.NAMESPACE}/pods"
OUR_KINDS = {names.POLICY_KIND, names.NODE_KIND}  # their schema is in crds/, and the API server judges them


@pytest.fixture(params=["default", "samples", "renamed", "shared-layout"])
def rendered(request: pytest.FixtureRequest, tmp_path: Path) -> list[Object]:
    folders = {
        "default": lambda: DEFAULT,
        "samples": lambda: CONFIG / "samples",
        "renamed": lambda: overlay(tmp_path, namespace="gpu-tools", namePrefix="my-"),
        "shared-layout": lambda: overlay(tmp_path, components=[SHARED_LAYOUT]),
    }
    return render(folders[request.param]())


@pytest.fixture
def deployment() -> Object:
    return only(render(DEFAULT), "Deployment")


# --- as files


def test_every_manifest_is_valid_in_strict_mode_from_the_oldest_kubernetes_to_the_newest(
    rendered: list[Object],
) -> None:
    assert rendered
    for version in ("1.30", "1.34", "1.37"):
        for document in rendered:
            if document["kind"] not in OUR_KINDS:
                kubernetes_validate.validate(document, version, strict=True)


def test_the_strict_check_finds_a_misspelt_field(deployment: Object) -> None:
    deployment["spec"]["replica"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, "1.34", strict=True)


def test_everything_carries_our_name_and_nothing_is_a_webhook_or_an_api_service(rendered: list[Object]) -> None:
    for document in rendered:
        if document["kind"] not in OUR_KINDS:
            assert document["metadata"]["labels"]["app.kubernetes.io/name"] == "gpu-sharing-operator"
        assert "Webhook" not in document["kind"]
        assert document["kind"] != "APIService"


def test_the_pods_are_those_that_budget_and_network_policy_select(deployment: Object) -> None:
    documents = render(DEFAULT)
    selected = deployment["spec"]["selector"]["matchLabels"]
    assert selected == deployment["spec"]["template"]["metadata"]["labels"]
    assert only(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == selected
    assert only(documents, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == selected
    for spread in deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]:
        assert spread["labelSelector"]["matchLabels"] == selected
        assert spread["whenUnsatisfiable"] == "ScheduleAnyway"


def test_one_replica_may_always_go_and_the_other_serves(deployment: Object) -> None:
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert only(render(DEFAULT), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_the_pod_mounts_no_token_but_one_of_an_hour(deployment: Object) -> None:
    pod = deployment["spec"]["template"]["spec"]
    assert only(render(DEFAULT), "ServiceAccount")["automountServiceAccountToken"] is False
    assert pod["automountServiceAccountToken"] is False
    [volume] = pod["volumes"]
    [token, *_] = volume["projected"]["sources"]
    assert token == {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}


# --- true to the code


def test_the_image_is_the_release_of_this_checkout(deployment: Object) -> None:
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"gpu-sharing-operator:{__version__}"
    assert container["args"] == ["controller"]


@pytest.mark.parametrize("components", [[], [SHARED_LAYOUT]], ids=["per-node", "shared"])
def test_every_environment_variable_is_a_setting_of_the_controller(tmp_path: Path, components: list[Path]) -> None:
    [container] = only(render(overlay(tmp_path, components=components)), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    variables = [variable["name"] for variable in container["env"]]
    assert "GPUSHARING_NAMESPACE" in variables
    known = {f"GPUSHARING_{field.upper()}" for field in Settings.model_fields}
    assert set(variables) <= known


def test_the_probes_ask_the_port_that_the_controller_listens_on(deployment: Object) -> None:
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    [port] = container["ports"]
    assert Settings.model_fields["listen"].default == f":{port['containerPort']}"
    paths = {probe: container[probe]["httpGet"] for probe in ("livenessProbe", "readinessProbe")}
    assert paths == {
        "livenessProbe": {"path": "/livez", "port": port["name"]},
        "readinessProbe": {"path": "/readyz", "port": port["name"]},
    }
    assert only(render(DEFAULT), "NetworkPolicy")["spec"]["ingress"] == [
        {"ports": [{"protocol": "TCP", "port": port["name"]}]}
    ]


def test_the_names_in_the_manifests_are_those_of_the_code() -> None:
    documents = render(DEFAULT)
    assert only(documents, "Namespace")["metadata"]["name"] == names.NAMESPACE
    nodes = only(documents, "ValidatingAdmissionPolicy", "node-writes")
    assert _variable(nodes, "ours") == f"['{names.CONFIG_LABEL}']"
    maps = only(documents, "ValidatingAdmissionPolicy", "configmap-writes")
    assert _variable(maps, "shared") == f"'{names.SHARED_CONFIGMAP}'"
    assert f"request.name.startsWith('{names.RECORD_PREFIX}')" in maps["spec"]["validations"][0]["expression"]


# --- other names


def test_a_renamed_install_takes_every_reference_along(tmp_path: Path) -> None:
    documents = render(overlay(tmp_path, namespace="gpu-tools", namePrefix="my-"))
    account = {"name": "my-gpu-sharing-operator", "namespace": "gpu-tools"}
    for document in documents:
        match document["kind"]:
            case "RoleBinding" | "ClusterRoleBinding":
                assert document["subjects"] == [{"kind": "ServiceAccount", **account}]
                assert document["roleRef"]["name"] == "my-gpu-sharing-operator"
            case "Deployment":
                assert document["spec"]["template"]["spec"]["serviceAccountName"] == account["name"]
            case "ValidatingAdmissionPolicyBinding":
                assert document["spec"]["policyName"] == document["metadata"]["name"]
                assert document["spec"]["paramRef"] == {**account, "parameterNotFoundAction": "Allow"}
    assert names.NAMESPACE not in str(documents)


def test_the_component_of_layout_shared_agrees_with_its_role(tmp_path: Path) -> None:
    base = overlay(tmp_path / "base", namespace="gpu-tools", namePrefix="my-")
    documents = render(overlay(tmp_path / "top", resources=[base], components=[SHARED_LAYOUT]))
    role = only(documents, "Role", "shared-config")
    target, [name] = role["metadata"]["namespace"], role["rules"][1]["resourceNames"]
    binding = only(documents, "RoleBinding", "shared-config")
    fence = only(documents, "ValidatingAdmissionPolicyBinding", "shared-config")["spec"]
    policy = only(documents, "ValidatingAdmissionPolicy", "configmap-writes")
    [container] = only(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    account = {"name": "my-gpu-sharing-operator", "namespace": "gpu-tools"}

    assert binding["metadata"]["namespace"] == target
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    assert fence["matchResources"]["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": target}
    assert fence["paramRef"] == {**account, "parameterNotFoundAction": "Allow"}
    assert fence["policyName"] == policy["metadata"]["name"]
    assert _variable(policy, "shared") == f"'{name}'"
    assert {variable["name"]: variable.get("value") for variable in container["env"]} == {
        "GPUSHARING_NAMESPACE": None,
        "GPUSHARING_LAYOUT": "shared",
        "GPUSHARING_TARGET_NAMESPACE": target,
        "GPUSHARING_TARGET_CONFIGMAP": name,
    }


# --- on the API server


def test_installing_twice_changes_nothing(fleet: Fleet) -> None:
    for _ in range(2):
        fleet.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(DEFAULT))
    assert fleet.cluster.kubectl("diff", "--server-side", "--force-conflicts", "-k", str(DEFAULT)).stdout == ""


def test_the_plain_command_of_the_readme_installs_without_a_warning(fleet: Fleet) -> None:
    done = fleet.cluster.kubectl("apply", "-k", str(DEFAULT), "--dry-run=server")
    complaints = [
        line
        for line in done.stderr.splitlines()
        if "last-applied-configuration" not in line and "version difference" not in line  # the tests' own doing
    ]
    assert complaints == []


def test_the_controllers_pod_is_admitted_where_pods_are_restricted(fleet: Fleet, deployment: Object) -> None:
    namespace = fleet.api.get("/api/v1/namespaces", names.NAMESPACE)
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    pod = {"metadata": {"name": "controller"}, "spec": deployment["spec"]["template"]["spec"]}
    fleet.api.create(PODS, pod, dryRun="All", fieldValidation="Strict")

    privileged = copy.deepcopy(pod)
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(ApiStatusError, match="violates PodSecurity"):
        fleet.api.create(PODS, privileged, dryRun="All")


# --- helpers


def _variable(policy: Object, name: str) -> str:
    [expression] = [variable["expression"] for variable in policy["spec"]["variables"] if variable["name"] == name]
    return str(expression)
