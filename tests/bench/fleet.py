"""Nodes as real kubelets make them, policies and reports, as plain objects. Pure: same number, same object."""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.builders import make_report

from gpusharing.api import names
from gpusharing.core.desired_state import RenderedConfig

Object = dict[str, Any]

VECTORS = Path(__file__).resolve().parents[1] / "vectors"
POOL_LABEL = "example.com/gpu-pool"
IMAGES = 50


@cache
def label_sets() -> list[dict[str, str]]:
    """The labels of real GPU nodes, none with a config label."""
    entries = json.loads((VECTORS / "nodes.json").read_text())["nodes"]
    return [entry["labels"] for entry in entries]


def node_name(number: int) -> str:
    """A name as clouds give it, in an order that has nothing to do with the pools."""
    return f"ip-10-{_hash(number)[:4]}-{number:05d}.eu-west-1.compute.internal"


def policy_name(number: int) -> str:
    return f"pool-{number:03d}"


def node_object(number: int, pools: int) -> Object:
    """A node of pool `number % pools`, about 17 KB with the managedFields that two writers leave."""
    pool = number % pools
    name = node_name(number)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                **_kubelet_labels(name, number),
                **label_sets()[pool % len(label_sets())],
                POOL_LABEL: str(pool),
            },
            "annotations": _annotations(number),
        },
        "spec": {"providerID": f"aws:///eu-west-1a/i-{_hash(number)[:17]}", "podCIDR": f"10.{number % 250}.0.0/24"},
        "status": _capacity(),
    }


def node_status(number: int) -> Object:
    """What the kubelet writes to the status a moment later: images, conditions, addresses, versions."""
    name = node_name(number)
    return {
        "addresses": [
            {"type": "InternalIP", "address": f"10.{number // 250 % 250}.{number % 250}.7"},
            {"type": "InternalDNS", "address": name},
            {"type": "Hostname", "address": name},
        ],
        "conditions": [_condition(kind, status) for kind, status in _CONDITIONS.items()],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": _uuid(f"boot-{number}"),
            "containerRuntimeVersion": "containerd://1.7.27",
            "kernelVersion": "6.8.0-1031-aws",
            "kubeProxyVersion": "v1.34.4",
            "kubeletVersion": "v1.34.4",
            "machineID": _hash(f"machine-{number}")[:32],
            "operatingSystem": "linux",
            "osImage": "Ubuntu 24.04.3 LTS",
            "systemUUID": _uuid(f"system-{number}"),
        },
        "images": _images(),
    }


def policy_object(number: int) -> Object:
    """A policy for one pool; every one renders to a config of its own."""
    product = label_sets()[number % len(label_sets())][names.PRODUCT_LABEL]
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.POLICY_KIND,
        "metadata": {"name": policy_name(number)},
        "spec": {
            "nodeSelector": {
                "matchLabels": {names.PRODUCT_LABEL: product},
                "matchExpressions": [{"key": POOL_LABEL, "operator": "In", "values": [str(number)]}],
            },
            "allocation": {"policy": "packed", "keepTogether": "preferred"},
            "sharing": {
                "strategy": "time-slicing",
                "resources": [{"name": names.GPU_RESOURCE, "replicas": 2 + number}],
            },
        },
    }


def moved_to(pool: int) -> dict[str, str]:
    """The labels that move a node to another pool, and so to another policy."""
    return {names.PRODUCT_LABEL: label_sets()[pool % len(label_sets())][names.PRODUCT_LABEL], POOL_LABEL: str(pool)}


def report_object(number: int, rendered: RenderedConfig) -> Object:
    """What the plugin of a node with eight GPUs reports once it serves this config, in use and with a past."""
    report = make_report(node_name(number)).gpus(8).serving(rendered).object()
    report["status"] |= {
        "driverVersion": "580.95.05",
        "gpuCount": 8,
        "inUse": 11,
        "occupancy": [
            {"gpu": gpu["uuid"], "shares": 4, "inUse": 1 + gpu["index"] % 3} for gpu in report["status"]["gpus"]
        ],
        "history": [
            {
                "time": f"2026-11-{day:02d}T12:00:00Z",
                "from": "",
                "to": rendered.name,
                "policy": "p",
                "result": "Applied",
            }
            for day in range(1, 11)
        ],
    }
    return report


def _kubelet_labels(name: str, number: int) -> dict[str, str]:
    """What kubelet, cloud and node-feature-discovery write on every node, GPU or not."""
    plain = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/instance-type": "p4d.24xlarge",
        "beta.kubernetes.io/os": "linux",
        "failure-domain.beta.kubernetes.io/region": "eu-west-1",
        "failure-domain.beta.kubernetes.io/zone": f"eu-west-1{'abc'[number % 3]}",
        "k8s.io/cloud-provider-aws": _hash("cluster")[:32],
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "p4d.24xlarge",
        "topology.k8s.aws/zone-id": f"euw1-az{number % 3 + 1}",
        "topology.kubernetes.io/region": "eu-west-1",
        "topology.kubernetes.io/zone": f"eu-west-1{'abc'[number % 3]}",
        "eks.amazonaws.com/nodegroup": f"gpu-{number % 20}",
        "eks.amazonaws.com/capacityType": "ON_DEMAND",
        "feature.node.kubernetes.io/kernel-version.full": "6.8.0-1031-aws",
        "feature.node.kubernetes.io/kernel-version.major": "6",
        "feature.node.kubernetes.io/kernel-version.minor": "8",
        "feature.node.kubernetes.io/pci-10de.present": "true",
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
        "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
    }
    flags = ("ADX", "AESNI", "AVX", "AVX2", "AVX512BW", "AVX512CD", "AVX512DQ", "AVX512F", "FMA3", "MPX", "VMX")
    return plain | {f"feature.node.kubernetes.io/cpu-cpuid.{flag}": "true" for flag in flags}


def _annotations(number: int) -> dict[str, str]:
    return {
        "csi.volume.kubernetes.io/nodeid": json.dumps({"ebs.csi.aws.com": f"i-{_hash(number)[:17]}"}),
        "node.alpha.kubernetes.io/ttl": "15",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        "nfd.node.kubernetes.io/feature-labels": ",".join(
            key.removeprefix("feature.node.kubernetes.io/")
            for key in _kubelet_labels("", number)
            if key.startswith("feature.node.kubernetes.io/")
        ),
        "alpha.kubernetes.io/provided-node-ip": f"10.{number // 250 % 250}.{number % 250}.7",
    }


def _capacity() -> Object:
    amounts = {
        "cpu": "96",
        "ephemeral-storage": "104779756Ki",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "memory": "1176325312Ki",
        "nvidia.com/gpu": "8",
        "pods": "110",
    }
    return {"capacity": amounts, "allocatable": {**amounts, "cpu": "95690m", "memory": "1165000000Ki"}}


_CONDITIONS = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}


def _condition(kind: str, status: str) -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": "KubeletReady" if kind == "Ready" else f"KubeletHasNo{kind}",
        "message": "kubelet is posting ready status" if kind == "Ready" else f"kubelet has no {kind}",
        "lastHeartbeatTime": "2026-11-30T12:00:00Z",
        "lastTransitionTime": "2026-11-30T08:00:00Z",
    }


@cache
def _images() -> list[Object]:
    return [
        {
            "names": [
                f"registry.example.com/team-{number % 7}/image-{number}@sha256:{_hash(number)}",
                f"registry.example.com/team-{number % 7}/image-{number}:v1.{number}.0",
            ],
            "sizeBytes": 50_000_000 + number * 1_234_567,
        }
        for number in range(IMAGES)
    ]


def _hash(of: object) -> str:
    return hashlib.sha256(f"{of}".encode()).hexdigest()


def _uuid(of: str) -> str:
    digits = _hash(of)
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"
