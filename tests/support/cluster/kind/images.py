"""Images for a kind cluster where no registry can be reached, as docker-archives in the cache; Docker only loads them.

The node image is Debian's containerd with our Kubernetes and the files of `hack/kind/node`; into it go the images that
kubeadm asks for, under the very names it asks for. The Python image is what the product's Dockerfile starts from.
"""

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.support.cluster.binaries import bring, cache_folder, kubernetes_version, run
from tests.support.cluster.kind.tools import (
    NodePrograms,
    bring_docker,
    bring_iptables,
    bring_node_programs,
    docker_environment,
)
from tests.support.images import write_image
from tests.support.install import ROOT

PYTHON_IMAGE = "local/python:bookworm"
_FILES = ROOT / "hack/kind/node"
_PATH = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
_ON_NODES = ("containerd", "runc", "containernetworking-plugins", "iptables", "iproute2", "procps", "mount")
_PYTHON = ("ca-certificates", "python3-minimal", "python3-venv", "python3-pip", "python-is-python3")
_WITHOUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")
_HINT = "the home-made images need Debian's mirror, PyPI and 5 GB of disk; GPUSHARING_KIND_IMAGE names a published one"
_CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def node_image_name() -> str:
    """The home-made node image of the version of Kubernetes that is asked for."""
    return f"local/kind-node:{kubernetes_version()}"


def bring_node_image() -> Path:
    """The home-made node image, made first if the cache lacks it or what it is made of has changed."""
    made_of = _hash_of(*sorted(path for path in _FILES.rglob("*") if path.is_file()), Path(__file__))
    target = cache_folder() / "kind" / f"node-{kubernetes_version()}-{made_of}" / "node.tar"
    if target.exists():
        return target
    programs, system = bring_node_programs(), _bring_system("node", _ON_NODES)
    return bring(target, "the node image", lambda part: _write_node(part, programs, system))


def bring_python_image() -> Path:
    """The image PYTHON_IMAGE, with all that `pip install` asks for in the Dockerfile: a build needs no network."""
    made_of = _hash_of(ROOT / "requirements-image.lock", Path(__file__))
    target = cache_folder() / "kind" / f"python-{made_of}" / "python.tar"
    if target.exists():
        return target
    system = _bring_system("python", _PYTHON)
    return bring(target, "the Python image", lambda part: _write_python(part, system))


def busybox() -> Path:
    """A static busybox."""
    return bring_docker() / "bin/busybox"


def _bring_system(name: str, packages: Iterable[str]) -> Path:
    """A small Debian with these packages, as a layer."""

    def make(part: Path) -> Path:
        tools = bring_docker()
        options = [f"--dpkgopt=path-exclude={pattern}" for pattern in _WITHOUT]
        sources = Path("/etc/apt/sources.list.d/debian.sources")
        mirror = [str(sources)] if sources.exists() else []
        command = [str(tools / "usr/bin/mmdebstrap"), "--mode=root", "--variant=minbase", *options]
        command += [f"--include={','.join(packages)}", "bookworm", str(part / "system.tar"), *mirror]
        settings = {**docker_environment(tools), "TMPDIR": str(part)}
        run("unshare", "--mount", *command, cwd=part, env=settings, hint=_HINT)
        return part / "system.tar"

    made_of = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:8]
    return bring(cache_folder() / "kind" / f"system-{name}-{made_of}" / "system.tar", "a small Debian", make)


def _write_node(part: Path, programs: NodePrograms, system: Path) -> Path:
    names = programs.image_names()
    _write_kubernetes_images(part, programs, names)
    layer = part / "node-layer.tar"
    with tarfile.open(layer, "w") as archive:
        for folder in ("etc/cni", "etc/cni/net.d", "etc/kubernetes", "etc/kubernetes/manifests", "opt/cni"):
            _add_folder(archive, folder)
        _add_link(archive, "opt/cni/bin", "/usr/lib/cni")
        archive.add(part / "images", "kind/images")
        for program in (
            *(programs.kubernetes[name] for name in ("kubelet", "kubeadm")),
            programs.kubectl,
            programs.crictl,
        ):
            archive.add(program, f"usr/local/bin/{program.name}")
        for path in sorted(_FILES.rglob("*")):
            if path.is_file():
                _add_file(archive, path, {"PAUSE_IMAGE": names["pause"]})
        _add_text(archive, "kind/version", programs.version)
    return write_image(
        part / "node.tar",
        node_image_name(),
        [system, layer],
        entrypoint=["/usr/local/bin/entrypoint"],
        env={"container": "docker", **_PATH},
    )


def _write_kubernetes_images(part: Path, programs: NodePrograms, names: dict[str, str]) -> None:
    """Write below `part/images` what every node needs, and what a control plane needs besides."""

    def write(folder: str, name: str, fill: Callable[[tarfile.TarFile], None], *entrypoint: str) -> None:
        layer = part / "layer.tar"
        with tarfile.open(layer, "w") as archive:
            for each in ("etc", "tmp", "usr", "usr/local", "usr/local/bin"):
                _add_folder(archive, each)
            _add_text(archive, "etc/passwd", "root:x:0:0:root:/:/bin/sh\n")
            _add_text(archive, "etc/group", "root:x:0:\n")
            fill(archive)
        target = part / "images" / folder / f"{name}.tar"
        target.parent.mkdir(parents=True, exist_ok=True)
        write_image(target, names[name], [layer], entrypoint=entrypoint, env=_PATH)
        layer.unlink()

    kubernetes, packages = programs.kubernetes, bring_iptables()
    for name in _CONTROL_PLANE:
        write("control-plane", name, _program(kubernetes[name]))
    write("control-plane", "etcd", _program(programs.etcd))
    write("node", "coredns", _program(programs.coredns, "coredns"), "/coredns")
    write(
        "node",
        "pause",
        _program(busybox(), "pause/busybox"),
        "/pause/busybox",
        "sleep",
        "infinity",
    )

    def proxy(archive: tarfile.TarFile) -> None:
        for path in sorted(packages.iterdir()):
            archive.add(path, path.name, filter=_needed)
        _program(kubernetes["kube-proxy"])(archive)

    write("node", "kube-proxy", proxy)


def _needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.startswith(("usr/share", "etc", "var")) else entry


def _program(program: Path, inside: str = "") -> Callable[[tarfile.TarFile], None]:
    return lambda archive: archive.add(program, inside or f"usr/local/bin/{program.name}")


def _write_python(part: Path, system: Path) -> Path:
    uv = run(str(ROOT / "hack/uv"), cwd=part, hint=_HINT).strip()
    download = [uv, "tool", "run", "--quiet", "pip", "download", "--quiet", "--dest", "wheels"]
    fitting = (
        "--only-binary=:all:",
        "--python-version=3.11",
        "--implementation=cp",
        "--abi=cp311",
        "--abi=abi3",
        "--abi=none",
    )
    lock = str(ROOT / "requirements-image.lock")
    run(*download, *fitting, "--no-deps", "--require-hashes", "--requirement", lock, cwd=part, hint=_HINT)
    run(*download, *fitting, "hatchling>=1.33", cwd=part, hint=_HINT)
    layer = part / "python-layer.tar"
    with tarfile.open(layer, "w") as archive:
        archive.add(part / "wheels", "opt/wheels")
        _add_text(archive, "etc/pip.conf", "[global]\nno-index = true\nfind-links = /opt/wheels\n")
    return write_image(part / "python.tar", PYTHON_IMAGE, [system, layer], entrypoint=[], env=_PATH)


def _add_file(archive: tarfile.TarFile, path: Path, words: dict[str, str]) -> None:
    """Add a file of `hack/kind/node`, with these words replaced."""
    text = path.read_text()
    for word, replacement in words.items():
        text = text.replace(word, replacement)
    _add_text(archive, str(path.relative_to(_FILES)), text, mode=0o755 if os.access(path, os.X_OK) else 0o644)


def _add_text(archive: tarfile.TarFile, name: str, text: str, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    content = text.encode()
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _add_folder(archive: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
    archive.addfile(entry)


def _add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)


def _hash_of(*files: Path) -> str:
    content = hashlib.sha256()
    for file in files:
        content.update(f"{file.name} {file.stat().st_mode}\n".encode() + file.read_bytes())
    return content.hexdigest()[:12]
