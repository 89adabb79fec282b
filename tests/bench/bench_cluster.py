"""The cluster under the bench: fills it, puts it back to before the first write, watches and counts the writes."""

import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import aiohttp
from tests.bench import fleet
from tests.support.cluster.api import Api
from tests.support.cluster.local import LocalCluster
from tests.support.install import install

from gpusharing.api import names
from gpusharing.core.desired_state import Policy, compile_policy
from gpusharing.core.matching import read_node
from gpusharing.core.records import record_object, wanted_record
from gpusharing.kube import paths
from gpusharing.kube.client import Client, connect, metadata_only

AT_ONCE = 24
RECORDS = paths.configmaps(names.NAMESPACE)
_TOTAL = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = {"APPLY", "PATCH", "POST", "PUT", "DELETE"}


def say(text: str) -> None:
    """Talk goes to standard error; standard output is for the table."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def count_writes(metrics: str) -> Counter[str]:
    """Requests that write, by resource (`nodes`, `gpusharingpolicies/status`), from the API server's /metrics."""
    counts: Counter[str] = Counter()
    for found in _TOTAL.finditer(metrics):
        labels = dict(_LABEL.findall(found["labels"]))
        if labels.get("verb") in _WRITES:
            resource = "/".join(filter(None, (labels.get("resource"), labels.get("subresource"))))
            counts[resource] += int(float(found["count"]))
    return counts


class BenchCluster:
    """A control plane with the product installed, and clients for an administrator and for the controller's account."""

    def __init__(self, local: LocalCluster, admin: Client, account: Client, account_file: Path) -> None:
        self.local = local
        self.admin = admin
        self.account = account
        self.account_file = account_file
        # the pool of each node, by its number
        self.pools: list[int] = []
        self.policies: list[Policy] = []

    @classmethod
    async def start(cls, local: LocalCluster) -> "BenchCluster":
        install(local)
        account_file = local.kubeconfig_for("gpu-sharing-operator", names.NAMESPACE)
        admin = await connect(str(local.kubeconfig), timeout=120)
        return cls(local, admin, await connect(str(account_file), timeout=120), account_file)

    async def close(self) -> None:
        await self.admin.close()
        await self.account.close()

    # --- filling

    async def grow_nodes(self, count: int, pools: int) -> None:
        """Create nodes up to this number."""
        new = range(len(self.pools), count)
        await self._each("nodes", new, lambda number: self._create_node(number, pools))
        self.pools += [number % pools for number in new]

    async def _create_node(self, number: int, pools: int) -> None:
        await self.admin.create(f"{paths.NODES}?fieldManager=kubelet", fleet.node_object(number, pools))
        path = f"{paths.NODES}/{fleet.node_name(number)}/status?fieldManager=kubelet"
        await self.admin.merge(path, {"status": fleet.node_status(number)})

    async def create_policies(self, count: int) -> None:
        """Create policies up to this number."""
        for number in range(len(self.policies), count):
            created = await self.admin.create(paths.POLICIES, fleet.policy_object(number))
            self.policies.append(compile_policy(created, "per-node"))

    async def report(self) -> None:
        """Let every node's plugin report that it serves the config of its pool's policy."""
        await self._each("reports", range(len(self.pools)), self._create_report)

    async def _create_report(self, number: int) -> None:
        rendered = self.policies[self.pools[number]].rendered
        assert rendered is not None
        report = fleet.report_object(number, rendered)
        await self.admin.create(paths.GPU_NODES, report)
        path = f"{paths.GPU_NODES}/{report['metadata']['name']}/status"
        await self.admin.merge(path, {"status": report["status"]})

    async def back_to_cold(self) -> None:
        """Take every policy, record and label away, as if nothing had ever been written."""
        await self.admin.delete(paths.POLICIES)
        self.policies.clear()
        await self.admin.delete(RECORDS)
        await self.admin.delete(paths.EVENTS)
        await self._each("labels", range(len(self.pools)), self._take_label)

    async def _take_label(self, number: int) -> None:
        name = fleet.node_name(number)
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        await self.admin.apply(f"{paths.NODES}/{name}", body, manager=names.FIELD_MANAGER, only_metadata=True)

    async def _each(self, what: str, numbers: Iterable[int], job: Callable[[int], Awaitable[None]]) -> None:
        """Do the job for every number, some at once, with progress."""
        numbers = list(numbers)
        waiting, done, said = iter(numbers), 0, time.monotonic()

        async def work() -> None:
            nonlocal done, said
            for number in waiting:
                await job(number)
                done += 1
                if time.monotonic() - said > 10:
                    said = time.monotonic()
                    say(f"  {what}: {done:,} of {len(numbers):,}")

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))

    # --- looking

    async def wrong_labels(self) -> list[str]:
        """Nodes whose config label is not that of their pool's policy."""
        found = await self.admin.list(paths.NODES, only_metadata=True)
        labels = {item["metadata"]["name"]: item["metadata"]["labels"].get(names.CONFIG_LABEL) for item in found}
        return [name for name, policy in self._owners() if policy.rendered and labels[name] != policy.rendered.name]

    def _owners(self) -> Iterator[tuple[str, Policy]]:
        for number, pool in enumerate(self.pools):
            yield fleet.node_name(number), self.policies[pool]

    async def writes_to_make(self) -> list[dict[str, Any]]:
        """What a controller has to write from cold, in the order of names."""
        nodes = {
            item["metadata"]["name"]: read_node(item) for item in await self.admin.list(paths.NODES, only_metadata=True)
        }
        records = [
            wanted_record(nodes[name], policy, "per-node", None, None)
            for name, policy in sorted(self._owners(), key=itemgetter(0))
        ]
        return [
            {
                "node": record.node,
                "uid": record.node_uid,
                "value": record.config,
                "record": record_object(record, names.NAMESPACE),
            }
            for record in records
        ]

    def writes(self) -> Counter[str]:
        """All writes so far, by resource, as the API server counts them."""
        with Api(self.local.kubeconfig) as api:
            return count_writes(str(api.raw("GET", "/metrics")["text"]))


class Observer:
    """Watches nodes and records, and notes when each change arrives; a context manager."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.seen: dict[str, list[float]] = {paths.NODES: [], RECORDS: []}
        # node → config label → when it was first seen with it
        self.labelled: dict[str, dict[str, float]] = {}
        # node → pool label → when it was first seen with it
        self.moved: dict[str, dict[str, float]] = {}
        self._news = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Observer":
        tls = aiohttp.TCPConnector(ssl=self._client.tls)
        self._session = aiohttp.ClientSession(connector=tls, timeout=aiohttp.ClientTimeout(), read_bufsize=1 << 20)
        for path in self.seen:
            accept = metadata_only("PartialObjectMetadataList")
            version = (await self._client.get(f"{path}?limit=1", accept=accept))["metadata"]["resourceVersion"]
            self._tasks.append(asyncio.create_task(self._watch(path, version)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def _watch(self, path: str, version: str) -> None:
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "3600"}
        headers = {"Accept": metadata_only()}
        if token := await self._client.authorization():
            headers["Authorization"] = token
        async with self._session.get(f"{self._client.server}{path}", params=query, headers=headers) as response:
            response.raise_for_status()
            async for line in response.content:
                await self._note(path, json.loads(line)["object"]["metadata"])

    async def _note(self, path: str, metadata: dict[str, Any]) -> None:
        now = time.monotonic()
        self.seen[path].append(now)
        if path == paths.NODES:
            labels = metadata.get("labels") or {}
            for key, known in ((names.CONFIG_LABEL, self.labelled), (fleet.POOL_LABEL, self.moved)):
                known.setdefault(metadata["name"], {}).setdefault(labels.get(key, ""), now)
        async with self._news:
            self._news.notify_all()

    async def until(self, check: Callable[[], bool], *, within: float = 600) -> None:
        """Wait until the check holds; it is asked after each change."""
        async with asyncio.timeout(within), self._news:
            await self._news.wait_for(check)

    async def quiet(self, seconds: float) -> None:
        """Wait until nothing has changed for so long."""
        begun = time.monotonic()
        while True:
            last = max((moment for seen in self.seen.values() for moment in seen[-1:]), default=begun)
            if (left := last + seconds - time.monotonic()) <= 0:
                return
            await asyncio.sleep(left)

    def first_to_last(self) -> float:
        """Seconds from the first to the last change of a node or a record."""
        moments = sorted(moment for seen in self.seen.values() for moment in seen)
        return moments[-1] - moments[0]
