"""Where a World comes from: a cluster, or what `kubectl get -o json` saved of one."""

import asyncio
import difflib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from gpusharing.api import names
from gpusharing.api.problems import quoted
from gpusharing.cli.progress import Progress
from gpusharing.cli.saved import read_saved
from gpusharing.core.desired_state import Layout
from gpusharing.core.errors import InvalidInput
from gpusharing.core.world import World, read_world


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

    def names_of(self, kind: Literal["nodes", "policies"], *, timeout: float) -> list[str]:
        """Return names alone, for completion."""
        if self.saved:
            world = self.read()
            return list(world.nodes if kind == "nodes" else world.policies)
        from gpusharing.cli.cluster import list_names

        return asyncio.run(list_names(self.kubeconfig, self.context, kind, timeout))


def find_node(world: World, name: str) -> None:
    """Raise InvalidInput, with the nearest names, unless the node is there."""
    if name not in world.nodes:
        raise InvalidInput(
            f"there is no node {quoted(name)}", hint=_meant(name, world.nodes, "node/") or "see: kubectl get nodes"
        )


def find_policy(world: World, name: str) -> None:
    """Raise InvalidInput, with the nearest names, unless the policy is there."""
    if name not in world.policies:
        raise InvalidInput(
            f"there is no policy {quoted(name)}", hint=_meant(name, world.policies) or "see: kubectl get gsp"
        )


def _meant(name: str, known: Iterable[str], prefix: str = "") -> str:
    close = difflib.get_close_matches(name, sorted(known), n=3)
    return f"did you mean {' or '.join(f'{prefix}{each}' for each in close)}?" if close else ""
