"""The controller and the plugin as users apply them, on a node without pod network and registry."""

from pathlib import Path

from tests.support.cluster.api import Object
from tests.support.cluster.local import free_ports
from tests.support.manifests import DEFAULT, render
from tests.support.productimage import PRODUCT

_LISTEN = {"Deployment": "GPUSHARING_LISTEN", "DaemonSet": "GPUSHARING_HTTP_ADDRESS"}


def product_pods(server: str, simulated: Path) -> list[Object]:
    """The two workloads: on the host's network, from the image PRODUCT, talking to the API server at `server`.

    `simulated` is a folder of the host with `inventory.yaml`; the plugin's device nodes lie in it, below `gpus`.
    """
    workloads = [document for document in render(DEFAULT) if document["kind"] in _LISTEN]
    for workload in workloads:
        _fit(workload, server)
        if workload["kind"] == "DaemonSet":
            _simulate(workload["spec"]["template"]["spec"], simulated)
    return workloads


def _fit(workload: Object, server: str) -> None:
    pod = workload["spec"]["template"]["spec"]
    pod |= {"hostNetwork": True, "dnsPolicy": "Default"}
    if "replicas" in workload["spec"]:
        workload["spec"]["replicas"] = 1
    host, port = server.removeprefix("https://").split(":")
    [listen] = free_ports(1)
    for container in pod["containers"]:
        container |= {"image": PRODUCT, "imagePullPolicy": "Never"}
        for entry in container.get("ports", []):
            entry["containerPort"] = listen
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            if probe in container:
                container[probe]["httpGet"]["host"] = "127.0.0.1"
        said = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        said[_LISTEN[workload["kind"]]] = f"127.0.0.1:{listen}"
        _say(container, said)


def _simulate(pod: Object, folder: Path) -> None:
    volume = {"name": "simulated", "hostPath": {"path": str(folder), "type": "Directory"}}
    pod.setdefault("volumes", []).append(volume)
    for container in pod["containers"]:
        mount = {"name": "simulated", "mountPath": str(folder), "readOnly": True}
        container.setdefault("volumeMounts", []).append(mount)
        said = {"GPUSHARING_DISCOVERY": "simulated", "GPUSHARING_INVENTORY": str(folder / "inventory.yaml")}
        _say(container, {**said, "NVIDIA_DEV_ROOT": str(folder / "gpus")})


def _say(container: Object, said: dict[str, str]) -> None:
    """Set environment variables; what the manifest says of the same ones goes."""
    kept = [entry for entry in container.get("env", []) if entry["name"] not in said]
    container["env"] = kept + [{"name": name, "value": value} for name, value in said.items()]
