"""What `kubectl get -o json` (or yaml) saved of a cluster, read back with care: people edit files."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpusharing.api import names
from gpusharing.api.meta import Report
from gpusharing.api.problems import parse, quoted
from gpusharing.cli.files import read_text, shown
from gpusharing.core.errors import InvalidInput
from gpusharing.core.world import Object, Objects


def read_saved(files: Iterable[str], namespace: str) -> Objects:
    """Read objects from files. Without ConfigMaps of the namespace nobody can tell who labelled a node."""
    files = list(files)
    found: dict[str, list[Object]] = {kind: [] for kind in _KINDS}
    for file in files:
        for obj in _objects(file, read_text(file)):
            saved = _checked(file, obj)
            if saved.kind in found and (saved.kind != "ConfigMap" or saved.metadata.namespace == namespace):
                found[saved.kind].append(obj)
    nodes, policies, reports, configmaps = found.values()
    if not nodes:
        raise InvalidInput(
            f"no nodes in {', '.join(map(shown, files))}",
            hint=f"save them with: kubectl get nodes,gsp,gpunodes,cm -n {namespace} -o json",
        )
    return Objects(nodes, policies, reports, configmaps, configmaps_read=bool(configmaps))


def read_saved_kind(files: Iterable[str], kind: str) -> list[Object]:
    """Read the objects of one kind from files; others are passed over."""
    return [obj for file in files for obj in _objects(file, read_text(file)) if _checked(file, obj).kind == kind]


_KINDS = ("Node", names.POLICY_KIND, names.NODE_KIND, "ConfigMap")


def _objects(file: str, text: str) -> Iterator[Any]:
    for document in documents(file, text):
        if isinstance(document, Mapping) and isinstance(document.get("items"), list):
            yield from document["items"]
        elif document is not None:
            yield document


def documents(file: str, text: str) -> Iterator[Any]:
    """Yield the documents of a file that a tool saved: JSON is read as such, since YAML takes 20 times as long."""
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


def _checked(file: str, obj: Any) -> _Saved:
    saved, problems = parse(_Saved, obj)
    if saved is None:
        named = obj.get("metadata") if isinstance(obj, Mapping) else None
        which = f"{obj.get('kind')} {quoted(named.get('name'))}" if isinstance(named, Mapping) else quoted(obj)
        raise InvalidInput(f"{shown(file)} holds {which}, which is no Kubernetes object: {problems[0]}")
    return saved
