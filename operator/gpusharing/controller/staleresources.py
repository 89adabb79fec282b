"""`gpusharing remove-stale-resources`: takes names from Nodes that the kubelet shows with 0 devices for ever (F51).

It looks twice. A plugin that is being updated is away for a while, and a kubelet keeps a resource for five minutes
after the end of its plugin and would write the name back. What is at 0 both times, and served by nothing, goes.
"""

import asyncio
from collections.abc import Sequence

from pydantic import ValidationError

from gpusharing.api.node import GpuNodeStatus
from gpusharing.controller.app import connect_client
from gpusharing.controller.settings import Settings, read_settings
from gpusharing.core.errors import ApiError
from gpusharing.core.staleresources import Look, after_two_looks, look
from gpusharing.kube import paths
from gpusharing.kube.apply import remove_node_resources
from gpusharing.kube.client import Client, JsonObject
from gpusharing.observability.logs import configure_logs
from gpusharing.observability.metrics import Metrics

WHAT = "Takes resources that nothing serves any more, and that have had 0 devices for a while, from the Nodes."
_HINTS = {
    403: "an administrator may, and the account that config/components/stale-resources makes",
    404: "without GpuNodes nobody knows what was served: run it before you delete the CRDs",
}


def main(arguments: Sequence[str]) -> int:
    """Run `gpusharing remove-stale-resources`. Returns 0, or 1 where a Node could not be written."""
    settings = read_settings(arguments, program="gpusharing remove-stale-resources", what=WHAT)
    configure_logs("console", "WARNING")
    return asyncio.run(run(settings))


async def run(settings: Settings) -> int:
    """Run with the rights that the settings give. Raises ApiError with a hint for those that are missing."""
    client = await connect_client(settings, Metrics())
    try:
        return await remove_stale_resources(client, settings)
    except ApiError as error:
        raise ApiError(error.message, status=error.status, hint=_HINTS.get(error.status, error.hint)) from error
    finally:
        await client.close()


async def remove_stale_resources(client: Client, settings: Settings) -> int:
    """Look at all Nodes twice, and take from them what could go both times. Returns the exit code."""
    before = await _look_at_all(client, settings.node_selector)
    for node, seen in before.items():
        for resource, why in seen.stays.items():
            _say(f"{node}: {resource} {f'stays: {why}' if why else 'has 0 devices'}")
    if not any(seen.removable for seen in before.values()):
        _say("there is nothing to remove")
        return 0
    _say(f"looking again in {settings.stale_after:.0f} s: what has 0 devices then too goes")
    await asyncio.sleep(settings.stale_after)
    now = await _look_at_all(client, settings.node_selector)
    results = [await _remove_from(client, node, seen, now.get(node)) for node, seen in before.items()]
    return 0 if all(results) else 1


async def _look_at_all(client: Client, selector: str) -> dict[str, Look]:
    """Look at each Node of which there is a report that can be read."""
    reports = {item["metadata"]["name"]: _report(item) for item in await client.list(paths.GPU_NODES)}
    looks = {}
    async for page in client.pages(paths.NODES, selector=selector):
        for node in page.items:
            metadata, status = node["metadata"], node.get("status") or {}
            if report := reports.get(metadata["name"]):
                shown = (status.get("capacity") or {}, status.get("allocatable") or {})
                looks[metadata["name"]] = look(metadata["uid"], report, *shown)
    return looks


def _report(gpu_node: JsonObject) -> GpuNodeStatus | None:
    try:
        return GpuNodeStatus.model_validate(gpu_node.get("status") or {})
    except ValidationError:
        return None


async def _remove_from(client: Client, node: str, before: Look, now: Look | None) -> bool:
    """Take from a Node what could go at both looks. Returns False if that failed."""
    outcome = dict(after_two_looks(before, now))
    going = [resource for resource, why in outcome.items() if not why]
    try:
        if going and not await remove_node_resources(client, node, before.uid, going):
            outcome |= dict.fromkeys(going, "the Node has changed just now")
    except ApiError as error:
        if error.status == 403:
            raise
        _say(f"{node}: {error}")
        return False
    for resource, why in outcome.items():
        _say(f"{node}: {resource} {f'stays: {why}' if why else 'removed'}")
    return True


def _say(text: str) -> None:
    print(text, flush=True)
