"""The plugin's pod has the fewest rights that work: without any one of them it says what it cannot do any more."""

from collections.abc import Callable, Iterator

import pytest
from tests.support.cluster.api import Object
from tests.support.cluster.kind.product import DAEMON_SETS, PLUGIN, Product
from tests.support.cluster.kind.provider import WORKERS
from tests.support.eventually import eventually

pytestmark = [pytest.mark.several_nodes, pytest.mark.timeout(900)]
CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/gpu-sharing-system/roles"


@pytest.fixture
def product(installed_product: Product) -> Iterator[Product]:
    """The product, which has all its rights again afterwards."""
    installed_product.repair()
    yield installed_product
    installed_product.install()


def test_the_pod_is_not_privileged_and_sees_no_other_part_of_the_host(product: Product) -> None:
    for node in WORKERS:
        pod = product.plugin_on(node)["spec"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        [container] = pod["containers"]
        context = container["securityContext"]
        assert not context.get("privileged")
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        mounted = {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
        kubelet = "/var/lib/kubelet"
        assert mounted == {
            f"{kubelet}/device-plugins",
            f"{kubelet}/pod-resources",
            "/var/lib/gpu-sharing",
            "/var/run/cdi",
        }


@pytest.mark.parametrize(
    ("mount", "said"),
    [
        ("device-plugins", "the kubelet's folder is gone"),
        ("pod-resources", "cannot read the kubelet's pod resources"),
        ("state", "what is served may be lost with a restart"),
        ("token", "the kubeconfig in $KUBECONFIG or ~/.kube/config cannot be used"),
    ],
)
def test_without_a_mount_it_says_what_it_cannot_do(product: Product, mount: str, said: str) -> None:
    def drop(spec: Object) -> None:
        [container] = spec["containers"]
        container["volumeMounts"] = [each for each in container["volumeMounts"] if each["name"] != mount]

    _change_pods(product, drop)
    _says(product, said)


def test_without_being_root_it_cannot_reach_the_kubelets_folder(product: Product) -> None:
    def drop(spec: Object) -> None:
        spec["securityContext"] |= {"runAsUser": 65532, "runAsGroup": 65532}

    _change_pods(product, drop)
    _says(product, "ermission denied")


@pytest.mark.parametrize("resource", ["nodes", "nodes/status", "gpunodes", "gpunodes/status", "events", "configmaps"])
def test_without_a_rule_it_is_refused_what_it_asks_for(product: Product, resource: str) -> None:
    collection = ROLES if resource == "configmaps" else CLUSTER_ROLES
    role = product.api.get(collection, PLUGIN)
    role["rules"] = [rule for rule in role["rules"] if resource not in rule["resources"]]
    product.api.replace(collection, role)
    _change_pods(product, lambda spec: None)
    _says(product, f'resource "{resource}"')


def _change_pods(product: Product, change: Callable[[Object], None]) -> None:
    """Change the DaemonSet's pods, and have one made anew."""
    workload = product.api.get(DAEMON_SETS, PLUGIN)
    template = workload["spec"]["template"]
    change(template["spec"])
    template["metadata"].setdefault("annotations", {})["test"] = str(workload["metadata"]["generation"])
    product.api.replace(DAEMON_SETS, workload)


def _says(product: Product, words: str) -> None:
    """Wait until a pod of the newest template says these words, in its log or in the report of its node."""

    def check() -> None:
        told = [_told(product, pod) for pod in product.newest_plugins()]
        assert any(words in each for each in told), "\n\n".join(told)

    eventually(check, within=120, what=f"the plugin says {words!r}")


def _told(product: Product, pod: Object) -> str:
    namespaced = ("--namespace=gpu-sharing-system", "--tail=200")
    log = product.cluster.kubectl("logs", pod["metadata"]["name"], *namespaced, check=False).stdout
    report = product.fleet.report(pod["spec"]["nodeName"])
    return log + "".join(condition["message"] for condition in report.get("conditions", []))
