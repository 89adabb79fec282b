"""Lists everything, compares it with what is known, and enqueues the differences. The first one fills the cache."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from gpusharing.api import names
from gpusharing.controller.cache import is_record
from gpusharing.controller.context import Context
from gpusharing.controller.keys import SHARED_KEY, Key
from gpusharing.controller.sightings import Sightings
from gpusharing.controller.turns import in_turns
from gpusharing.core.errors import ApiError
from gpusharing.core.plan import Change
from gpusharing.core.sharedconfig import read_shared
from gpusharing.kube import paths
from gpusharing.kube.client import JsonObject, Page
from gpusharing.kube.read import read_node_object, read_shared_object
from gpusharing.observability.logs import logger

log = logger(__name__)
# More nodes than these are read by one list, and not one by one.
UNREAD_MOST = 100


@dataclass(slots=True)
class ListState:
    """Why the last lists failed; empty = they did not. Unknown is never empty: nothing is released then."""

    problem: str = "the caches are not filled yet"


async def resync(context: Context, lists: ListState) -> int:
    """List, compare, enqueue. Returns how many keys a worker has to look at.

    Raises ApiError where a list fails: then nothing of that kind counts as gone. What was seen is a fact all the same.
    """
    found: set[Key] = set()
    try:
        await _list_all(context, found)
    except Exception as error:
        lists.problem = f"{error}" or repr(error)
        raise
    finally:
        keys = await evaluate_all(context, found)
        context.metrics.resync_differences_total.inc(len(keys))
        context.enqueue(keys)
    lists.problem = ""
    return len(keys)


async def _list_all(context: Context, found: set[Key]) -> None:
    """Put everything that is listed into the cache; what a whole list no longer has is dropped."""
    cache, client, settings = context.cache, context.client, context.settings
    shared = settings.shared_target
    records = client.pages(paths.configmaps(settings.namespace))
    seen = await _take(cache.seen["record"], records, found, lambda obj: is_record(obj, shared), cache.put_record)
    nodes_of = {record.name: record.node for record in cache.records.values()}
    for name in cache.seen["record"].missing(seen):
        if (node := nodes_of.get(name)) is not None:
            found |= cache.drop_record(node)
    if shared:
        found |= cache.put_shared(read_shared(await read_shared_object(client, shared)))
    seen = await _take(cache.seen["report"], client.pages(paths.GPU_NODES), found, _every, cache.put_report)
    for name in cache.seen["report"].missing(seen):
        found |= cache.drop_report(name)
    seen = await _list_nodes(context, found)
    if settings.node_selector:
        await _take_strays(context, found, seen)
    for name in cache.seen["node"].missing(seen):
        found |= cache.drop_node(name)
    seen = await _take(cache.seen["policy"], client.pages(paths.POLICIES), found, _every, cache.put_policy)
    for name in cache.seen["policy"].missing(seen):
        found |= cache.drop_policy(name)
    if cache.placing.on:
        await _list_placements(context, found)
    found |= {("node", record.node) for record in cache.records.values() if record.node not in cache.nodes}
    found |= {("node", name) for name, state in cache.states.items() if state.plan.change is Change.RELEASE}
    if shared:
        found.add(SHARED_KEY)


async def _list_nodes(context: Context, found: set[Key]) -> set[str]:
    """Put the nodes into the cache. Returns their names.

    A node in full is ten times as large as what is used of it: once they are known, all are listed by their metadata,
    and those in full that a watch has not shown in this version.
    """
    cache, client, selector = context.cache, context.client, context.settings.node_selector
    unread: list[str] = []

    def look(node: JsonObject) -> set[Key]:
        if not cache.knows_node(node["metadata"]):
            unread.append(node["metadata"]["name"])
        return set()

    async def take(put: Callable[[JsonObject], set[Key]], *, only_metadata: bool) -> set[str]:
        pages = client.pages(paths.NODES, selector=selector, only_metadata=only_metadata)
        return await _take(cache.seen["node"], pages, found, _every, put)

    if not cache.full_nodes:
        return await take(cache.put_node, only_metadata=True)
    if cache.nodes:
        seen = await take(look, only_metadata=True)
        if len(unread) <= UNREAD_MOST:
            for name in unread:
                if (node := await read_node_object(client, name, full=True)) is not None:
                    found |= cache.put_node(node)
            return seen
    return await take(cache.put_node, only_metadata=False)


async def _list_placements(context: Context, found: set[Key]) -> None:
    """Put placements and quotas into the cache. Without the kind, or the right to list it, there is nothing to know.

    Then nothing is planned, and nothing that nodes were told is changed; each resync looks again.
    """
    placing, client = context.cache.placing, context.client
    known = False
    try:
        sightings = placing.seen["placement"]
        seen = await _take(sightings, client.pages(paths.placements()), found, _every, placing.put_placement)
        for key in sightings.missing(seen):
            found |= placing.drop_placement(key)
        sightings = placing.seen["quota"]
        seen = await _take(sightings, client.pages(paths.QUOTAS), found, _every, placing.put_quota)
        for key in sightings.missing(seen):
            found |= placing.drop_quota(key)
        known = True
    except ApiError as error:
        if error.status not in {403, 404}:
            raise
        if context.say_once("placements", error.message):
            hint = "apply the CRDs and rights of this version, or set --placement=false"
            log.warning("placements are not planned", error=error.message, hint=hint)
    finally:
        found |= placing.listed(known=known)
    if known and placing.watched is False:
        log.warning("placements are there now: the process ends, to begin anew and watch them")
        context.outdated.set()


def _every(_: JsonObject) -> bool:
    return True


async def _take(
    sightings: Sightings,
    pages: AsyncIterator[Page],
    found: set[Key],
    wanted: Callable[[JsonObject], bool],
    put: Callable[[JsonObject], set[Key]],
) -> set[str]:
    """Put each listed object into the cache. Returns their keys."""
    seen: set[str] = set()
    begun = False
    sightings.ask_list()
    async for page in pages:
        if not begun:
            sightings.start_list(page.version)
            begun = True
        async for item in in_turns(page.items):
            if wanted(item):
                seen.add(sightings.key(item["metadata"]))
                found |= put(item)
    return seen


async def _take_strays(context: Context, found: set[Key], seen: set[str]) -> None:
    """Put nodes with a config label that the node selector leaves out into the cache: what is ours there is an orphan.

    This list is younger than that of the nodes; of what both lack, that one says since when.
    """
    pages = context.client.pages(paths.NODES, selector=names.CONFIG_LABEL, only_metadata=True)
    async for page in pages:
        async for item in in_turns(page.items):
            if item["metadata"]["name"] not in seen:
                seen.add(item["metadata"]["name"])
                found |= context.cache.put_node(item, in_scope=False)


async def evaluate_all(context: Context, keys: set[Key]) -> set[Key]:
    """Decide about many nodes at once, without writing; returns the keys that still need a worker."""
    cache = context.cache
    rest: set[Key] = set()
    async for key in in_turns(sorted(keys)):
        kind, name = key
        if kind != "node" or name not in cache.nodes:
            rest.add(key)
            continue
        rest |= cache.evaluate(name, context.clock())
        plan = cache.states[name].plan
        if cache.placing.to_be_told(name) or plan.actions or plan.wait is not None or plan.change is Change.MANUAL:
            rest.add(key)
    return rest


async def fill(context: Context, lists: ListState) -> None:
    """Fill the cache before anything may be written; a missing CRD or a refused list is waited for, and said."""
    wait = 0.2
    while True:
        try:
            found = await resync(context, lists)
        except ApiError as error:
            hint = "apply the CRDs: kubectl apply -k crds" if error.status == 404 else error.hint
            log.warning("cannot list yet; nothing is written until it works", error=error.message, hint=hint)
            await asyncio.sleep(wait * random.uniform(0.5, 1))
            wait = min(5.0, wait * 2)
            continue
        log.info("caches filled", keys=found, nodes=len(context.cache.nodes), policies=len(context.cache.policies))
        return


async def resync_forever(context: Context, lists: ListState, trigger: asyncio.Event) -> None:
    """Resync each period, jittered, and when a watch listed anew."""
    while True:
        period = context.settings.resync * random.uniform(0.9, 1.1)
        try:
            async with asyncio.timeout(period):
                await trigger.wait()
        except TimeoutError:
            pass
        trigger.clear()
        wait = 0.2
        while True:
            try:
                found = await resync(context, lists)
                log.info("resync", differences=found)
                break
            except ApiError as error:
                log.warning("resync failed; nothing is released", error=error.message, hint=error.hint)
                await asyncio.sleep(max(error.retry_after, wait * random.uniform(0.5, 1)))
            except Exception:
                log.exception("resync failed: this is a bug, please report it")
                await asyncio.sleep(wait)
            wait = min(30.0, wait * 2)
