"""What `kubectl apply -k` sends: valid for every supported Kubernetes, restricted, and true to the code."""

import copy
from pathlib import Path

import pytest
from jsonschema import ValidationError
from tests.support.cluster.api import ApiStatusError, Object
from tests.support.fleet import Fleet
from tests.support.manifests import CONFIG, DEFAULT, SHARED_LAYOUT, only, overlay, render, validate

from gpusharing import __version__
from gpusharing.api import names
from gpusharing.controller.settings import Settings
from gpusharing.core.options import NVIDIA
from gpusharing.core.serving import ServedConfig
from gpusharing.deviceplugin.host import CDI_FOLDER
from gpusharing.deviceplugin.settings import OURS, read_settings

NAMESPACES = "/api/v1/namespaces"
PODS = f"/api/v1/namespaces/{names.NAMESPACE}/pods"
CONTROLLER = "gpu-sharing-operator"
PLUGIN_COMPONENTS = [
    CONFIG / "components" / name for name in ("gpu-operator", "runtime-class", "driver-root", "simulated")
]
PLACEMENT_ENV = CONFIG / "components" / "placement-env"
CONTROLLER_COMPONENTS = [CONFIG / "components" / "stale-resources", PLACEMENT_ENV]
OUR_KINDS = {
    names.POLICY_KIND,
    names.NODE_KIND,
    names.PLACEMENT_KIND,
}  # their schema is in crds/, and the API server judges them


@pytest.fixture(params=["default", "samples", "renamed", "components", "plugin-components"], scope="module")
def rendered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    tmp_path = tmp_path_factory.mktemp("overlay")
    folders = {
        "default": lambda: DEFAULT,
        "samples": lambda: CONFIG / "samples",
        "renamed": lambda: overlay(tmp_path, namespace="gpu-tools", namePrefix="my-"),
        "components": lambda: overlay(tmp_path, components=[SHARED_LAYOUT, *CONTROLLER_COMPONENTS]),
        "plugin-components": lambda: overlay(tmp_path, components=PLUGIN_COMPONENTS),
    }
    return render(folders[request.param]())


@pytest.fixture
def deployment() -> Object:
    return only(render(DEFAULT), "Deployment")


@pytest.fixture
def daemonset() -> Object:
    return only(render(DEFAULT), "DaemonSet")


# --- as files


def test_every_manifest_is_valid_in_strict_mode_from_the_oldest_kubernetes_to_the_newest(
    rendered: list[Object],
) -> None:
    assert rendered
    for version in ("1.30", "1.34", "1.37"):
        for document in rendered:
            if document["kind"] not in OUR_KINDS:
                validate(document, version)


def test_the_strict_check_finds_a_misspelt_field(deployment: Object) -> None:
    deployment["spec"]["replica"] = 3
    with pytest.raises(ValidationError, match="'replica' was unexpected"):
        validate(deployment, "1.34")


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
    assert only(documents, "NetworkPolicy", CONTROLLER)["spec"]["podSelector"]["matchLabels"] == selected
    for spread in deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]:
        assert spread["labelSelector"]["matchLabels"] == selected
        assert spread["whenUnsatisfiable"] == "ScheduleAnyway"


def test_one_replica_may_always_go_and_the_other_serves(deployment: Object) -> None:
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert only(render(DEFAULT), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_the_pod_mounts_no_token_but_one_of_an_hour(deployment: Object) -> None:
    pod = deployment["spec"]["template"]["spec"]
    assert only(render(DEFAULT), "ServiceAccount", CONTROLLER)["automountServiceAccountToken"] is False
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
    assert only(render(DEFAULT), "NetworkPolicy", CONTROLLER)["spec"]["ingress"] == [
        {"ports": [{"protocol": "TCP", "port": port["name"]}]}
    ]


def test_the_names_in_the_manifests_are_those_of_the_code() -> None:
    documents = render(DEFAULT)
    assert only(documents, "Namespace")["metadata"]["name"] == names.NAMESPACE
    nodes = only(documents, "ValidatingAdmissionPolicy", "operator-node-writes")
    assert _variable(nodes, "ours") == f"['{names.CONFIG_LABEL}']"
    maps = only(documents, "ValidatingAdmissionPolicy", "configmap-writes")
    assert _variable(maps, "shared") == f"'{names.SHARED_CONFIGMAP}'"
    assert f"request.name.startsWith('{names.RECORD_PREFIX}')" in maps["spec"]["validations"][0]["expression"]
    [rule] = only(documents, "ValidatingAdmissionPolicy", "placement-pods")["spec"]["validations"]
    assert f"k.startsWith('{names.PLACE_DOMAIN}')" in rule["expression"]


# --- the plugin's pod


def test_the_plugin_is_not_privileged_and_has_no_capability(daemonset: Object) -> None:
    pod = daemonset["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod)


def test_no_pod_is_privileged_whatever_component_is_chosen(rendered: list[Object]) -> None:
    for document in rendered:
        if document["kind"] in {"Deployment", "DaemonSet"}:
            assert "privileged: true" not in str(document).lower().replace("'", "")
            assert document["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_the_plugin_writes_on_the_host_only_where_it_must(daemonset: Object) -> None:
    pod = daemonset["spec"]["template"]["spec"]
    on_host = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    [container] = pod["containers"]
    writable = {on_host[mount["name"]] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/var/lib/kubelet/device-plugins", "/var/lib/gpu-sharing", str(CDI_FOLDER)}
    assert set(on_host.values()) - writable == {"/var/lib/kubelet/pod-resources"}


def test_the_driver_root_is_mounted_read_only(tmp_path: Path) -> None:
    daemonset = only(render(overlay(tmp_path, components=[CONFIG / "components" / "driver-root"])), "DaemonSet")
    [container] = daemonset["spec"]["template"]["spec"]["containers"]
    [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == "driver-root"]
    assert mount["readOnly"] is True
    assert mount["mountPath"] == ServedConfig().container_driver_root


@pytest.mark.fault("F07")
def test_no_second_plugin_is_ever_started_beside_the_first(daemonset: Object) -> None:
    assert daemonset["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0


def test_the_plugins_token_lasts_an_hour_and_is_the_only_one(daemonset: Object) -> None:
    account = only(render(DEFAULT), "ServiceAccount", names.PLUGIN)
    assert account["automountServiceAccountToken"] is False
    pod = daemonset["spec"]["template"]["spec"]
    [volume] = [volume for volume in pod["volumes"] if "projected" in volume]
    [token, *_] = volume["projected"]["sources"]
    assert token == {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}


def test_the_plugin_runs_on_gpu_nodes_whatever_taint_they_have_at_their_start(daemonset: Object) -> None:
    pod = daemonset["spec"]["template"]["spec"]
    assert {"operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    assert pod["priorityClassName"] == "system-node-critical"
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    keys = [expression["key"] for term in terms for expression in term["matchExpressions"]]
    assert keys == [names.PCI_LABEL, names.PRESENT_LABEL]


def test_what_the_plugin_is_given_is_what_it_reads(rendered: list[Object]) -> None:
    for daemonset in (document for document in rendered if document["kind"] == "DaemonSet"):
        [container] = daemonset["spec"]["template"]["spec"]["containers"]
        variables = {variable["name"]: variable.get("value", "any") for variable in container["env"]}
        for_others = {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}  # read by the container toolkit
        known = {variable for option in (*NVIDIA, *OURS) for variable in option.variables}
        assert set(variables) - for_others <= known
        settings = read_settings(container["args"][1:], variables)
        assert settings.http_address == f":{container['ports'][0]['containerPort']}"
        assert container["args"][0] == "device-plugin"
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert str(Path(settings.kubelet_socket).parent) in mounts
        assert str(Path(settings.pod_resources_socket).parent) in mounts
        assert settings.state_dir in mounts
        assert not settings.inventory or settings.inventory in mounts


def test_the_simulated_inventory_is_beside_the_plugin_also_in_a_renamed_install(tmp_path: Path) -> None:
    base = overlay(tmp_path / "base", namespace="gpu-tools", namePrefix="my-")
    documents = render(overlay(tmp_path / "top", resources=[base], components=[CONFIG / "components" / "simulated"]))
    inventories, daemonset = only(documents, "ConfigMap", "inventories"), only(documents, "DaemonSet")
    assert inventories["metadata"]["namespace"] == daemonset["metadata"]["namespace"] == "gpu-tools"
    mounted = [
        volume["configMap"]["name"]
        for volume in daemonset["spec"]["template"]["spec"]["volumes"]
        if "configMap" in volume
    ]
    assert mounted == [inventories["metadata"]["name"]]
    assert list(inventories["data"]) == ["default.yaml"]


# --- other names


@pytest.mark.parametrize("component", ["controller", "device-plugin"])
def test_a_renamed_install_takes_every_reference_along(tmp_path: Path, component: str) -> None:
    documents = render(overlay(tmp_path, namespace="gpu-tools", namePrefix="my-"))
    was = names.COMPONENT if component == "controller" else names.PLUGIN
    account, found = {"name": f"my-{was}", "namespace": "gpu-tools"}, set()
    for document in documents:
        if not document["metadata"]["name"].startswith(f"my-{was}"):
            continue
        found.add(document["kind"])
        match document["kind"]:
            case "RoleBinding" | "ClusterRoleBinding":
                assert document["subjects"] == [{"kind": "ServiceAccount", **account}]
                assert document["roleRef"]["name"] == account["name"]
            case "Deployment" | "DaemonSet":
                assert document["spec"]["template"]["spec"]["serviceAccountName"] == account["name"]
            case "ValidatingAdmissionPolicyBinding":
                assert document["spec"]["policyName"] == document["metadata"]["name"]
                if "paramRef" in document["spec"]:
                    assert document["spec"]["paramRef"] == {**account, "parameterNotFoundAction": "Allow"}
                else:
                    selected = document["spec"]["matchResources"]["namespaceSelector"]["matchLabels"]
                    assert selected == {"kubernetes.io/metadata.name": "gpu-tools"}
    assert {"RoleBinding", "ClusterRoleBinding", "ServiceAccount", "ValidatingAdmissionPolicyBinding"} <= found
    assert names.NAMESPACE not in str(documents)


def test_the_components_of_layout_shared_and_of_env_agree_with_the_install_below(tmp_path: Path) -> None:
    base = overlay(tmp_path / "base", namespace="gpu-tools", namePrefix="my-")
    documents = render(overlay(tmp_path / "top", resources=[base], components=[SHARED_LAYOUT, PLACEMENT_ENV]))
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
    for_env = only(documents, "ValidatingAdmissionPolicyBinding", "placement-env")["spec"]
    assert for_env["paramRef"] == fence["paramRef"]
    assert only(documents, "ClusterRoleBinding", "placement-env")["subjects"] == binding["subjects"]
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
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    fleet.api.create(NAMESPACES, {"metadata": {"name": "restricted-pods", "labels": restricted}})
    fleet.api.create(f"{NAMESPACES}/restricted-pods/serviceaccounts", {"metadata": {"name": CONTROLLER}})
    pods = f"{NAMESPACES}/restricted-pods/pods"
    pod = {"metadata": {"name": "controller"}, "spec": deployment["spec"]["template"]["spec"]}
    fleet.api.create(pods, pod, dryRun="All", fieldValidation="Strict")

    privileged = copy.deepcopy(pod)
    privileged["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(ApiStatusError, match="violates PodSecurity"):
        fleet.api.create(pods, privileged, dryRun="All")


def test_the_plugins_pod_is_admitted_in_our_namespace(fleet: Fleet, daemonset: Object) -> None:
    pod = {"metadata": {"name": "plugin"}, "spec": daemonset["spec"]["template"]["spec"]}
    fleet.api.create(PODS, pod, dryRun="All", fieldValidation="Strict")


# --- helpers


def _variable(policy: Object, name: str) -> str:
    [expression] = [variable["expression"] for variable in policy["spec"]["variables"] if variable["name"] == name]
    return str(expression)
