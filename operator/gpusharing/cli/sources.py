"""Where a World comes from: a cluster, or what `kubectl get -o json` saved of one; and policies from files."""

import asyncio
import difflib
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpusharing.api import names
from gpusharing.api.meta import Report
from gpusharing.api.problems import parse, quoted
from gpusharing.core.desired_state import Layout
from gpusharing.core.errors import ApiError, GpuSharingError, InvalidInput
from gpusharing.core.world import World, layout_of, read_world

if TYPE_CHECKING:
    from gpusharing.kube.client import Client

STDIN = "-"
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """What the command line says about where the cluster is to be seen."""

    saved: Sequence[str] = ()
    kubeconfig: str = ""
    context: str = ""
    namespace: str = names.NAMESPACE
    layout: Layout | None = None

    def read(self) -> World:
        """Read the world from the saved files, or from the cluster."""
        return read_saved(self) if self.saved else asyncio.run(_read_cluster(self))


@dataclass(slots=True)
class _Found:
    """Objects by kind."""

    nodes: list[Object]
    policies: list[Object]
    reports: list[Object]
    configmaps: list[Object]

    def world(self, source: Source, *, records_known: bool) -> World:
        return read_world(
            nodes=self.nodes,
            policies=self.policies,
            reports=self.reports,
            configmaps=self.configmaps,
            now=datetime.now(UTC),
            layout=source.layout,
            records_known=records_known,
        )


# --- saved files


def read_text(file: str) -> str:
    """Return a file's text; `-` is standard input. Raises InvalidInput."""
    try:
        if file == STDIN:
            return sys.stdin.read()
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{shown(file)} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise InvalidInput(f"{shown(file)} cannot be read: {error.strerror or error}") from error


def shown(file: str) -> str:
    """Return the file as messages name it."""
    return "standard input" if file == STDIN else file


def read_saved(source: Source) -> World:
    """Read the world from files. Without ConfigMaps of the namespace nobody can tell who labelled a node."""
    found = _Found([], [], [], [])
    for file in source.saved:
        for obj in _objects(file, read_text(file)):
            _sort(found, file, obj, source.namespace)
    if not found.nodes:
        raise InvalidInput(
            f"no nodes in {', '.join(map(shown, source.saved))}",
            hint=f"save them with: kubectl get nodes,gsp,gpunodes,cm -n {source.namespace} -o json",
        )
    return found.world(source, records_known=bool(found.configmaps))


def _objects(file: str, text: str) -> Iterator[Any]:
    for document in _documents(file, text):
        if isinstance(document, Mapping) and isinstance(document.get("items"), list):
            yield from document["items"]
        elif document is not None:
            yield document


def _documents(file: str, text: str) -> Iterator[Any]:
    """Yield the documents of a file: JSON is read as such, since YAML takes 20 times as long."""
    if text.lstrip().startswith("{"):
        try:
            yield json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{shown(file)} is not valid JSON: {error}") from error
        return
    import yaml

    try:
        yield from yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{shown(file)} is not valid YAML: {' '.join(str(error).split())}") from error


class _Metadata(Report):
    """What we read of an object's metadata."""

    name: str
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    managed_fields: list[dict[str, Any]] | None = None
    owner_references: list[dict[str, Any]] | None = None


class _Status(Report):
    """What we read of a Node's status."""

    allocatable: dict[str, Any] | None = None


class _Saved(Report):
    """An object whose shape we can rely on from here."""

    kind: str
    metadata: _Metadata
    status: _Status | None = None
    data: dict[str, str] | None = None


def _sort(found: _Found, file: str, obj: Any, namespace: str) -> None:
    saved, problems = parse(_Saved, obj)
    if saved is None:
        named = obj.get("metadata") if isinstance(obj, Mapping) else None
        which = f"{obj.get('kind')} {quoted(named.get('name'))}" if isinstance(named, Mapping) else quoted(obj)
        raise InvalidInput(f"{shown(file)} holds {which}, which is no Kubernetes object: {problems[0]}")
    match saved.kind:
        case "Node":
            found.nodes.append(obj)
        case names.POLICY_KIND:
            found.policies.append(obj)
        case names.NODE_KIND:
            found.reports.append(obj)
        case "ConfigMap" if saved.metadata.namespace == namespace:
            found.configmaps.append(obj)
        case _:  # somebody saved more than we need
            pass


# --- a cluster


async def _connect(source: Source, *, timeout: float) -> "Client":
    from gpusharing.kube.client import connect  # half a second of imports

    logging.getLogger("kubernetes").addHandler(logging.NullHandler())  # what it warns of, our errors say
    return await connect(source.kubeconfig, source.context, timeout=timeout)


async def _read_cluster(source: Source) -> World:
    from gpusharing.kube import paths

    client = await _connect(source, timeout=30.0)
    try:
        policies, reports, configmaps = await asyncio.gather(
            client.list(paths.POLICIES), client.list(paths.GPU_NODES), client.list(paths.configmaps(source.namespace))
        )
        found = _Found([], list(policies), list(reports), list(configmaps))
        layout = source.layout or layout_of(found.configmaps)
        found.nodes += await client.list(paths.NODES, only_metadata=layout == "per-node")
    except ApiError as error:
        raise _explained(error, client.server, source.namespace) from error
    finally:
        await client.close()
    return found.world(source, records_known=True)


def list_names(source: Source, kind: Literal["nodes", "policies"], *, timeout: float) -> list[str]:
    """Return the names of all nodes or policies: for completion, which needs nothing else."""
    if source.saved:
        world = read_saved(source)
        return list(world.nodes if kind == "nodes" else world.policies)
    return asyncio.run(_list_names(source, kind, timeout))


async def _list_names(source: Source, kind: Literal["nodes", "policies"], timeout: float) -> list[str]:
    from gpusharing.kube import paths

    async with asyncio.timeout(timeout):
        client = await _connect(source, timeout=timeout)
        try:
            path = paths.NODES if kind == "nodes" else paths.POLICIES
            return [obj["metadata"]["name"] for obj in await client.list(path, only_metadata=True)]
        finally:
            await client.close()


def _explained(error: ApiError, server: str, namespace: str) -> GpuSharingError:
    """Say what a refused list means for the person at the terminal."""
    if error.status == 0:
        return ApiError(
            f"the API server {server} cannot be reached: {error.message}",
            hint="check --kubeconfig and --context, or read a saved cluster with --from",
        )
    if error.status == 401:
        return ApiError(f"the API server {server} does not accept these credentials", status=401, hint="log in again")
    if error.status == 404:
        return ApiError(
            f"{server} has no {names.GROUP}/{names.VERSION}: the CRDs are not installed",
            status=404,
            hint="install everything with: kubectl apply -k config/default",
        )
    if error.status == 403:
        return ApiError(
            f"this account lacks a right: {error.message.partition('Forbidden: ')[2] or error.message}",
            status=403,
            hint=(
                "reading needs `list` on nodes, gpusharingpolicies.gpusharing.io, gpunodes.gpusharing.io, and on "
                f"configmaps in {namespace}"
            ),
        )
    return error


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
