"""The product's own image, made without Docker and registry: this machine's Python, the locked dependencies, our wheel.

The lower layer (Python and dependencies) is cached by what it is made of; the upper one is the checkout as it is.
"""

import hashlib
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.cluster.binaries import bring, cache_folder, run
from tests.support.images import write_image
from tests.support.install import ROOT

PRODUCT = "docker.io/local/gpu-sharing-operator:test"

_LIBRARY = f"usr/local/lib/python{sys.version_info.major}.{sys.version_info.minor}"
_LEFT_OUT = {"site-packages", "dist-packages", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data"}
# A function for each path of the Kubernetes API and a class for each kind, a third of all bytes: none is ever imported.
_NOT_IMPORTED = re.compile(r"/kubernetes/((aio/)?client/api|aio/client/models)/(?!__init__|__pycache__/__init__)\w+\.")
_TESTS = re.compile(r"/(test|tests)/")
_HINT = "the image needs PyPI, and a C library's `ldd`"


def write_product(folder: Path) -> Path:
    """Write the image PRODUCT into `folder`; returns the docker-archive."""
    lock = ROOT / "requirements-image.lock"
    made_of = hashlib.sha256(lock.read_bytes() + sys.version.encode() + Path(__file__).read_bytes()).hexdigest()[:16]
    base = bring(cache_folder() / "image" / made_of / "base.tar", "Python and dependencies", _write_base)
    product = folder / "product.tar"
    installed = folder / "product"
    _install(installed, "--no-deps", "--no-build-isolation", str(ROOT))
    with tarfile.open(product, "w") as layer:
        layer.add(installed, f"{_LIBRARY}/site-packages")
    return write_image(
        folder / "product-image.tar",
        PRODUCT,
        [base, product],
        entrypoint=["/usr/local/bin/python3", "-m", "gpusharing"],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"},
        user="65532:65532",
    )


def _write_base(part: Path) -> Path:
    dependencies = part / "dependencies"
    _install(dependencies, "--require-hashes", "--requirement", str(ROOT / "requirements-image.lock"))
    interpreter = Path(sys.executable).resolve()
    modules = Path(sysconfig.get_path("stdlib"))
    base = part / "base.tar"
    with tarfile.open(base, "w") as layer:
        for folder in ("tmp", "dev", "proc", "sys", "etc", "run"):
            (part / folder).mkdir()
            layer.add(part / folder, folder)
        layer.add(interpreter, "usr/local/bin/python3")
        layer.add(modules, _LIBRARY, filter=_wanted)
        layer.add(dependencies, f"{_LIBRARY}/site-packages", filter=_imported)
        extensions = [file for file in modules.glob("lib-dynload/*.so") if "_tkinter" not in file.name]
        for library in _libraries([interpreter, *extensions, *dependencies.rglob("*.so*")]):
            layer.add(library.resolve(), f"usr/lib/{library.name}")
        loader = _loader(interpreter)
        layer.add(loader.resolve(), str(loader).lstrip("/"))
    return base


def _install(target: Path, *what: str) -> None:
    uv = run(str(ROOT / "hack/uv"), cwd=ROOT, hint=_HINT).strip()
    command = (uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", sys.executable)
    run(*command, "--target", str(target), *what, cwd=target.parent, hint=_HINT)


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    below = entry.name.removeprefix(f"{_LIBRARY}/").partition("/")[0]
    return None if below in _LEFT_OUT or below.startswith("config-") or "_tkinter" in entry.name else _imported(entry)


def _imported(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _TESTS.search(entry.name) or _NOT_IMPORTED.search(entry.name) else entry


def _libraries(programs: Iterable[Path]) -> set[Path]:
    """The shared libraries that programs load from the system."""
    listed = "\n".join(_ldd(program) for program in programs)
    found = {Path(path) for path in re.findall(r"=> (/\S+) \(", listed)}
    return {path for path in found if "site-packages" not in path.parts and "dependencies" not in path.parts}


def _loader(program: Path) -> Path:
    """The dynamic loader, at the path that programs name it by."""
    found: Iterator[re.Match[str]] = re.finditer(r"^\s*(/\S*ld-linux\S*)", _ldd(program), re.MULTILINE)
    return Path(next(found)[1])


def _ldd(program: Path) -> str:
    # what is no dynamic program has no libraries
    return subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
