"""Container images written by hand, so that no registry and no Docker is asked.

An image is a docker-archive (`docker save`'s format): uncompressed layers, a config, and a manifest that names both.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BUSYBOX = "docker.io/local/busybox:1"
"""Shell and tools from one static program; also the sandbox image of every pod, for it sleeps unless told better."""

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_image(
    target: Path,
    name: str,
    layers: Sequence[Path],
    *,
    entrypoint: Sequence[str],
    env: Mapping[str, str],
    user: str = "",
) -> Path:
    """Write the image `name` (with its tag) of these layers, tar files, lowest first; returns `target`."""
    digests = [_sha256(layer) for layer in layers]
    config: dict[str, Any] = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {
            "Entrypoint": list(entrypoint),
            "Env": [f"{key}={value}" for key, value in env.items()],
            "User": user,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
    }
    content = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(content).hexdigest()}.json"
    names = [f"{digest}/layer.tar" for digest in digests]
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": names}]
    with tarfile.open(target, "w") as archive:
        for layer, inside in zip(layers, names, strict=True):
            archive.add(layer, inside)
        _add(archive, config_name, content)
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return target


def write_busybox(target: Path, program: Path) -> Path:
    """Write the image BUSYBOX around a static busybox; returns `target`."""
    layer = target.with_suffix(".layer")
    with tarfile.open(layer, "w") as archive:
        for folder in ("bin", "tmp", "dev", "proc", "sys", "etc"):
            _add_folder(archive, folder)
        archive.add(program, "bin/busybox")
        for tool in ("sh", "env", "sleep", "ls", "cat", "mknod", "sort"):
            _add_link(archive, f"bin/{tool}", "busybox")
    write_image(target, BUSYBOX, [layer], entrypoint=["/bin/sleep", "infinity"], env={"PATH": "/bin"})
    layer.unlink()
    return target


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _add_folder(archive: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    archive.addfile(entry)


def _add_link(archive: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    archive.addfile(entry)
