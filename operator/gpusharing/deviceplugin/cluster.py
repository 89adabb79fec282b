"""The plugin's side towards the API server: what is desired, and the report. Imported late, see `app.py`."""

import asyncio

from gpusharing.core.nodeproblems import Observed
from gpusharing.deviceplugin.cluster_source import ClusterSource
from gpusharing.deviceplugin.config_source import Tell
from gpusharing.deviceplugin.node_report import NodeReporter, ReportTimes
from gpusharing.deviceplugin.settings import Settings
from gpusharing.kube import paths
from gpusharing.kube.client import Call, Client, connect
from gpusharing.kube.objectwatch import watch_object
from gpusharing.observability.pluginmetrics import PluginMetrics


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

    @classmethod
    async def join(cls, settings: Settings, metrics: PluginMetrics, *, has_checkpoint: bool) -> "Cluster":
        """Find the API server. Raises InvalidInput where nothing says which one, or by what right."""

        def count(call: Call) -> None:
            metrics.observe_call(call.verb, call.path, call.code, call.seconds)

        client = await connect(settings.kubeconfig, settings.context, timeout=settings.request_timeout, on_call=count)
        return cls(settings, client, metrics, has_checkpoint=has_checkpoint)

    def report(self, observed: Observed) -> None:
        """Report this from now on."""
        if self._reporter is not None:
            self._reporter.report(observed)

    async def run(self, tell: Tell) -> None:
        """Tell what is desired, unless a config file says it, and report; until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                if not self._settings.config_file:
                    tasks.create_task(self._source().follow(tell))
                if self._reporter is not None:
                    tasks.create_task(self._reporter.run())
                    if self._settings.config_file:
                        tasks.create_task(self._follow_node(self._reporter))
        finally:
            await self._client.close()

    def _source(self) -> ClusterSource:
        settings = self._settings
        return ClusterSource(
            self._client,
            settings.node_name,
            label=settings.node_label,
            namespace=settings.namespace,
            config_map=settings.config_map,
            start_within=self._start_within,
            longest_pause=settings.retry_max,
            on_node=self._reporter.see_node if self._reporter else lambda node: None,
        )

    async def _follow_node(self, reporter: NodeReporter) -> None:
        """Show the reporter its Node, which a config file alone never looks at."""
        async for node in watch_object(self._client, paths.NODES, self._settings.node_name):
            reporter.see_node(node)
