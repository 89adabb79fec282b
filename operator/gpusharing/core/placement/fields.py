"""Rules about the fields of one service or pool (guide, section 5.3): what excludes what, and what needs what."""

from collections.abc import Iterator

from gpusharing.api import placementrules as rules
from gpusharing.api.placement import Pool, Service
from gpusharing.core.placement.problems import Code, Problem


def service_problems(service: Service, pool: Pool | None) -> Iterator[Problem]:
    """Yield what is wrong with the fields of the service; `pool` is the one that it is in, if there is one."""
    for sentence in (*_exclusions(service), *_requirements(service, pool)):
        message = rules.OF_SERVICE.format(service=service.name, sentence=sentence)
        yield Problem(Code.INVALID_FIELDS, message, services=(service.name,), pool=_name(pool))
    if service.share and service.visible_devices:
        message = rules.SHARE_WITH_PIN.format(service=service.name)
        yield Problem(Code.SHARE_WITH_PIN, message, services=(service.name,), pool=_name(pool))


def pool_problems(pool: Pool) -> Iterator[Problem]:
    """Yield what is wrong with the fields of the pool."""
    if pool.max_nodes is not None and pool.nodes != "auto":
        yield _of_pool(pool, rules.MAX_NODES_NEEDS_AUTO)
    if pool.gpus_per_node is not None and pool.gpus_by_node is not None:
        yield _of_pool(pool, rules.ONE_SIZE)
    if pool.node_selector and not all(term.values_fit for term in pool.node_selector.match_expressions or ()):
        yield _of_pool(pool, rules.SELECTOR_VALUES)


def _name(pool: Pool | None) -> str:
    return pool.name if pool else ""


def _of_pool(pool: Pool, sentence: str) -> Problem:
    message = rules.OF_POOL.format(pool=pool.name, sentence=sentence)
    return Problem(Code.INVALID_FIELDS, message, pool=pool.name)


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


def _exclusions(service: Service) -> Iterator[str]:
    said = _set_fields(service)
    needs = [word for word in rules.NEEDS if said[word]]
    if len(needs) > 1:
        yield rules.ONE_NEED.format(needs=", ".join(needs))
    for one, other in rules.EXCLUSIONS:
        if said[one] and said[other]:
            yield rules.EXCLUDE_EACH_OTHER.format(one=one, other=other)


def _requirements(service: Service, pool: Pool | None) -> Iterator[str]:
    said = _set_fields(service)
    if not any(said[word] for word in rules.SOURCES):
        yield rules.ONE_SOURCE
    for word in rules.NEED_PARALLELISM:
        if said[word] and not said["parallelism"]:
            yield rules.NEEDS_PARALLELISM.format(word=word)
    if service.distribute and service.visible_devices and not service.visible_devices[0].isdigit():
        yield rules.EVENLY_BY_INDEX
    if said["fraction"] and pool is not None and pool.sharing.replicas < 2:
        yield rules.FRACTION_NEEDS_SHARES.format(pool=pool.name)
