"""Pods on a real node, and what each of them sees, told by itself in its log."""

from pathlib import Path
from typing import Any

from tests.support.cluster.api import Api, Object, pods
from tests.support.eventually import eventually
from tests.support.images import BUSYBOX

PODS = pods("default")
EVENTS = "/api/v1/namespaces/default/events"
# Prints the environment, which GPU nodes are there and which open, then waits. `CHEAT` holds devices (`major:minor`)
# that it makes nodes for itself. Without a driver a node that may be opened says ENXIO, a forbidden one EPERM.
_SCRIPT = r"""
trap 'exit 0' TERM
env | while read -r line; do echo "env $line"; done
try() { case "$( (: <"$1") 2>&1 )" in *"not permitted"*) echo "$2 refused";; *) echo "$2 open";; esac; }
for node in /dev/nvidia* /dev/nvidia-caps/*; do
  if [ -c "$node" ]; then try "$node" "device $node"; fi
done
for number in $CHEAT; do
  mknod "/tmp/$number" c "${number%:*}" "${number#*:}" && try "/tmp/$number" "cheat $number"
done
echo ready
[ -z "$ONCE" ] || exit 0
sleep infinity & wait
"""


class Pod:
    """A pod of one container, `main`, which tells what it sees; perhaps an init container before, `init`."""

    def __init__(self, api: Api, logs: Path, name: str) -> None:
        self._api = api
        self._logs = logs
        self.name = name

    def object(self) -> Object:
        """The Pod as the API server has it."""
        return self._api.get(PODS, self.name)

    def phase(self) -> str:
        """Pending, Running, Failed, …"""
        return str(self.object()["status"]["phase"])

    def runs(self, *, within: float = 60) -> "Pod":
        """Wait until its container has told all; fails at once with the reason if the pod failed."""

        def check() -> None:
            status = self.object()["status"]
            if status["phase"] == "Failed":
                raise PodFailed(f"{self.name}: {status.get('reason')}: {status.get('message')}")
            assert status["phase"] == "Running", status
            assert "ready" in self.lines(), status

        eventually(check, within=within, what=f"pod {self.name} runs")
        return self

    def fails(self) -> str:
        """Wait until it has failed. Returns what the user reads: reason and message."""

        def check() -> str:
            status = self.object()["status"]
            assert status["phase"] == "Failed", status
            return f"{status.get('reason')}: {status.get('message')}"

        return eventually(check, within=60, what=f"pod {self.name} fails")

    def is_taken_down(self) -> str:
        """Wait until the kubelet has ended it without being asked to. Returns what the user reads in an Event.

        The pod's phase is Failed with that reason, or what the exit code of its container says: whichever the kubelet
        writes last.
        """

        def check() -> str:
            assert self.phase() in {"Failed", "Succeeded"}, self.object()["status"]
            uid = self.object()["metadata"]["uid"]
            warnings = [event for event in self._api.list(EVENTS) if event["involvedObject"].get("uid") == uid]
            found = [f"{event['reason']}: {event['message']}" for event in warnings if event["type"] == "Warning"]
            assert found, warnings
            return found[-1]

        return eventually(check, within=60, what=f"pod {self.name} is taken down")

    def lines(self, container: str = "main") -> list[str]:
        """What the newest run of a container has printed so far."""
        uid = self.object()["metadata"]["uid"]
        runs = sorted((self._logs / f"default_{self.name}_{uid}" / container).glob("*.log"))
        return [line.split(" ", 3)[3] for line in runs[-1].read_text().splitlines()] if runs else []

    def env(self, container: str = "main") -> dict[str, str]:
        """The environment inside."""
        pairs = [line.removeprefix("env ") for line in self.lines(container) if line.startswith("env ")]
        return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}

    def devices(self, container: str = "main") -> dict[str, bool]:
        """The GPU nodes inside; whether they open."""
        return self._tried("device ", container)

    def cheated(self) -> dict[str, bool]:
        """The devices (`major:minor`) that the pod made nodes for itself; whether they open."""
        return self._tried("cheat ", "main")

    def restarts(self) -> int:
        """How often its container was started again."""
        return int(self.object()["status"]["containerStatuses"][0]["restartCount"])

    def health(self) -> dict[str, str]:
        """Id → health, as the pod's status has it (`allocatedResourcesStatus`)."""
        container = self.object()["status"]["containerStatuses"][0]
        resources = [entry["resources"] for entry in container.get("allocatedResourcesStatus") or []]
        return {device["resourceID"]: device.get("health", "") for some in resources for device in some or []}

    def _tried(self, what: str, container: str) -> dict[str, bool]:
        words = [line.removeprefix(what).split() for line in self.lines(container) if line.startswith(what)]
        return {device: outcome == "open" for device, outcome in words}


class PodFailed(Exception):
    """The kubelet refused the pod, or it ended; the message is what its status says."""


def pod_object(
    name: str,
    limits: dict[str, int],
    *,
    init: dict[str, int] | None = None,
    env: dict[str, str] | None = None,
    starts: bool = True,
) -> Object:
    """A pod that asks for resources; `init` = what a plain init container before it asks for.

    One that does not start waits for a volume that never comes: it holds its devices from its admission on like any
    other, and costs a tenth.
    """
    spec: Object = {
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [_container("main", limits, env or {})],
    }
    if init is not None:
        spec["initContainers"] = [_container("init", init, {"ONCE": "1"})]
    if not starts:
        spec["volumes"] = [{"name": "missing", "hostPath": {"path": "/missing", "type": "Directory"}}]
        spec["containers"][0]["volumeMounts"] = [{"name": "missing", "mountPath": "/missing"}]
    return {"metadata": {"name": name}, "spec": spec}


def _container(name: str, limits: dict[str, int], env: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", _SCRIPT],
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "resources": {"limits": {resource: str(count) for resource, count in limits.items()}},
    }
