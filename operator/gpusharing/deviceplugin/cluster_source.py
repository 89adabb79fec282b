"""What the API server says that the plugin should serve: its node's label, and a ConfigMap (decision 37)."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from gpusharing.api import names
from gpusharing.core.errors import ApiError
from gpusharing.core.records import read_record, record_name
from gpusharing.deviceplugin.config_source import Desired, Tell
from gpusharing.kube import paths
from gpusharing.kube.client import Client, JsonObject
from gpusharing.kube.objectwatch import FIRST_PAUSE, LONGEST_PAUSE, watch_object
from gpusharing.observability.logs import logger

log = logger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Node:
    """What counts of the Node."""

    uid: str
    label: str
    runtime_version: str


@dataclass(frozen=True, slots=True)
class _Configs:
    """What counts of the ConfigMap."""

    texts: Mapping[str, str]
    # ours only: who assigned which
    rendered: bool = False
    policy: str = ""
    assigned: str = ""


@dataclass(frozen=True, slots=True)
class _Sight(Generic[T]):
    """What is known of an object: nothing yet, and perhaps why; else what it is, None = it is not there."""

    known: bool = False
    found: T | None = None
    trouble: str = ""

    def troubled(self, trouble: str) -> "_Sight[T]":
        """Return the sight after a failure, which is logged once: what was seen before still stands."""
        if trouble != self.trouble:
            log.warning("not readable for now", error=trouble)
        return replace(self, trouble=trouble)


class ClusterSource:
    """The node's label, and the ConfigMap with a key of that name: our controller's record, or a hand-written one."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        *,
        label: str = names.CONFIG_LABEL,
        namespace: str = names.NAMESPACE,
        config_map: str = "",
        start_within: float = 0.0,
        first_pause: float = FIRST_PAUSE,
        longest_pause: float = LONGEST_PAUSE,
        on_node: Callable[[JsonObject | None], object] = lambda node: None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Watch the Node and its record; with `config_map` (namespace/name) that one instead.

        The API is first asked at some moment of `start_within` seconds: with a checkpoint there is no hurry, and 5,000
        plugins may start at once (F49). `on_node` is handed the Node at each change; None = it is not there.
        """
        self._client = client
        self._node_name = node_name
        self._label = label
        self._config_map = config_map or f"{namespace}/{record_name(node_name)}"
        self._is_record = not config_map
        self._start_within = start_within
        self._pauses = (first_pause, longest_pause)
        self._on_node = on_node
        self._draw = draw
        self._node: _Sight[_Node] = _Sight()
        self._configs: _Sight[_Configs] = _Sight()
        self._told: Desired | None = None

    async def follow(self, tell: Tell) -> None:
        """Tell what label and ConfigMap say, as `ConfigSource` does."""
        await asyncio.sleep(self._draw() * self._start_within)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_node(tell))
            tasks.create_task(self._follow_configs(tell))

    async def _follow_node(self, tell: Tell) -> None:
        def failed(error: ApiError) -> None:
            self._node = self._node.troubled(f"Node {self._node_name} cannot be read: {error}")
            self._say(tell)

        async for node in self._watch(paths.NODES, self._node_name, failed):
            self._on_node(node)
            self._node = _Sight(known=True, found=_node(node, self._label) if node else None)
            self._say(tell)

    async def _follow_configs(self, tell: Tell) -> None:
        def failed(error: ApiError) -> None:
            self._configs = self._configs.troubled(f"ConfigMap {self._config_map} cannot be read: {error}")
            self._say(tell)

        namespace, name = self._config_map.split("/")
        async for configmap in self._watch(paths.configmaps(namespace), name, failed):
            self._configs = _Sight(known=True, found=_configs(configmap, self._is_record) if configmap else None)
            self._say(tell)

    def _watch(
        self, collection: str, name: str, on_error: Callable[[ApiError], None]
    ) -> AsyncIterator[JsonObject | None]:
        first, longest = self._pauses
        return watch_object(self._client, collection, name, on_error=on_error, first_pause=first, longest_pause=longest)

    def _say(self, tell: Tell) -> None:
        desired = self._desired()
        if desired is not None and desired != self._told:
            self._told = desired
            tell(desired)

    def _desired(self) -> Desired | None:
        """Return what is desired by all that is known; None = not known yet, and no reason why."""
        node = self._node.found
        if node is None:
            missing = f"Node {self._node_name} is not there" if self._node.known else self._node.trouble
            return Desired(missing=missing) if missing else None
        desired = Desired(node.label, node_uid=node.uid, runtime_version=node.runtime_version)
        return self._with_text(desired) if node.label else desired

    def _with_text(self, desired: Desired) -> Desired | None:
        configs = self._configs.found
        if configs is None:
            missing = f"ConfigMap {self._config_map} is not there" if self._configs.known else self._configs.trouble
            return replace(desired, missing=missing) if missing else None
        if (text := configs.texts.get(desired.name)) is None:
            return replace(desired, missing=f"ConfigMap {self._config_map} has no key {desired.name}")
        return replace(desired, text=text, rendered=configs.rendered, policy=self._policy(desired.name, configs))

    def _policy(self, name: str, configs: _Configs) -> str:
        """Return whose config it is. The record names the next one a moment before the label does."""
        if configs.assigned == name:
            return configs.policy
        return self._told.policy if self._told and self._told.name == name else ""


def _node(node: JsonObject, label: str) -> _Node:
    metadata, status = node.get("metadata") or {}, node.get("status") or {}
    labels, info = metadata.get("labels") or {}, status.get("nodeInfo") or {}
    return _Node(metadata.get("uid", ""), labels.get(label, ""), info.get("containerRuntimeVersion", ""))


def _configs(configmap: JsonObject, is_record: bool) -> _Configs:
    """Return what a ConfigMap holds; one with a record's name that is not our controller's counts as hand-written."""
    record = read_record(configmap) if is_record else None
    if record is None or not record.ours:
        return _Configs(configmap.get("data") or {})
    return _Configs(record.data, rendered=True, policy=record.policy, assigned=record.config)
