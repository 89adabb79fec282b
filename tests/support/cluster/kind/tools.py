"""The programs of a kind cluster, each fetched or built into the cache first: nothing is installed on the machine."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster import ClusterError
from tests.support.cluster.binaries import (
    bring,
    bring_kubectl,
    bring_kubernetes,
    cache_folder,
    fetch_debian,
    kubernetes_version,
    run,
)

KIND_VERSION = "v0.33.0"
"""The next ones leave out cgroup v1."""
_MODULES = Path(__file__).parents[4] / "hack/kind"
_SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
_ON_THE_NODE = ("kubelet", "kubeadm")
_PAIRS = {"v1.34": ("etcd-3.6", "coredns-1.12"), "v1.37": ("etcd-3.7", "coredns-1.14")}
"""The etcd and the CoreDNS that kubeadm of a Kubernetes release asks for: folders of `hack/kind`."""
_DOCKER = ("docker.io", "containerd", "runc", "libseccomp2", "libdevmapper1.02.1", "mmdebstrap", "busybox-static")
_IPTABLES = (
    "iptables",
    "libxtables12",
    "libip4tc2",
    "libip6tc2",
    "libmnl0",
    "libnftnl11",
    "libnetfilter-conntrack3",
    "libnfnetlink0",
)
_HINT = "or use a Docker that runs already, with GPUSHARING_KIND_IMAGE set to a published node image"


@dataclass(frozen=True, slots=True)
class NodePrograms:
    """What a home-made node image is made of, for one version of Kubernetes."""

    version: str
    kubernetes: dict[str, Path]
    """By name: kubelet, kubeadm and the servers."""
    kubectl: Path
    etcd: Path
    coredns: Path
    crictl: Path

    def image_names(self) -> dict[str, str]:
        """Short name → the image that kubeadm will ask for, with its tag: `etcd`, `pause`, `kube-proxy`, …"""
        kubeadm = self.kubernetes["kubeadm"]
        command = (str(kubeadm), "config", "images", "list", "--kubernetes-version", self.version)
        listed = run(*command, cwd=kubeadm.parent, hint="remove that kubeadm and try again").split()
        return {name.rpartition(":")[0].rpartition("/")[2]: name for name in listed}


def bring_node_programs() -> NodePrograms:
    """Every program of the home-made node image, for the version of Kubernetes that is asked for."""
    version = kubernetes_version()
    names = _SERVERS + _ON_THE_NODE
    etcd, coredns = _PAIRS[version.rpartition(".")[0]]
    return NodePrograms(
        version=version,
        kubectl=bring_kubectl(),  # the one that the tests use, too: it is there already
        kubernetes={name: bring_kubernetes(name, version, "up to 5 minutes, once") for name in names},
        etcd=_bring_module(etcd, "etcd", "go.etcd.io/etcd/server/v3"),
        coredns=_bring_module(coredns, "coredns", "github.com/coredns/coredns"),
        crictl=_bring_module("crictl", "crictl", "sigs.k8s.io/cri-tools/cmd/crictl"),
    )


def bring_kind(environment: Mapping[str, str]) -> Path:
    """The kind of the PATH if it is new enough; without one, a pinned one."""
    if not (found := shutil.which("kind", path=environment["PATH"])):
        return _bring_module("kind", "kind", "sigs.k8s.io/kind")
    said = subprocess.run([found, "version", "--quiet"], capture_output=True, text=True, check=False).stdout.strip()
    if _numbers(said) < _numbers(KIND_VERSION):
        raise ClusterError(
            f"{found} is kind {said or 'of an unknown version'}, expected {KIND_VERSION} or later. "
            "hint: update it, or take it off the PATH, and the right one is built"
        )
    return Path(found)


def bring_docker() -> Path:
    """Root of Debian's packages, unpacked: dockerd and all that it starts, and mmdebstrap."""
    return bring(
        cache_folder() / "kind" / "docker",
        "Debian's packages, unpacked",
        lambda part: _with_links(fetch_debian(part, *_DOCKER, *_IPTABLES, hint=_HINT)),
    )


def bring_iptables() -> Path:
    """Root of Debian's packages, unpacked, in which iptables runs without anything else: for kube-proxy's image."""
    return bring(
        cache_folder() / "kind" / "iptables",
        "Debian's packages, unpacked",
        lambda part: _with_links(fetch_debian(part, *_IPTABLES, "libc6", hint=_HINT)),
    )


def docker_environment(packages: Path) -> dict[str, str]:
    """Variables under which the programs of `bring_docker` find one another, their libraries and extensions."""
    folders = ":".join(str(packages / "usr" / name) for name in ("bin", "sbin"))
    libraries = [path for top in ("lib", "usr/lib") for path in packages.glob(f"{top}/*-linux-gnu")]
    [extensions] = packages.glob("usr/lib/*-linux-gnu/xtables")
    return {
        "PATH": f"{folders}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        "XTABLES_LIBDIR": str(extensions),
    }


def _with_links(root: Path) -> Path:
    """The names that Debian makes when it installs iptables."""
    for family in ("iptables", "ip6tables"):
        for action in ("", "-save", "-restore"):
            (root / "usr/sbin" / f"{family}{action}").symlink_to("xtables-nft-multi")
    return root


def _bring_module(folder: str, program: str, package: str) -> Path:
    def build(part: Path) -> Path:
        flags = ("-trimpath", "-ldflags", "-s -w", "-o", str(part / program))
        settings = {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
        hint = f"install Go 1.26 or later with access to its module proxy, {_HINT}"
        run("go", "build", *flags, package, cwd=_MODULES / folder, env=settings, hint=hint)
        return part / program

    return bring(cache_folder() / "kind" / folder / program, "up to 2 minutes, once", build)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
