"""Models → CustomResourceDefinition: pydantic's JSON schema made structural (the table in `_structural`).

No generator fits: kubecrds pins an old client, kubecrd is of 2022, cloudcoil goes the other way.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel

from gpusharing.api import names
from gpusharing.api.node import READY_CONDITION, GpuNodeObject
from gpusharing.api.placementobject import PlacementObject
from gpusharing.api.policy import PolicyObject

JsonObject = dict[str, Any]

# What an API server refuses or warns about, and what says nothing to a user.
_DROPPED = {"title", "examples", "propertyNames", "additionalProperties", "uniqueItems"}
_KNOWN_FORMATS = {"int32", "int64", "date-time"}


class UnsupportedSchema(TypeError):
    """A model uses something that a structural schema cannot say: redesign the model."""


def structural_schema(model: type[BaseModel]) -> JsonObject:
    """Return the model's schema as a structural schema (Kubernetes API conventions, apiextensions v1)."""
    schema = model.model_json_schema(mode="validation", by_alias=True)
    return _structural(schema, schema.get("$defs", {}))


def _structural(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> JsonObject:
    node = _inlined(node, definitions)
    if "discriminator" in node or "oneOf" in node or "prefixItems" in node:
        raise UnsupportedSchema(f"unions and tuples have no structural form: {node.get('description', node)!r}")
    out = {key: value for key, value in node.items() if key not in _DROPPED | {"properties", "items", "$defs", "const"}}
    if out.get("format") not in _KNOWN_FORMATS:
        out.pop("format", None)
    if out.get("default", ...) is None:
        del out["default"]
    if "const" in node:
        out["enum"] = [node["const"]]
    if "properties" in node:
        out["properties"] = {key: _structural(value, definitions) for key, value in node["properties"].items()}
    if isinstance(node.get("additionalProperties"), Mapping):
        out["additionalProperties"] = _structural(node["additionalProperties"], definitions)
    if "items" in node:
        out["items"] = _structural(node["items"], definitions)
    return out


def _inlined(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> JsonObject:
    """Resolve `$ref` and `X | None`; what stands beside them (description, default, extensions) wins."""
    merged = dict(node)
    if "$ref" in merged:
        target = definitions[merged.pop("$ref").removeprefix("#/$defs/")]
        merged = {**_inlined(target, definitions), **merged}
    if "allOf" in merged and len(merged["allOf"]) == 1:
        merged = {**_inlined(merged.pop("allOf")[0], definitions), **merged}
    if "anyOf" in merged:
        options = [option for option in merged.pop("anyOf") if option.get("type") != "null"]
        merged = {**(_inlined(options[0], definitions) if len(options) == 1 else _int_or_string(options)), **merged}
    return merged


def _int_or_string(options: Sequence[Mapping[str, Any]]) -> JsonObject:
    """Return the one union that a structural schema knows; an integer's limits hold beside the only text there is."""
    match options:
        case [{"type": "integer"} as number, {"type": "string", "const": str(word)}]:
            limits = {key: value for key, value in number.items() if key != "type"}
            return {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
                **limits,
                "pattern": f"^{re.escape(word)}$",
            }
    raise UnsupportedSchema(f"a union of {len(options)} types has no structural form: {options!r}")


def _object_schema(model: type[BaseModel]) -> JsonObject:
    """Return the root schema: the API server knows `metadata`, and defaults must reach every level."""
    schema = structural_schema(model)
    properties = schema["properties"]
    properties["apiVersion"] = {"type": "string", "description": properties["apiVersion"]["description"]}
    properties["kind"] = {"type": "string", "description": properties["kind"]["description"]}
    properties["metadata"] = {"type": "object"}
    properties["status"].pop("default", None)
    _without_defaults(properties["status"])
    if "observedGeneration" in properties["status"]["properties"]:
        # kstatus takes an object without any status for current: say from the start that nobody has looked at it.
        properties["status"]["default"] = {"observedGeneration": 0}
    schema["required"] = [name for name in schema.get("required", []) if name == "spec"]
    if not schema["required"]:
        del schema["required"]
    return schema


def _without_defaults(schema: JsonObject) -> None:
    """A status is written by us as a whole; a default in it would be a value that nobody reported."""
    schema.pop("default", None)
    for child in [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]:
        _without_defaults(child)


def _column(name: str, path: str, kind: str = "string", priority: int = 0, description: str = "") -> JsonObject:
    column: JsonObject = {"name": name, "type": kind, "jsonPath": path}
    if description:
        column["description"] = description
    if priority:
        column["priority"] = priority
    return column


def _definition(
    model: type[BaseModel],
    *,
    plural: str,
    singular: str,
    short: str,
    columns: list[JsonObject],
    scope: Literal["Cluster", "Namespaced"] = "Cluster",
) -> JsonObject:
    kind = model.model_fields["kind"].annotation.__args__[0]  # type: ignore[union-attr]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": singular,
                "shortNames": [short],
                "categories": ["gpu"],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _object_schema(model)},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    }


def _condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


def policy_crd() -> JsonObject:
    """Return the CRD of `GpuSharingPolicy`."""
    return _definition(
        PolicyObject,
        plural=names.POLICIES,
        singular="gpusharingpolicy",
        short="gsp",
        columns=[
            _column("Allocation", ".status.allocationPolicy"),
            _column("Sharing", ".status.sharing"),
            _column("MIG", ".spec.migStrategy"),
            _column("Nodes", ".status.nodes.matched", "integer", description="GPU nodes that the selector names"),
            _column("Applied", ".status.nodes.applied", "integer", description="Nodes that provably serve the config"),
            _column("Ready", _condition("Ready", "status")),
            _column("Status", _condition("Ready", "reason")),
            _column("Priority", ".spec.priority", "integer", priority=1),
            _column("Config", ".status.configName", priority=1),
            _column("Age", ".metadata.creationTimestamp", "date"),
        ],
    )


def gpu_node_crd() -> JsonObject:
    """Return the CRD of `GpuNode`."""
    return _definition(
        GpuNodeObject,
        plural=names.GPU_NODES,
        singular="gpunode",
        short="gn",
        columns=[
            _column("Model", ".status.gpus[0].model"),
            _column("GPUs", ".status.gpuCount", "integer"),
            _column("Desired", ".status.config.desired"),
            _column("Served", ".status.config.served"),
            _column("InUse", ".status.inUse", "integer"),
            _column("Ready", _condition(READY_CONDITION, "status")),
            _column("Age", ".metadata.creationTimestamp", "date"),
        ],
    )


def placement_crd() -> JsonObject:
    """Return the CRD of `GpuPlacement`."""
    return _definition(
        PlacementObject,
        plural=names.PLACEMENTS,
        singular="gpuplacement",
        short="gplace",
        scope="Namespaced",
        columns=[
            _column("Services", ".status.summary.services", "integer", description="Services that are deployed"),
            _column("GPUs", ".status.summary.gpusNeeded", "integer", description="GPUs that they need"),
            _column("Nodes", ".status.summary.nodes", "integer", description="Nodes that the plan uses"),
            _column("Ready", _condition("Ready", "status")),
            _column("Status", _condition("Ready", "reason")),
            _column("Lead", ".status.leadNode", priority=1),
            _column("Enforcement", ".spec.enforcement", priority=1),
            _column("Plan", ".status.planHash", priority=1),
            _column("Age", ".metadata.creationTimestamp", "date"),
        ],
    )
