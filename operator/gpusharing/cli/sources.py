"""Where a World comes from: a cluster, or what `kubectl get -o json` saved of one."""

import asyncio
import difflib
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from gpusharing.api import names
from gpusharing.api.node import GpuNodeStatus
from gpusharing.api.problems import parse, quoted
from gpusharing.cli.files import shown
from gpusharing.cli.progress import Progress
from gpusharing.cli.saved import read_saved, read_saved_kind
from gpusharing.core.desired_state import Layout
from gpusharing.core.errors import InvalidInput
from gpusharing.core.world import Object, World, read_world

_NODE_KINDS = {"node", "nodes", "no"}


@dataclass(frozen=True, slots=True)
class Source:
    """What the command line says about where the cluster is to be seen."""

    saved: Sequence[str] = ()
    kubeconfig: str = ""
    context: str = ""
    namespace: str = names.NAMESPACE
    layout: Layout | None = None
    # a program reads what is printed: no progress on the terminal
    quiet: bool = False

    def read(self) -> World:
        """Read the world from the saved files, or from the cluster."""
        if self.saved:
            objects = read_saved(self.saved, self.namespace)
        else:
            from gpusharing.cli.cluster import read_cluster

            with Progress(sys.stderr, quiet=self.quiet) as progress:
                objects = asyncio.run(
                    read_cluster(self.kubeconfig, self.context, self.namespace, self.layout, progress)
                )
        return read_world(objects, now=datetime.now(UTC), layout=self.layout)

    def read_reports(self) -> dict[str, GpuNodeStatus]:
        """Read what the plugins report of their nodes, and nothing else; an unreadable report says nothing."""
        objects: Sequence[Object]
        if self.saved:
            objects = read_saved_kind(self.saved, names.NODE_KIND)
            if not objects:
                raise InvalidInput(
                    f"no GpuNodes in {', '.join(map(shown, self.saved))}",
                    hint="save them with: kubectl get gpunodes -o json",
                )
        else:
            from gpusharing.cli.cluster import read_gpu_nodes

            with Progress(sys.stderr, quiet=self.quiet) as progress:
                objects = asyncio.run(read_gpu_nodes(self.kubeconfig, self.context, progress))
        return {obj["metadata"]["name"]: _status_of(obj) for obj in objects}

    def names_of(self, kind: Literal["nodes", "policies"], *, timeout: float) -> list[str]:
        """Return names alone, for completion."""
        if self.saved:
            kinds = (names.POLICY_KIND,) if kind == "policies" else ("Node", names.NODE_KIND)
            saved = [obj for each in kinds for obj in read_saved_kind(self.saved, each)]
            return sorted({obj["metadata"]["name"] for obj in saved})
        from gpusharing.cli.cluster import list_names

        return asyncio.run(list_names(self.kubeconfig, self.context, kind, timeout))


def _status_of(gpu_node: Object) -> GpuNodeStatus:
    return parse(GpuNodeStatus, gpu_node.get("status") or {})[0] or GpuNodeStatus()


def node_name(words: Sequence[str]) -> str:
    """Return the name of `node/NAME` or `node NAME`. Raises InvalidInput."""
    kind, slash, name = words[0].partition("/")
    rest = list(words[1:])
    if not slash and rest:
        name, rest = rest[0], rest[1:]
    if kind not in _NODE_KINDS or not name or rest:
        raise InvalidInput(f"not a node: {' '.join(words)}", hint="write node/NAME, as in node/gpu-a")
    return name


def find_node(nodes: Collection[str], name: str, see: str = "kubectl get nodes") -> None:
    """Raise InvalidInput, with the nearest names, unless the node is among those; `see` lists them."""
    if name not in nodes:
        raise InvalidInput(f"there is no node {quoted(name)}", hint=_meant(name, nodes, "node/") or f"see: {see}")


def find_policy(world: World, name: str) -> None:
    """Raise InvalidInput, with the nearest names, unless the policy is there."""
    if name not in world.policies:
        raise InvalidInput(
            f"there is no policy {quoted(name)}", hint=_meant(name, world.policies) or "see: kubectl get gsp"
        )


def _meant(name: str, known: Iterable[str], prefix: str = "") -> str:
    close = difflib.get_close_matches(name, sorted(known), n=3)
    return f"did you mean {' or '.join(f'{prefix}{each}' for each in close)}?" if close else ""
