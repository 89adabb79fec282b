"""config/components/stale-names and host-processes: what placements may have of the plugin, for whoever chooses it."""

import pytest
from tests.support.cluster.api import Object
from tests.support.manifests import CONFIG, DEFAULT, only, overlay, render

from gpusharing.deviceplugin.settings import read_settings

COMPONENTS = [CONFIG / "components" / name for name in ("stale-names", "host-processes")]


@pytest.fixture(scope="module")
def default() -> list[Object]:
    return render(DEFAULT)


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    """Both, over a renamed install."""
    folder = tmp_path_factory.mktemp("placement-components")
    below = overlay(folder / "below", namespace="gpu-tools", namePrefix="my-")
    return render(overlay(folder / "top", resources=[below], components=COMPONENTS))


def plugin(documents: list[Object]) -> Object:
    pod: Object = only(documents, "DaemonSet")["spec"]["template"]["spec"]
    return pod


def removes_stale_names(pod: Object) -> bool:
    """Whether the plugin does, by what it is given."""
    [container] = pod["containers"]
    environment = {variable["name"]: variable.get("value", "any") for variable in container["env"]}
    _, *arguments = container["args"]
    return read_settings(arguments, environment).remove_stale_names


def test_neither_is_there_by_default(default: list[Object]) -> None:
    assert not removes_stale_names(plugin(default))
    assert "hostPID" not in plugin(default)


def test_chosen_they_reach_the_plugin_of_a_renamed_install(chosen: list[Object]) -> None:
    assert removes_stale_names(plugin(chosen))
    assert plugin(chosen)["hostPID"] is True


def test_they_change_nothing_else_and_give_no_account_another_right(
    default: list[Object], chosen: list[Object]
) -> None:
    pod, before = plugin(chosen), plugin(default)
    [container], [container_before] = pod["containers"], before["containers"]
    for field in ("securityContext", "volumeMounts", "args", "resources"):
        assert container[field] == container_before[field]
    roles = [[document["rules"] for document in of if document["kind"] == "ClusterRole"] for of in (default, chosen)]
    assert roles[0] == roles[1]
