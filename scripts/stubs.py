"""Write the Python side of the kubelet's two gRPC APIs from their proto files. `--check` only compares."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "operator"
PLUGIN = SOURCES / "gpusharing" / "deviceplugin"
PROTOS = (PLUGIN / "v1beta1/deviceplugin_v1beta1.proto", PLUGIN / "podresources_v1/podresources_v1.proto")


def generated() -> Iterator[tuple[Path, str]]:
    with tempfile.TemporaryDirectory() as folder:
        # relative to the source root, so that the stubs import one another as what they are
        names = [str(proto.relative_to(SOURCES)) for proto in PROTOS]
        outputs = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
        if protoc.main(["protoc", f"-I{SOURCES}", *outputs, *names]) != 0:
            raise SystemExit("protoc refused a proto file; see above")
        for made in sorted(Path(folder).rglob("*.py*")):
            yield SOURCES / made.relative_to(folder), made.read_text()


def main() -> int:
    stale = [(path, text) for path, text in generated() if not path.exists() or path.read_text() != text]
    for path, text in stale:
        shown = path.relative_to(ROOT)
        if "--check" in sys.argv:
            print(f"{shown} is not up to date. hint: run `make generate` and commit it", file=sys.stderr)
        else:
            path.write_text(text)
            print(f"wrote {shown}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
