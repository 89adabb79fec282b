"""The test cluster itself: it is the real thing, and it leaves nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.cluster import Cluster, ClusterError, ControlPlane, start_cluster
from tests.support.cluster.api import NODES, Api, ApiStatusError, config_maps
from tests.support.cluster.binaries import kubernetes_version
from tests.support.cluster.cleaning import remove_leftovers
from tests.support.eventually import eventually

REPOSITORY = Path(__file__).parents[2]
SERVICE_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"

START_A_CLUSTER = """
from tests.support.cluster.local import LocalCluster
print(LocalCluster.start().kubeconfig.parent, flush=True)
input()
"""

START_A_SLEEPER = """
import tempfile
from pathlib import Path
from tests.support.cluster.keeper import Keeper
folder = Path(tempfile.mkdtemp(prefix="gpusharing-cluster-"))
sleeper = Keeper(folder).start(["sleep", "1000"], folder / "sleep.log")
print(folder, flush=True)
input()
"""


def test_the_server_is_the_kubernetes_that_go_mod_pins(api: Api) -> None:
    assert api.raw("GET", "/version")["gitVersion"] == kubernetes_version()


def test_kubectl_acts_as_the_administrator(clean_cluster: Cluster) -> None:
    got = clean_cluster.kubectl("auth", "can-i", "*", "*", "--all-namespaces").stdout
    assert got.strip() == "yes"


def test_a_failing_kubectl_shows_its_words(cluster: Cluster) -> None:
    with pytest.raises(AssertionError, match='nodes "nobody" not found'):
        cluster.kubectl("get", "node", "nobody")


def test_a_service_account_has_only_the_rights_that_rbac_gives_it(clean_cluster: Cluster, api: Api) -> None:
    with _service_account(api, "visitor"), Api(clean_cluster.kubeconfig_for("visitor", "default")) as visitor:
        review = {"spec": {}}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        user = visitor.raw("POST", path, review)["status"]["userInfo"]["username"]
        assert user == "system:serviceaccount:default:visitor"
        with pytest.raises(ApiStatusError, match="cannot list resource") as refusal:
            visitor.list("/api/v1/namespaces/default/secrets")
        assert refusal.value.status == 403


def test_a_stopped_api_server_refuses_connections_and_comes_back_with_its_data(
    control_plane: ControlPlane, api: Api
) -> None:
    created = api.create(NODES, {"metadata": {"name": "gpu-a"}})

    control_plane.stop_api()
    with pytest.raises(ConnectionRefusedError):
        api.get(NODES, "gpu-a")

    control_plane.start_api()
    assert api.get(NODES, "gpu-a")["metadata"]["uid"] == created["metadata"]["uid"]


def test_a_paused_api_server_answers_nothing_until_it_is_resumed(control_plane: ControlPlane) -> None:
    with Api(control_plane.kubeconfig, timeout=0.5) as impatient:
        control_plane.pause_api()
        with pytest.raises(TimeoutError):
            impatient.list(NODES)
        control_plane.resume_api()
        eventually_lists = eventually(lambda: _listed(impatient), what="the resumed API server answers")
    assert eventually_lists == []


def test_a_watch_delivers_events_as_they_happen(api: Api, clean_cluster: Cluster) -> None:
    with Api(clean_cluster.kubeconfig) as watcher:
        events = watcher.watch(NODES)
        api.create(NODES, {"metadata": {"name": "gpu-a"}})
        first = next(events)
        events.close()
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "gpu-a")


def test_leftovers_of_earlier_tests_are_removed_even_with_finalizers(api: Api) -> None:
    api.create(NODES, {"metadata": {"name": "gpu-a", "finalizers": ["example.com/never"]}})
    api.create(config_maps("default"), {"metadata": {"name": "gpusharing-gpu-a"}})

    remove_leftovers(api)

    assert api.list(NODES) == []
    assert api.list(config_maps("default")) == []


def test_a_node_with_a_kubelet_is_not_taken_for_a_leftover(api: Api) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    for name in ("real", "made-by-a-test"):
        api.create(NODES, {"metadata": {"name": name}})
    api.create(leases, {"metadata": {"name": "real"}})
    try:
        remove_leftovers(api)
        assert [node["metadata"]["name"] for node in api.list(NODES)] == ["real"]
    finally:
        api.delete(leases, "real")


@pytest.mark.parametrize("provider", ["minikube", "Local"])
def test_an_unknown_provider_is_refused_with_the_known_ones(provider: str) -> None:
    with pytest.raises(ClusterError, match=f"'{provider}', expected `local`, `kind` or `existing`"):
        start_cluster({"GPUSHARING_CLUSTER": provider})


@pytest.mark.parametrize("named", ["", "prod"])
def test_an_existing_cluster_is_refused_unless_its_context_is_named(cluster: Cluster, named: str) -> None:
    environment = {"KUBECONFIG": str(cluster.kubeconfig), "GPUSHARING_CONTEXT": named}
    with pytest.raises(ClusterError, match=f"context is 'test', GPUSHARING_CONTEXT is '{named}'"):
        start_cluster({"GPUSHARING_CLUSTER": "existing", **environment})


def test_an_existing_cluster_is_used_when_its_context_is_named_and_outlives_the_tests(cluster: Cluster) -> None:
    environment = {"KUBECONFIG": str(cluster.kubeconfig), "GPUSHARING_CONTEXT": "test"}
    found = start_cluster({"GPUSHARING_CLUSTER": "existing", **environment})
    try:
        assert found.server == cluster.server
        with Api(found.kubeconfig) as api:
            assert api.raw("GET", "/readyz") == {"text": "ok"}
    finally:
        found.stop()
    assert not found.kubeconfig.exists()
    assert cluster.kubeconfig.exists()
    assert cluster.kubectl("get", "--raw", "/readyz").stdout == "ok"


def test_a_cluster_ends_with_the_process_that_started_it() -> None:
    with _owner(START_A_CLUSTER) as (owner, folder):
        assert {"etcd", "kube-apiserver"} <= _programs_in(folder)
        os.killpg(owner.pid, signal.SIGKILL)
        eventually(lambda: _is_gone(folder), what="etcd, kube-apiserver and their folder are gone")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_a_kept_process_and_its_folder_go_however_the_owner_ends(how: signal.Signals) -> None:
    with _owner(START_A_SLEEPER) as (owner, folder):
        os.killpg(owner.pid, how)  # the whole group, as Ctrl-C does
        eventually(lambda: _is_gone(folder), what="the sleeper and its folder are gone")


def _listed(api: Api) -> list[dict]:
    try:
        return api.list(NODES)
    except (TimeoutError, ApiStatusError) as error:
        raise AssertionError(error) from error


@contextmanager
def _service_account(api: Api, name: str) -> Iterator[None]:
    api.create(SERVICE_ACCOUNTS, {"metadata": {"name": name}})
    yield
    api.delete(SERVICE_ACCOUNTS, name)


@contextmanager
def _owner(script: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that runs `script`, which prints the folder of what it started; and that folder."""
    owner = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with owner:
        try:
            assert owner.stdout
            yield owner, owner.stdout.readline().strip()
        finally:
            owner.kill()


def _programs_in(folder: str) -> set[str]:
    """The names of the programs that have the folder in their command line."""
    programs = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            command = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if any(folder in argument for argument in command):
                programs.add(Path(command[0]).name)
    return programs


def _is_gone(folder: str) -> None:
    assert folder
    assert _programs_in(folder) == set()
    assert not Path(folder).exists()
