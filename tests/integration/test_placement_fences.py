"""The fences around placements: whose GPUs a pod may ask for, and who writes what of a `GpuNode` and of ConfigMaps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.support.cluster.api import GPU_NODES, Api, ApiStatusError, Object, config_maps, placements, pods
from tests.support.eventually import eventually
from tests.support.fleet import Fleet
from tests.support.manifests import CONFIG, SHARED_LAYOUT, overlay, render
from tests.support.placements import request_of
from tests.support.plugintokens import token_of_node

from gpusharing.api import names

NAMESPACES = "/api/v1/namespaces"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
OWN = "place.gpusharing.io/policy.rl-eval.team-a"
THEIRS = "place.gpusharing.io/policy.rl-eval.team-b"
NOT_YOURS = "only in the namespace of the placement"
RESERVATION = {
    "resource": OWN,
    "placement": "team-a/rl-eval",
    "service": "policy",
    "gpus": ["GPU-1", "GPU-2"],
    "exclusive": True,
}


@pytest.fixture
def team(fleet: Fleet) -> str:
    """Namespace `team-a`, in which pods can be created; returns the path of its pods."""
    make_namespace(fleet, "team-a")
    where = pods("team-a")
    asks = partial(fleet.api.create, where, asking(THEIRS), dryRun="All")
    eventually(lambda: must_say(NOT_YOURS, asks), what="the fence of the pods is in force")
    return where


# --- pods


def asking(resource: str, amount: int | str = 1, *, where: str = "containers", part: str = "limits") -> Object:
    """A pod with a container that asks for so much of the resource, and another that asks for nothing."""
    asks = {"name": "asks", "image": "example", "resources": {part: {resource: str(amount)}}}
    containers = {"containers": [{"name": "main", "image": "example"}]}
    return {"metadata": {"name": "tried"}, "spec": {**containers, where: [*containers.get(where, []), asks]}}


@pytest.mark.parametrize("resource", [THEIRS, "place.gpusharing.io/x.my-team-a", "place.gpusharing.io/team-a"])
def test_no_pod_of_another_namespace_may_ask_for_a_placements_gpus(fleet: Fleet, team: str, resource: str) -> None:
    for where in ("containers", "initContainers"):
        with pytest.raises(ApiStatusError, match=NOT_YOURS) as refusal:
            fleet.api.create(team, asking(resource, where=where), dryRun="All")
        assert refusal.value.status == 403, where


def test_pods_of_the_placements_namespace_may_and_all_others_are_let_alone(fleet: Fleet, team: str) -> None:
    both = asking(OWN)
    both["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    bare = {"metadata": {"name": "tried"}, "spec": {"containers": [{"name": "main", "image": "example"}]}}
    empty = {"metadata": {"name": "tried"}, "spec": {"containers": [{"name": "a", "image": "b", "resources": {}}]}}
    for pod in (asking(OWN), asking(OWN, where="initContainers"), both, bare, empty, asking("nvidia.com/gpu", 4)):
        fleet.api.create(team, pod, dryRun="All")


def test_the_api_server_itself_refuses_a_request_without_a_limit_and_whatever_would_change_one(
    fleet: Fleet, team: str
) -> None:
    """Why the fence looks at limits only, and at the creation of pods only."""
    with pytest.raises(ApiStatusError, match="Limit must be set"):
        fleet.api.create(team, asking(THEIRS, part="requests"), dryRun="All")
    of_the_pod = {"containers": asking(OWN)["spec"]["containers"][:1], "resources": {"limits": {THEIRS: "1"}}}
    with pytest.raises(ApiStatusError, match=r"supported values|Unsupported value") as refusal:
        fleet.api.create(team, {"metadata": {"name": "tried"}, "spec": of_the_pod}, dryRun="All")
    fleet.api.create(team, asking("nvidia.com/gpu"))
    stolen = asking(THEIRS)["spec"]
    debugging = {"spec": {"ephemeralContainers": [{**stolen["containers"][1], "name": "debug"}]}}
    strategic = {"content_type": "application/strategic-merge-patch+json", "dryRun": "All"}
    for part, change in (("", {"spec": stolen}), ("/resize", {"spec": stolen}), ("/ephemeralcontainers", debugging)):
        with pytest.raises(ApiStatusError, match=r"orbidden|nvalid") as refusal:
            fleet.api.raw("PATCH", f"{team}/tried{part}", change, **strategic)
        assert refusal.value.status == 422, part
    fleet.api.raw("DELETE", f"{team}/tried", gracePeriodSeconds="0")


def test_a_pod_of_fifty_containers_is_within_the_cost_that_the_api_server_allows(fleet: Fleet, team: str) -> None:
    limits = {f"place.gpusharing.io/{n:02}.{'p' * 40}.team-a": "1" for n in range(10)}
    several = [
        {"name": f"c{n}", "image": "example", "resources": {"limits": limits, "requests": limits}} for n in range(50)
    ]
    fleet.api.create(team, {"metadata": {"name": "tried"}, "spec": {"containers": several}}, dryRun="All")


# --- GpuNode


@pytest.fixture
def ours(fleet: Fleet, account: Path) -> Iterator[Api]:
    """A client of the controller's account, and a `GpuNode` of node `gpu-a`; the fence is in force."""
    fleet.node("gpu-a")
    fleet.api.create(GPU_NODES, gpu_node())
    labels = {"metadata": {"labels": {"a": "b"}}}
    with Api(account) as api:
        merge = {"content_type": "application/merge-patch+json", "dryRun": "All"}
        changing = partial(api.raw, "PATCH", f"{GPU_NODES}/gpu-a", labels, **merge)
        eventually(lambda: must_say(ONLY_RESERVATIONS, changing), what="the fence of the GpuNodes is in force")
        yield api


ONLY_OWNED = "only ConfigMaps named <placement>.<service> that belong to a GpuPlacement"
ONLY_RESERVATIONS = "only spec.reservations of a GpuNode that is there may change"


def test_the_controller_writes_what_is_reserved_on_a_node_and_nothing_else(fleet: Fleet, ours: Api) -> None:
    for reservations in ([RESERVATION], []):
        said = {**gpu_node(), "spec": {"reservations": reservations}}
        ours.apply(GPU_NODES, said, field_manager=names.PLACEMENT_FIELD_MANAGER)
        assert fleet.api.get(GPU_NODES, "gpu-a")["spec"]["reservations"] == reservations
    before = fleet.api.get(GPU_NODES, "gpu-a")
    owner = {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "b"}
    for change in (
        {"labels": {"a": "b"}},
        {"annotations": {"a": "b"}},
        {"finalizers": ["example.com/a"]},
        {"ownerReferences": [owner]},
    ):
        with pytest.raises(ApiStatusError, match=ONLY_RESERVATIONS) as refusal:
            ours.patch(GPU_NODES, "gpu-a", {"metadata": change})
        assert refusal.value.status == 403
    with pytest.raises(ApiStatusError, match="cannot create resource"):
        ours.apply(GPU_NODES, gpu_node("gpu-b"), field_manager=names.PLACEMENT_FIELD_MANAGER)
    assert fleet.api.get(GPU_NODES, "gpu-a") == before


def test_a_plugin_never_writes_what_is_reserved_not_even_on_its_own_node(fleet: Fleet, ours: Api) -> None:
    reserving = {"spec": {"reservations": [RESERVATION]}}
    ours.patch(GPU_NODES, "gpu-a", reserving)
    with Api(token_of_node(fleet, "gpu-a")) as plugin:
        for change in ({"spec": {"reservations": []}}, {"spec": None}, {"spec": {"reservations": None}}):
            assert "may not write the spec of a GpuNode" in refusal_of(
                partial(plugin.patch, GPU_NODES, "gpu-a", change)
            )
        report = {**gpu_node(), "status": {"reservationsObservedGeneration": 2}}
        plugin.apply(GPU_NODES, report, field_manager=names.PLUGIN, force=True, subresource="status")
        plugin.apply(GPU_NODES, gpu_node(), field_manager=names.PLUGIN, force=True)
        assert fleet.api.get(GPU_NODES, "gpu-a")["spec"] == reserving["spec"]

        fleet.api.delete(GPU_NODES, "gpu-a")
        made = {**gpu_node(), **reserving}
        assert "may not write the spec" in refusal_of(
            lambda: plugin.apply(GPU_NODES, made, field_manager=names.PLUGIN, force=True)
        )
        plugin.apply(GPU_NODES, gpu_node(), field_manager=names.PLUGIN, force=True)


# --- people


def test_an_editor_of_a_namespace_writes_no_placements_until_somebody_gives_him_the_role(fleet: Fleet) -> None:
    make_namespace(fleet, "team-a")
    where = placements("team-a")
    made = placement("tried", "team-a")
    # what `edit` and `admin` are made of where a controller puts them together
    for role in ("system:aggregate-to-edit", "system:aggregate-to-admin", "gpu-sharing-editor"):
        with bound(fleet, role, "team-a") as person:
            assert "cannot create resource" in refusal_of(lambda: person.create(where, made, dryRun="All")), role
    with bound(fleet, "gpu-sharing-placement-editor", "team-a") as person:
        person.create(where, made)
        person.patch(where, "tried", {"spec": {"gpuOrder": "aligned"}})
        assert "cannot patch resource" in refusal_of(
            lambda: person.patch(where, "tried", {"status": {"planHash": "mine"}}, subresource="status")
        )
        assert "cannot create resource" in refusal_of(lambda: person.create(placements("default"), placement("tried")))
        person.delete(where, "tried")
    with bound(fleet, "gpu-sharing-viewer", "team-a") as person:
        assert person.list(where) == []


def test_what_the_controller_does_with_placements_is_allowed(fleet: Fleet, ours: Api) -> None:
    where = placements("default")
    fleet.api.create(where, placement("tried"))
    assert [each["metadata"]["name"] for each in ours.list("/apis/gpusharing.io/v1alpha1/gpuplacements")] == ["tried"]
    ours.patch(where, "tried", {"status": {"planHash": "6d1f"}}, subresource="status")
    assert isinstance(ours.list("/api/v1/resourcequotas"), list)
    assert ours.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "gpuplacements.gpusharing.io")


# --- ConfigMaps of `enforcement: env`


@pytest.fixture
def for_env(fleet: Fleet, account: Path, tmp_path: Path) -> Iterator[Api]:
    """A client of the controller's account with the components `placement-env` and `shared-layout` in force."""
    make_namespace(fleet, "gpu-operator")
    components = [SHARED_LAYOUT, CONFIG / "components" / "placement-env"]
    documents = render(overlay(tmp_path, components=components))
    added = [each for each in documents if each["metadata"]["name"].endswith(("-placement-env", "-shared-config"))]
    for document in added:
        fleet.api.create(collection_of(document), document)
    with Api(account) as api:
        foreign = {"metadata": {"name": "probe"}}
        where = config_maps("default")
        eventually(
            lambda: must_say(ONLY_OWNED, lambda: api.create(where, foreign, dryRun="All")), what="the fence is in force"
        )
        yield api
    for document in added:
        fleet.api.delete(collection_of(document), document["metadata"]["name"])


def test_for_env_the_controller_writes_configmaps_that_a_placement_owns_and_no_others(
    fleet: Fleet, for_env: Api
) -> None:
    made = fleet.api.create(placements("default"), placement("rl-eval"))
    mine, other = owned(made), owned({**made, "metadata": {**made["metadata"], "name": "other"}})
    where = config_maps("default")
    for_env.apply(where, mine, field_manager=names.PLACEMENT_FIELD_MANAGER)
    for_env.apply(where, {**mine, "data": {"gpu-a": "2"}}, field_manager=names.PLACEMENT_FIELD_MANAGER)
    assert fleet.api.get(where, "rl-eval.policy")["data"] == {"gpu-a": "2"}
    anew = owned({**made, "metadata": {**made["metadata"], "uid": "of-the-next-one"}})
    for_env.apply(where, anew, field_manager=names.PLACEMENT_FIELD_MANAGER)

    fleet.api.create(where, {"metadata": {"name": "rl-eval.theirs"}, "data": {"a": "1"}})
    stolen = {**mine, "metadata": {**mine["metadata"], "name": "rl-eval.theirs"}}
    for attempt in (
        lambda: for_env.patch(where, "rl-eval.theirs", {"data": {"a": "2"}}),
        lambda: for_env.create(where, {**other, "metadata": {**other["metadata"], "name": "rl-eval.judge"}}),
        lambda: for_env.apply(where, stolen, field_manager=names.PLACEMENT_FIELD_MANAGER, force=True),
        lambda: for_env.patch(where, "rl-eval.policy", {"metadata": {"ownerReferences": None}}),
        lambda: for_env.create(where, {"metadata": {"name": names.SHARED_CONFIGMAP}}),
    ):
        must_say(ONLY_OWNED, attempt)
    assert "cannot delete resource" in refusal_of(lambda: for_env.delete(where, "rl-eval.policy"))


def test_with_the_right_for_env_the_fences_of_the_other_configmaps_hold_as_before(fleet: Fleet, for_env: Api) -> None:
    made = fleet.api.create(placements("default"), placement("rl-eval"))
    own, theirs = config_maps(names.NAMESPACE), config_maps("gpu-operator")
    shared = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": names.SHARED_CONFIGMAP}}
    for_env.create(own, {"metadata": {"name": "gpusharing-gpu-a"}})
    for_env.apply(theirs, shared, field_manager=names.FIELD_MANAGER)
    must_say("only ConfigMaps named gpusharing-<node>", lambda: for_env.create(own, owned(made)))
    must_say("may be written", lambda: for_env.create(theirs, {"metadata": {"name": "gpusharing-gpu-a"}}))
    for_env.delete(theirs, names.SHARED_CONFIGMAP)


# --- helpers


def gpu_node(name: str = "gpu-a") -> Object:
    return {"apiVersion": names.API_VERSION, "kind": names.NODE_KIND, "metadata": {"name": name}}


def placement(name: str, namespace: str = "default") -> Object:
    metadata = {"name": name, "namespace": namespace}
    spec = request_of("P01")
    return {"apiVersion": names.API_VERSION, "kind": names.PLACEMENT_KIND, "metadata": metadata, "spec": spec}


def owned(by: Object) -> Object:
    """The ConfigMap of a placement's service `policy`."""
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.PLACEMENT_KIND,
        "name": by["metadata"]["name"],
        "uid": by["metadata"]["uid"],
    }
    metadata = {"name": f"{owner['name']}.policy", "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"gpu-a": "1,2"}}


def make_namespace(fleet: Fleet, name: str) -> None:
    """A namespace with the account that pods have, which no controller makes here."""
    for where, body in ((NAMESPACES, name), (f"{NAMESPACES}/{name}/serviceaccounts", "default")):
        if body not in [item["metadata"]["name"] for item in fleet.api.list(where)]:
            fleet.api.create(where, {"metadata": {"name": body}})


def refusal_of(attempt: Callable[[], object]) -> str:
    """Why the API server answers 403; empty = it does not."""
    try:
        attempt()
    except ApiStatusError as error:
        if error.status == 403:
            return str(error)
        raise
    return ""


def must_say(words: str, attempt: Callable[[], object]) -> None:
    """The attempt is refused in these words."""
    assert words in refusal_of(attempt)


def collection_of(document: Object) -> str:
    """The path of the collection of a right or a fence."""
    version, kind = document["apiVersion"], document["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    namespace = document["metadata"].get("namespace")
    return f"/apis/{version}/namespaces/{namespace}/{plural}" if namespace else f"/apis/{version}/{plural}"


@contextmanager
def bound(fleet: Fleet, role: str, namespace: str) -> Iterator[Api]:
    """A client of an account that has a ClusterRole in a namespace."""
    accounts, bindings = f"{NAMESPACES}/{namespace}/serviceaccounts", f"{RBAC}/namespaces/{namespace}/rolebindings"
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": "person"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    fleet.api.create(accounts, {"metadata": {"name": "person"}})
    fleet.api.create(bindings, {"metadata": {"name": "person"}, "roleRef": reference, "subjects": [subject]})
    try:
        with Api(fleet.cluster.kubeconfig_for("person", namespace)) as api:
            yield api
    finally:
        fleet.api.delete(bindings, "person")
        fleet.api.delete(accounts, "person")
