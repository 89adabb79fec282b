"""Rules about the fields of one service or pool (guide, section 5.3): what excludes what, and what needs what."""

from collections.abc import Iterator

from gpusharing.api.placement import Pool, Service
from gpusharing.core.placement.problems import Code, Problem


def service_problems(service: Service, pool: Pool | None) -> Iterator[Problem]:
    """Yield what is wrong with the fields of the service; `pool` is the one that it is in, if there is one."""
    for sentence in (*_exclusions(service), *_requirements(service, pool)):
        yield Problem(
            Code.INVALID_FIELDS, f"service '{service.name}': {sentence}", services=(service.name,), pool=_name(pool)
        )
    if service.share and service.visible_devices:
        message = f"service '{service.name}' sets both share and visibleDevices; remove one"
        yield Problem(Code.SHARE_WITH_PIN, message, services=(service.name,), pool=_name(pool))


def pool_problems(pool: Pool) -> Iterator[Problem]:
    """Yield what is wrong with the fields of the pool."""
    if pool.max_nodes is not None and pool.nodes != "auto":
        yield _of_pool(pool, "maxNodes needs nodes: auto")
    if pool.gpus_per_node is not None and pool.gpus_by_node is not None:
        yield _of_pool(pool, "gpusPerNode and gpusByNode exclude each other")


def _name(pool: Pool | None) -> str:
    return pool.name if pool else ""


def _of_pool(pool: Pool, sentence: str) -> Problem:
    return Problem(Code.INVALID_FIELDS, f"pool '{pool.name}': {sentence}", pool=pool.name)


def _set_fields(service: Service) -> dict[str, bool]:
    """Return which of the fields that the rules speak of are set, by the words that people write."""
    return {
        "gpus": service.gpus is not None,
        "parallelism": service.parallelism is not None,
        "leftover": service.leftover is not None,
        "visibleDevices": service.visible_devices is not None,
        "visibleDevicesFromEnv": service.visible_devices_from_env is not None,
        "share": service.share,
        "shareWith": service.share_with is not None,
        "fraction": service.fraction is not None,
        "exclusiveNodes": service.exclusive_nodes,
        "distribute": service.distribute is not None,
        "split": service.split is not None,
        "span: tail": service.span == "tail",
    }


# A pin beside `share` has a code of its own.
_EXCLUSIONS = (
    ("visibleDevices", "visibleDevicesFromEnv"),
    ("share", "shareWith"),
    ("share", "visibleDevicesFromEnv"),
    ("shareWith", "visibleDevices"),
    ("shareWith", "visibleDevicesFromEnv"),
    ("leftover", "visibleDevices"),
    ("leftover", "visibleDevicesFromEnv"),
    ("distribute", "split"),
    ("distribute", "exclusiveNodes"),
    ("distribute", "span: tail"),
    ("split", "exclusiveNodes"),
    ("split", "span: tail"),
    ("split", "visibleDevices"),
    ("split", "visibleDevicesFromEnv"),
    ("fraction", "leftover"),
    ("fraction", "exclusiveNodes"),
    ("fraction", "visibleDevicesFromEnv"),
)
_NEEDS = ("gpus", "parallelism", "leftover")
_SOURCES = (*_NEEDS, "visibleDevices", "visibleDevicesFromEnv", "share", "shareWith")


def _exclusions(service: Service) -> Iterator[str]:
    said = _set_fields(service)
    needs = [word for word in _NEEDS if said[word]]
    if len(needs) > 1:
        yield f"only one of {', '.join(needs)} may be set"
    for one, other in _EXCLUSIONS:
        if said[one] and said[other]:
            yield f"{one} and {other} exclude each other"


def _requirements(service: Service, pool: Pool | None) -> Iterator[str]:
    said = _set_fields(service)
    if not any(said[word] for word in _SOURCES):
        yield f"one of {', '.join(_SOURCES)} must be set"
    for word in ("distribute", "split"):
        if said[word] and not said["parallelism"]:
            yield f"{word} needs parallelism"
    if service.distribute and service.visible_devices and not service.visible_devices[0].isdigit():
        yield "distribute: evenly needs visibleDevices by index, which count on every node"
    if said["fraction"] and pool is not None and pool.sharing.replicas < 2:
        yield f"fraction needs sharing.replicas of at least 2 on its pool '{pool.name}'"
