"""The plugin's side towards the API server: what is desired, and the report. Imported late, see `app.py`."""

import asyncio
import random

from pydantic import ValidationError

from gpusharing.core.errors import ApiError
from gpusharing.core.nodeproblems import Observed
from gpusharing.core.reservations import Wanted, wanted_of
from gpusharing.core.staleresources import NONE
from gpusharing.deviceplugin.cluster_source import ClusterSource
from gpusharing.deviceplugin.node_report import NodeReporter, ReportTimes
from gpusharing.deviceplugin.plugin import Plugin
from gpusharing.deviceplugin.settings import Settings
from gpusharing.deviceplugin.stalenames import StaleNames
from gpusharing.kube import paths
from gpusharing.kube.client import Call, Client, JsonObject, connect
from gpusharing.kube.objectwatch import watch_object
from gpusharing.observability.logs import logger
from gpusharing.observability.pluginmetrics import PluginMetrics

log = logger(__name__)


class Cluster:
    """One client, and what is asked and told through it."""

    def __init__(self, settings: Settings, client: Client, metrics: PluginMetrics, *, has_checkpoint: bool) -> None:
        self._settings = settings
        self._client = client
        self._start_within = settings.first_request_within if has_checkpoint else 0.0
        self._reporter = (
            NodeReporter(
                client,
                settings.node_name,
                times=ReportTimes(
                    spacing=settings.report_spacing,
                    occupancy=settings.occupancy_spacing,
                    jitter=settings.occupancy_spacing / 5,
                    start=settings.first_request_within,
                    longest_pause=2 * settings.retry_max,
                ),
                has_checkpoint=has_checkpoint,
                on_write=lambda result: metrics.report_writes_total.labels(result).inc(),
            )
            if settings.reports
            else None
        )

        follows = settings.remove_stale_names and not settings.config_file
        self._stale_names = StaleNames(client, settings.node_name) if follows else None

    @classmethod
    async def join(cls, settings: Settings, metrics: PluginMetrics, *, has_checkpoint: bool) -> "Cluster":
        """Find the API server. Raises InvalidInput where nothing says which one, or by what right."""

        def count(call: Call) -> None:
            metrics.observe_call(call.verb, call.path, call.code, call.seconds)

        client = await connect(settings.kubeconfig, settings.context, timeout=settings.request_timeout, on_call=count)
        return cls(settings, client, metrics, has_checkpoint=has_checkpoint)

    def report(self, observed: Observed) -> None:
        """Report this from now on, and go by it."""
        if self._reporter is not None:
            self._reporter.report(observed)
        if self._stale_names is not None:
            self._stale_names.see(observed)

    async def run(self, plugin: Plugin) -> None:
        """Tell what is desired and reserved, unless a config file says it, and report; until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                if not self._settings.config_file:
                    tasks.create_task(self._source(plugin).follow(plugin.desire))
                    tasks.create_task(self._follow_gpu_node(plugin))
                if self._stale_names is not None:
                    tasks.create_task(self._stale_names.run())
                if self._reporter is not None:
                    tasks.create_task(self._reporter.run())
                    if self._settings.config_file:
                        tasks.create_task(self._follow_node(self._reporter))
                        tasks.create_task(self._follow_gpu_node(None))
        finally:
            await self._client.close()

    def _source(self, plugin: Plugin) -> ClusterSource:
        settings = self._settings

        def on_node(node: JsonObject | None) -> None:
            plugin.see_node(shown_resources(node))
            if self._reporter is not None:
                self._reporter.see_node(node)
            if self._stale_names is not None:
                self._stale_names.see_node(node)

        return ClusterSource(
            self._client,
            settings.node_name,
            label=settings.node_label,
            namespace=settings.namespace,
            config_map=settings.config_map,
            start_within=self._start_within,
            longest_pause=settings.retry_max,
            on_node=on_node,
        )

    async def _follow_gpu_node(self, plugin: Plugin | None) -> None:
        """Tell the plugin what its `GpuNode` wants reserved, and show it to the reporter."""

        def failed(error: ApiError) -> None:
            log.warning("GpuNode not readable for now", error=str(error))
            if plugin is not None and error.status == 404:  # the kind is not there, so nothing is reserved by it
                plugin.reserve(Wanted())

        await asyncio.sleep(random.random() * self._start_within)
        async for found in watch_object(
            self._client,
            paths.GPU_NODES,
            self._settings.node_name,
            on_error=failed,
            longest_pause=self._settings.retry_max,
        ):
            if plugin is not None:
                plugin.reserve(_wanted(found))
            if self._reporter is not None:
                self._reporter.see_gpu_node(found)

    async def _follow_node(self, reporter: NodeReporter) -> None:
        """Show the reporter its Node, which a config file alone never looks at."""
        async for node in watch_object(self._client, paths.NODES, self._settings.node_name):
            reporter.see_node(node)


def shown_resources(node: JsonObject | None) -> dict[str, str]:
    """Return resource → quantity as the Node shows it; 0 only where neither capacity nor allocatable has any."""
    status = (node or {}).get("status") or {}
    return {**(status.get("capacity") or {}), **_some(status.get("capacity")), **_some(status.get("allocatable"))}


def _some(quantities: JsonObject | None) -> dict[str, str]:
    return {name: count for name, count in (quantities or {}).items() if count != NONE}


def _wanted(gpu_node: JsonObject | None) -> Wanted:
    """Return what the object wants reserved; of one that cannot be read that is not known."""
    try:
        return wanted_of(gpu_node)
    except ValidationError as error:
        log.warning("the reservations of the GpuNode cannot be read", error=str(error))
        return Wanted()
