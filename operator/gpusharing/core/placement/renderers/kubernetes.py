"""`-o kubernetes`: a strategic-merge patch per service, for the user's own workload (guide, sections 8.1 and 10.4).

Services, probes and everything else of the workload stay the user's.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpusharing.api import names
from gpusharing.api.placement import Service
from gpusharing.core.placement.renderers import File, Job
from gpusharing.core.placement.resourcenames import named_by_rank, resource_name

NO_GPUS = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]


def render(job: Job) -> Iterator[File]:
    """Yield a patch for each deployed service, or one for each of its ranks where pods of two must not mix."""
    for service in job.deployed:
        places = job.places(service.name)
        if not places:
            yield _patch(job, service, service.name, {"env": NO_GPUS})
            continue
        if named_by_rank(service):
            for _, assignment in places:
                rank = assignment.rank
                name = service.name if rank is None else f"{service.name}.r{rank}"
                yield _patch(job, service, name, _limit(job, service, rank, job.count(assignment)))
            continue
        # Pods are interchangeable: one for each instance.
        instances = sum(assignment.instances or 1 for _, assignment in places)
        each = sum(job.count(assignment) for _, assignment in places) // instances
        remark = f"# One pod for each of the {instances} instances: set replicas to {instances}.\n"
        yield _patch(job, service, service.name, _limit(job, service, None, each), remark)


def _limit(job: Job, service: Service, rank: int | None, count: int) -> Mapping[str, Any]:
    name = resource_name(job.namespace, job.name, service.name, rank)
    return {"resources": {"limits": {name: str(count)}}}


def _patch(job: Job, service: Service, name: str, container: Mapping[str, Any], remark: str = "") -> File:
    metadata = {"labels": {names.PLACEMENT_LABEL: job.name, names.SERVICE_LABEL: service.name}}
    pod = {"metadata": metadata, "spec": {"containers": [{"name": job.container or service.name, **container}]}}
    patch: dict[str, Any] = pod if job.workload == "pod" else {"spec": {"template": pod}}
    if job.workload == "deployment" and "resources" in container:
        # a reservation has exactly the GPUs that are needed, so a pod more than those would wait for ever
        patch["spec"] = {"strategy": {"rollingUpdate": {"maxSurge": 0}}, **patch["spec"]}
    return File(f"{name}.patch.yaml", job.marker + remark + "".join(_yaml(patch)))


def _yaml(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield mappings, lists of mappings, strings and numbers as YAML."""
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            yield f"{indent}{key}:\n"
            yield from _yaml(inner, indent + "  ")
        elif isinstance(inner, list):
            yield f"{indent}{key}:\n"
            for entry in inner:
                first, *rest = _yaml(entry, indent + "  ")
                yield f"{indent}- {first.lstrip()}"
                yield from rest
        else:
            yield f"{indent}{key}: {json.dumps(inner)}\n"
