"""GPU nodes and policies on a real API server, and what became of them, in the words of the tests."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.cluster import Cluster
from tests.support.cluster.api import GPU_NODES, NODES, POLICIES, Api, ApiStatusError, Object, config_maps, events
from tests.support.eventually import eventually

from gpusharing.api import names
from gpusharing.core.records import record_name

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
RECORDS = config_maps(names.NAMESPACE)
TIME_SLICED = {"strategy": "time-slicing", "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}


@cache
def label_sets() -> dict[str, dict[str, str]]:
    """Labels of real GPU nodes, by the name of their set."""
    return {entry["name"]: entry["labels"] for entry in json.loads((VECTORS / "nodes.json").read_text())["nodes"]}


def sharing(replicas: int) -> Object:
    """Time-slicing of whole GPUs."""
    return {"strategy": "time-slicing", "resources": [{"name": names.GPU_RESOURCE, "replicas": replicas}]}


class Fleet:
    """The nodes, policies and records of one test."""

    def __init__(self, cluster: Cluster, api: Api) -> None:
        self.cluster = cluster
        self.api = api

    # --- nodes

    def node(self, name: str, kind: str = "l40s-mps-eight", **labels: str) -> Object:
        """Create a node with a label set of the vectors, and more labels (`_` for what a keyword cannot say)."""
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**label_sets().get(kind, {}), **labels}},
        }
        return self.api.create(NODES, body)

    def nodes(self, *names_: str, kind: str = "l40s-mps-eight") -> list[str]:
        for name in names_:
            self.node(name, kind)
        return list(names_)

    def set_labels(self, node: str, **labels: str | None) -> None:
        """Change labels by another field manager; None removes one."""
        self.api.patch(NODES, node, {"metadata": {"labels": labels}})

    def set_config_label(self, node: str, value: str | None) -> None:
        """Change the config label by hand."""
        self.set_labels(node, **{names.CONFIG_LABEL: value})

    def label(self, node: str) -> str:
        """The node's config label; empty = none."""
        labels = self.api.get(NODES, node)["metadata"].get("labels") or {}
        return str(labels.get(names.CONFIG_LABEL, ""))

    def labels(self) -> dict[str, str]:
        """The config label of every node."""
        return {
            node["metadata"]["name"]: (node["metadata"].get("labels") or {}).get(names.CONFIG_LABEL, "")
            for node in self.api.list(NODES)
        }

    # --- records

    def record(self, node: str) -> Object | None:
        """The node's record."""
        try:
            return self.api.get(RECORDS, record_name(node))
        except ApiStatusError as error:
            if error.status == 404:
                return None
            raise

    def records(self) -> list[str]:
        """The names of all records."""
        found = [item["metadata"]["name"] for item in self.api.list(RECORDS)]
        return sorted(name for name in found if name.startswith(names.RECORD_PREFIX))

    # --- policies

    def policy(self, name: str, **spec: Any) -> Object:
        """Create a policy; without a selector it means every GPU node, without sharing 4x time-slicing."""
        return self.api.create(POLICIES, policy_object(name, **spec))

    def edit(self, name: str, **spec: Any) -> Object:
        """Change some fields of a policy's spec."""
        return self.api.patch(POLICIES, name, {"spec": spec})

    def drop(self, name: str) -> None:
        """Delete a policy."""
        self.api.delete(POLICIES, name)

    def status(self, policy: str) -> Object:
        return self.api.get(POLICIES, policy).get("status") or {}

    def conditions(self, policy: str) -> dict[str, Object]:
        return {condition["type"]: condition for condition in self.status(policy).get("conditions", [])}

    def counts(self, policy: str) -> Object:
        return self.status(policy).get("nodes", {})

    def config(self, policy: str) -> str:
        return str(self.status(policy).get("configName", ""))

    # --- waiting

    def settles(self, policy: str, nodes: list[str]) -> str:
        """Wait until the policy's config is on these nodes, label and record. Returns its name."""

        def check() -> str:
            obj = self.api.get(POLICIES, policy)
            status = obj.get("status", {})
            assert status.get("observedGeneration") == obj["metadata"]["generation"], status
            config = str(status["configName"])
            for node in nodes:
                assert self.label(node) == config, (node, self.label(node), config)
                record = self.record(node)
                assert record is not None
                assert record["metadata"]["annotations"][names.CONFIG_ANNOTATION] == config
            assert status["nodes"]["updated"] >= len(nodes), status
            return config

        return eventually(check, what=f"{policy} is written to {nodes}")

    def becomes(self, policy: str, kind: str, status: str, reason: str) -> Object:
        """Wait for a condition at the policy's present generation. Returns it."""

        def check() -> Object:
            obj = self.api.get(POLICIES, policy)
            found = self.conditions(policy).get(kind)
            assert found is not None, (kind, obj.get("status"))
            assert (found["status"], found["reason"]) == (status, reason), found
            assert found["observedGeneration"] == obj["metadata"]["generation"], found
            return found

        return eventually(check, what=f"{kind} of {policy} is {status}, {reason}")

    def released(self, nodes: list[str]) -> None:
        """Wait until nothing of ours is left on these nodes."""

        def check() -> None:
            for node in nodes:
                assert self.label(node) == "", (node, self.label(node))
                assert self.record(node) is None, node

        eventually(check, what=f"{nodes} are released")

    def events(self, name: str, reason: str) -> list[Object]:
        """The Events about an object."""
        return [
            event
            for event in self.api.list(events("default"))
            if event["involvedObject"]["name"] == name and event["reason"] == reason
        ]

    def has_event(self, name: str, reason: str) -> Object:
        """Wait for an Event. Returns it."""

        def check() -> Object:
            found = self.events(name, reason)
            assert found, [(e["involvedObject"]["name"], e["reason"]) for e in self.api.list(events("default"))]
            return found[0]

        return eventually(check, what=f"an Event {reason} on {name}")

    def managers(self, node: str) -> set[str]:
        """The field managers of a node."""
        return {entry["manager"] for entry in self.api.get(NODES, node)["metadata"].get("managedFields", [])}

    def report(self, node: str) -> Object:
        """What the node's plugin reports."""
        return self.api.get(GPU_NODES, node).get("status") or {}


def policy_object(name: str, **spec: Any) -> Object:
    """A policy as it stands in a file."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.POLICY_KIND,
        "metadata": {"name": name},
        "spec": {"nodeSelector": {}, "sharing": TIME_SLICED, **spec},
    }
