"""config/components/mps: the one privileged pod, and only for whoever chooses it."""

from pathlib import Path

import pytest
from tests.support.cluster.api import Object
from tests.support.manifests import CONFIG, DEFAULT, only, overlay, render

from gpusharing.api import names
from gpusharing.core.options import NVIDIA
from gpusharing.deviceplugin.settings import OURS, read_settings

MPS = CONFIG / "components" / "mps"


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> list[Object]:
    return render(overlay(tmp_path_factory.mktemp("mps"), components=[MPS]))


def pod(documents: list[Object], name: str) -> Object:
    spec: Object = only(documents, "DaemonSet", name)["spec"]["template"]["spec"]
    return spec


def on_host(spec: Object, mount_path: str) -> str:
    """Where a container's folder is on the host."""
    [container] = spec["containers"]
    [name] = [mount["name"] for mount in container["volumeMounts"] if mount["mountPath"] == mount_path]
    [path] = [volume["hostPath"]["path"] for volume in spec["volumes"] if volume["name"] == name]
    return str(path)


def test_it_is_off_by_default() -> None:
    assert "mps" not in only(render(DEFAULT), "DaemonSet")["metadata"]["name"]


def test_daemon_and_plugin_mean_the_same_folder_of_the_host(documents: list[Object]) -> None:
    root = "/run/nvidia/mps"
    assert on_host(pod(documents, "mps-daemon"), "/mps") == root
    assert on_host(pod(documents, "device-plugin"), root) == root
    # what `Allocate` mounts on /dev/shm of a client
    assert on_host(pod(documents, "mps-daemon"), "/dev/shm") == f"{root}/shm"
    for name in ("mps-daemon", "device-plugin"):
        [container] = pod(documents, name)["containers"]
        assert {"name": "MPS_ROOT", "value": root} in container["env"]


def test_the_plugin_only_reads_there_and_stays_unprivileged(documents: list[Object]) -> None:
    [container] = pod(documents, "device-plugin")["containers"]
    [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == "mps"]
    assert mount["readOnly"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_what_the_daemon_is_given_is_what_it_reads(documents: list[Object]) -> None:
    [container] = pod(documents, "mps-daemon")["containers"]
    variables = {variable["name"]: variable.get("value", "any") for variable in container["env"]}
    for_others = {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
    assert set(variables) - for_others <= {name for option in (*NVIDIA, *OURS) for name in option.variables}
    command, *arguments = container["args"]
    assert command == "mps-daemon"
    read_settings(arguments, variables)


def test_it_runs_where_the_plugin_runs_under_its_account_and_image(documents: list[Object]) -> None:
    daemon, plugin = pod(documents, "mps-daemon"), pod(documents, "device-plugin")
    for field in ("affinity", "tolerations", "serviceAccountName", "priorityClassName", "automountServiceAccountToken"):
        assert daemon[field] == plugin[field]
    images = {container["image"] for container in (*daemon["containers"], *daemon["initContainers"])}
    assert images == {plugin["containers"][0]["image"]}


def test_an_update_never_ends_it_by_itself(documents: list[Object]) -> None:
    assert only(documents, "DaemonSet", "mps-daemon")["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_it_follows_a_renamed_install(tmp_path: Path) -> None:
    base = overlay(tmp_path / "base", namespace="gpu-tools", namePrefix="my-")
    documents = render(overlay(tmp_path / "top", resources=[base], components=[MPS]))
    daemon = only(documents, "DaemonSet", "mps-daemon")
    assert daemon["metadata"]["namespace"] == "gpu-tools"
    assert daemon["spec"]["template"]["spec"]["serviceAccountName"] == f"my-{names.PLUGIN}"
