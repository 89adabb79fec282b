"""The plugin's pod has the fewest rights that work: without any one of them it says what it cannot do any more."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy

import pytest
from tests.support.cluster.api import Object
from tests.support.cluster.kind.product import DAEMON_SETS, OUR_PODS, PATIENCE, PLUGIN, Product
from tests.support.cluster.kind.provider import WORKERS
from tests.support.eventually import eventually

pytestmark = [pytest.mark.several_nodes, pytest.mark.timeout(1800)]
NODE = WORKERS[0]
CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/gpu-sharing-system/roles"


class Rights:
    """What the plugin may do and see, to be taken away one by one; the plugin of one node is made anew each time."""

    def __init__(self, product: Product) -> None:
        self.product = product
        self._objects = {path: product.api.get(path, PLUGIN) for path in (CLUSTER_ROLES, ROLES, DAEMON_SETS)}

    def change(self, path: str = DAEMON_SETS, how: Callable[[Object], None] = lambda obj: None) -> None:
        """Have everything as it was installed, but for this change of one object."""
        for each, installed in self._objects.items():
            wanted = deepcopy(installed)
            if each == DAEMON_SETS:
                wanted["spec"]["updateStrategy"] = {"type": "OnDelete"}
            if each == path:
                how(wanted)
            wanted["metadata"].pop("resourceVersion")
            self.product.api.replace(each, wanted)

    def restart(self) -> None:
        """Have the node's plugin made anew."""
        before = self.product.plugin_on(NODE)["metadata"]
        self.product.api.delete(OUR_PODS, before["name"])

        def made() -> None:
            assert self.product.plugin_on(NODE)["metadata"]["uid"] != before["uid"]

        eventually(made, within=PATIENCE, what="there is another pod")

    @contextmanager
    def something_to_tell(self) -> Iterator[None]:
        """In this block the node asks for a config that is not there: the plugin looks for it and reports that."""
        self.product.fleet.set_config_label(NODE, "not-there")
        try:
            yield
        finally:
            self.product.fleet.set_config_label(NODE, None)

    def says(self, words: str) -> None:
        """Wait until the node's plugin says these words, in its log or in the report of its node."""

        def check() -> None:
            name = self.product.plugin_on(NODE)["metadata"]["name"]
            here = ("--namespace=gpu-sharing-system", "--tail=200")
            log = self.product.cluster.kubectl("logs", name, *here, check=False).stdout.replace('\\"', '"')  # JSON
            told = log + "".join(each["message"] for each in self.product.fleet.report(NODE).get("conditions", []))
            assert words in told, told

        eventually(check, within=PATIENCE, what=f"the plugin says {words!r}")


@pytest.fixture(scope="module")
def installed_rights(installed_product: Product) -> Iterator[Rights]:
    """The product's rights; all of them are there again afterwards."""
    installed_product.repair()
    yield Rights(installed_product)
    installed_product.install()


@pytest.fixture
def product(installed_product: Product) -> Product:
    """The product as it is installed."""
    installed_product.repair()
    return installed_product


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
def test_without_a_mount_it_says_what_it_cannot_do(installed_rights: Rights, mount: str, said: str) -> None:
    def drop(daemon_set: Object) -> None:
        [container] = daemon_set["spec"]["template"]["spec"]["containers"]
        container["volumeMounts"] = [each for each in container["volumeMounts"] if each["name"] != mount]

    installed_rights.change(DAEMON_SETS, drop)
    installed_rights.restart()
    installed_rights.says(said)


def test_without_being_root_it_cannot_reach_the_kubelets_folder(installed_rights: Rights) -> None:
    def drop(daemon_set: Object) -> None:
        daemon_set["spec"]["template"]["spec"]["securityContext"] |= {"runAsUser": 65532, "runAsGroup": 65532}

    installed_rights.change(DAEMON_SETS, drop)
    installed_rights.restart()
    installed_rights.says("ermission denied")


@pytest.mark.parametrize("resource", ["nodes", "nodes/status", "gpunodes", "gpunodes/status", "events", "configmaps"])
def test_without_a_rule_it_is_refused_what_it_asks_for(installed_rights: Rights, resource: str) -> None:
    def drop(role: Object) -> None:
        role["rules"] = [rule for rule in role["rules"] if resource not in rule["resources"]]

    installed_rights.change(ROLES if resource == "configmaps" else CLUSTER_ROLES, drop)
    installed_rights.restart()
    with installed_rights.something_to_tell():
        installed_rights.says(f'resource "{resource}"')
