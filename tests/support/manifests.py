"""The manifests of `config/` as kubectl renders them, alone or under a kustomization as users write it."""

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import jsonschema
import yaml
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource
from tests.support.cluster import Cluster
from tests.support.cluster.api import Object
from tests.support.cluster.binaries import bring_binaries
from tests.support.install import ROOT

CONFIG = ROOT / "config"
DEFAULT = CONFIG / "default"
SHARED_LAYOUT = CONFIG / "components" / "shared-layout"


def render(folder: Path) -> list[Object]:
    """Everything that `kubectl apply -k` would send; needs no API server."""
    return [document for document in yaml.load_all(_text(folder), yaml.CSafeLoader) if document]


@cache
def _text(folder: Path) -> str:
    command = [bring_binaries().kubectl, "kustomize", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def overlay(
    folder: Path, *, resources: Sequence[Path] = (DEFAULT,), components: Sequence[Path] = (), **fields: str
) -> Path:
    """A kustomization in `folder` on top of others, with `namespace=…` or `namePrefix=…`; returns `folder`."""
    folder.mkdir(exist_ok=True)
    text = {
        "resources": [os.path.relpath(path, folder) for path in resources],
        "components": [os.path.relpath(path, folder) for path in components],
        **fields,
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(text))
    return folder


def only(documents: Sequence[Object], kind: str, name: str = "") -> Object:
    """The one document of that kind, and of that name where there are several."""
    [found] = [d for d in documents if d["kind"] == kind and d["metadata"]["name"].endswith(name)]
    return found


def validate(document: Object, version: str) -> None:
    """Raise jsonschema.ValidationError where that Kubernetes does not know a field, or lacks one.

    As `kubernetes_validate.validate(strict=True)`, which reads all definitions anew for every document.
    """
    folder = f"kubernetes-json-schema/v{version}.0-local-strict"
    api_version = re.sub(
        r"^([^./]*)(?:\.[^/]*)?/", r"\1-", document["apiVersion"]
    )  # rbac.authorization.k8s.io/v1: rbac-v1
    schema = schema_contents(f"{folder}/{document['kind'].lower()}-{api_version}.json", version)
    jsonschema.Draft202012Validator(schema, registry=_definitions(folder, version)).validate(document)


@cache
def _definitions(folder: str, version: str) -> "Registry[Object]":
    definitions: Resource[Object] = Resource.from_contents(schema_contents(f"{folder}/_definitions.json", version))
    return definitions @ Registry()


@contextmanager
def installed(cluster: Cluster, folder: Path) -> Iterator[None]:
    """What a kustomization holds, as long as the block lasts; the CRDs, which all installs share, stay."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(folder))
    try:
        yield
    finally:
        doomed = [document for document in reversed(render(folder)) if document["kind"] != "CustomResourceDefinition"]
        documents = json.dumps({"apiVersion": "v1", "kind": "List", "items": doomed})
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=documents)
