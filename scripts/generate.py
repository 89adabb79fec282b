"""Write what is generated: CRDs from the API models, and the pages of docs/reference. `--check` only compares."""

import sys
from collections.abc import Iterator
from pathlib import Path

import reference
import yaml

from gpusharing.api import crd, names
from gpusharing.api.reasons import Reason
from gpusharing.core.placement.problems import Code

ROOT = Path(__file__).resolve().parent.parent
HEADER = "# Generated from operator/gpusharing/api by `make generate`. Do not edit.\n"


class _Dumper(yaml.SafeDumper):
    """Lists indented under their key as Kubernetes manifests are; no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _yaml(document: object) -> str:
    return HEADER + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def _reasons() -> str:
    rows = [f"| [`{reason}`](../troubleshooting/{reason}.md) | {reason.sentence} |" for reason in sorted(Reason)]
    return "\n".join(
        [
            "<!-- Generated from operator/gpusharing/api/reasons.py by `make generate`. Do not edit. -->",
            "# Reasons",
            "",
            "One word is the reason of a condition, an Event and a problem in the command line. Each has a page.",
            "",
            "| reason | meaning |",
            "|---|---|",
            *rows,
            "",
            "## Codes of placements",
            "",
            "What `kubectl gpusharing place` says about a placement, and `status.problems` of one in a cluster.",
            "",
            "| code | | meaning |",
            "|---|---|---|",
            *(
                f"| [`{code}`](../troubleshooting/{code}.md) | {code.severity} | {_meaning(code)} |"
                for code in sorted(Code)
            ),
            "",
        ]
    )


def _meaning(code: Code) -> str:
    """Return the sentence that the code's page opens with."""
    return (ROOT / "docs" / "troubleshooting" / f"{code}.md").read_text().splitlines()[2]


def generated() -> Iterator[tuple[Path, str]]:
    yield ROOT / "crds" / f"{names.POLICIES_CRD}.yaml", _yaml(crd.policy_crd())
    yield ROOT / "crds" / f"{names.GPU_NODES}.{names.GROUP}.yaml", _yaml(crd.gpu_node_crd())
    yield ROOT / "crds" / f"{names.PLACEMENTS}.{names.GROUP}.yaml", _yaml(crd.placement_crd())
    yield ROOT / "docs" / "reference" / "reasons.md", _reasons()
    yield ROOT / "docs" / "reference" / "policy.md", reference.kind_page(crd.policy_crd())
    yield ROOT / "docs" / "reference" / "gpunode.md", reference.kind_page(crd.gpu_node_crd())
    yield ROOT / "docs" / "reference" / "placement.md", reference.kind_page(crd.placement_crd())
    yield ROOT / "docs" / "reference" / "settings.md", reference.settings_page()
    yield ROOT / "docs" / "reference" / "device-plugin.md", reference.plugin_settings_page()
    yield ROOT / "docs" / "reference" / "metrics.md", reference.metrics_page()


def main() -> int:
    stale = [(path, text) for path, text in generated() if not path.exists() or path.read_text() != text]
    for path, text in stale:
        shown = path.relative_to(ROOT)
        if "--check" in sys.argv:
            print(f"{shown} is not up to date. hint: run `make generate` and commit it", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {shown}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
