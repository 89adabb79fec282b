"""The resource name that stands for a service's GPUs in a cluster (guide, section 8.1).

It ends with the whole namespace, because admission keeps pods of other namespaces from asking for it.
"""

import hashlib

from gpusharing.api import names
from gpusharing.api.placement import Service

_DIGEST = 8
NAMESPACE_MAX = names.RESOURCE_NAME_MAX - _DIGEST - 1


def resource_name(namespace: str, placement: str, service: str, rank: int | None = None) -> str:
    """Return `place.gpusharing.io/<service>[.r<rank>].<placement>.<namespace>`, cut with a hash where that is too long.

    All parts are DNS labels, so a name that is not cut splits in one way only. A namespace longer than NAMESPACE_MAX
    leaves no room; that is a `NameTooLong` of the plan.
    """
    head = ".".join((service, *([] if rank is None else [f"r{rank}"]), placement))
    if len(head) + 1 + len(namespace) > names.RESOURCE_NAME_MAX:
        digest = hashlib.sha256(head.encode()).hexdigest()[:_DIGEST]
        room = NAMESPACE_MAX - 1 - len(namespace)
        cut = head[: max(room, 0)].rstrip("-.")
        head = f"{cut}-{digest}" if cut else digest
    return f"{names.PLACE_DOMAIN}{head}.{namespace}"


def named_by_rank(service: Service) -> bool:
    """Whether each rank of the service has a name of its own: pods of two ranks must not swap their GPUs.

    Instances that are spread or split are interchangeable and share one name.
    """
    return service.distribute is None and service.split is None
