"""The kubelet double itself: its sockets, its calls to plugins, its restarts."""

import asyncio
import os
import stat
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
from tests.support.kubeletdouble.admission import Admission, AdmissionFailed, Held, Pod, Policy
from tests.support.kubeletdouble.devices import (
    Checkpoint,
    DeviceManager,
    Endpoint,
    RegisterRefused,
    Rule,
    check_register,
)
from tests.support.kubeletdouble.podresources import PodResourcesDouble
from tests.support.kubeletdouble.relay import Relay

from gpusharing.deviceplugin.v1beta1 import deviceplugin_v1beta1_pb2 as pb
from gpusharing.deviceplugin.v1beta1.deviceplugin_v1beta1_pb2_grpc import (
    DevicePluginStub,
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)

_CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 4 << 20)]


@dataclass(slots=True)
class Behaviour:
    """How this kubelet behaves towards plugins; may be changed while it runs. Seconds."""

    # `Register` fails with this text
    refuse: str = ""
    # `Register` of these resources alone fails so
    refuse_resources: dict[str, str] = field(default_factory=dict)
    # before it dials back; for ever if infinite
    dial_delay: float = 0.0
    dial_limit: float = 10.0
    streams: int = 1
    # the stream opens before `Register` is answered, and the answer takes this much longer
    stream_before_answer: float = 0.0
    # close the stream, or stop reading, after so many messages; 0 = never
    close_after: int = 0
    stall_after: int = 0
    # from the start of the kubelet to the pods' admission anew; tests that do not want to race it call `readmit`
    readmit: float = 0.8
    # ask for preferences and take none: no kubelet is so
    takes_no_advice: bool = False


class _Registration(RegistrationServicer):
    def __init__(self, kubelet: "KubeletDouble") -> None:
        self._kubelet = kubelet

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.Empty:
        try:
            await self._kubelet.register(request)
        except RegisterRefused as refused:
            await context.abort(grpc.StatusCode.UNKNOWN, str(refused))
        return pb.Empty()


@dataclass(eq=False, slots=True)
class Connection:
    """The kubelet's side of one registration."""

    channel: grpc.aio.Channel
    stub: DevicePluginStub
    streams: list[asyncio.Task[None]] = field(default_factory=list)
    received: int = 0


class KubeletDouble:
    """A context manager: started on entry, dead after."""

    def __init__(
        self,
        folder: Path,
        *,
        rule: Rule = "1.34",
        behaviour: Behaviour | None = None,
        clock: Callable[[], float] | None = None,
        policy: Policy = "none",
        numa_nodes: int = 1,
        seed: int = 0,
    ) -> None:
        self.folder = folder
        self.rule: Rule = rule
        self.behaviour = behaviour or Behaviour()
        self._clock = clock or (lambda: asyncio.get_running_loop().time())
        self._policy: Policy = policy
        self._numa_nodes = numa_nodes
        self._seed = seed
        self._checkpoint: Checkpoint | None = Checkpoint()
        self._pods: list[Pod] = []
        self._node: dict[str, tuple[int, int]] = {}
        self.running = False
        # what happened, over all restarts: (resource, endpoint) of each `Register`; why pods failed; lists read
        self.registers: list[tuple[str, str]] = []
        self.failed: dict[str, str] = {}
        self.lists: Counter[str] = Counter()

    async def __aenter__(self) -> "KubeletDouble":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    # --- start, end --------------------------------------------------------------------------------------------

    @property
    def socket(self) -> Path:
        """`kubelet.sock`."""
        return self.folder / "kubelet.sock"

    @property
    def pod_resources_socket(self) -> Path:
        """The socket of the pod resources API."""
        return self.folder.parent / "pod-resources" / "kubelet.sock"

    async def start(self) -> None:
        """Read the checkpoint, remove every socket in the folder, and listen on a new `kubelet.sock`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.manager = DeviceManager(self.rule, self._clock, self._checkpoint)
        self.admission = Admission(
            self.manager,
            self,
            policy=self._policy,
            numa_nodes=self._numa_nodes,
            seed=self._seed,
            pods=self._pods,
        )
        self._serial = asyncio.Lock()
        self._connections: dict[Endpoint, Connection] = {}
        self._changed = asyncio.Event()
        for entry in self.folder.iterdir():
            with suppress(FileNotFoundError):  # the plugin removes its own, too
                if stat.S_ISSOCK(entry.lstat().st_mode):
                    entry.unlink()
        target = f"kubelet-double-{uuid4()}"
        self._server = grpc.aio.server()
        add_RegistrationServicer_to_server(_Registration(self), self._server)
        self._server.add_insecure_port(f"unix-abstract:{target}")
        await self._server.start()
        self._relay = Relay(self.socket, target)
        await self._relay.start()
        self.pod_resources = PodResourcesDouble(self)
        await self.pod_resources.start(self.pod_resources_socket)
        self.running = True
        self._readmission = asyncio.create_task(self._readmit_later(list(self._pods)))

    async def kill(self) -> None:
        """Die: streams break, nothing in the folder changes."""
        if not self.running:
            return
        self.running = False
        self._checkpoint = self.manager.checkpoint()
        self.count()
        self._readmission.cancel()
        for endpoint in list(self._connections):
            await self._disconnect(endpoint)
        await self._relay.stop()
        await self._server.stop(0)
        await self.pod_resources.stop()

    async def restart(self, *, down: float = 0.0, checkpoint: bool = True) -> None:
        """`kill -9` and a new start; without its checkpoint it has forgotten who holds what, and every resource."""
        await self.kill()
        if not checkpoint:
            self._checkpoint = None
        await asyncio.sleep(down)
        await self.start()

    # --- registration ------------------------------------------------------------------------------------------

    async def register(self, request: pb.RegisterRequest) -> None:
        """What `Register` does (3.1). Raises RegisterRefused."""
        name, behaviour = request.resource_name, self.behaviour
        self.registers.append((name, request.endpoint))
        check_register(request.version, name)
        if text := behaviour.refuse_resources.get(name) or behaviour.refuse:
            raise RegisterRefused(text)
        endpoint = Endpoint(name, str(self.folder / request.endpoint))
        self.manager.check_free(endpoint)
        await asyncio.sleep(min(behaviour.dial_delay, 3600))
        connection = await self._dial(endpoint)
        self.manager.connected(endpoint)
        self._connections[endpoint] = connection
        if behaviour.stream_before_answer:
            self._open_streams(endpoint, connection)
            await asyncio.sleep(behaviour.stream_before_answer)
        else:
            asyncio.get_running_loop().call_soon(self._open_streams, endpoint, connection)

    async def _dial(self, endpoint: Endpoint) -> Connection:
        channel = grpc.aio.insecure_channel(f"unix:{endpoint.socket}", options=_CHANNEL)
        try:
            async with asyncio.timeout(self.behaviour.dial_limit):
                # waits the whole time for a socket that is not there
                while not os.path.exists(endpoint.socket):
                    await asyncio.sleep(0.01)
                await channel.channel_ready()
        except TimeoutError:
            await channel.close(None)
            raise RegisterRefused("failed to dial device plugin: context deadline exceeded") from None
        stub = DevicePluginStub(channel)
        try:
            options = await stub.GetDevicePluginOptions(pb.Empty())
        except grpc.aio.AioRpcError as error:
            await channel.close(None)
            raise RegisterRefused(f"failed to get device plugin options: {error.details()}") from None
        endpoint.preferred = options.get_preferred_allocation_available
        endpoint.pre_start = options.pre_start_required
        return Connection(channel, stub)

    # --- streams -----------------------------------------------------------------------------------------------

    def _open_streams(self, endpoint: Endpoint, connection: Connection) -> None:
        for _ in range(self.behaviour.streams):
            connection.streams.append(asyncio.create_task(self._read(endpoint, connection)))

    async def _read(self, endpoint: Endpoint, connection: Connection) -> None:
        behaviour = self.behaviour
        with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            async for message in connection.stub.ListAndWatch(pb.Empty()):
                self._take(endpoint.resource, message)
                connection.received += 1
                if connection.received == behaviour.close_after:
                    break
                if connection.received == behaviour.stall_after:
                    await asyncio.Event().wait()
        if self.running:
            await self._stream_ended(endpoint)

    def _take(self, resource: str, message: pb.ListAndWatchResponse) -> None:
        self.lists[resource] += 1
        self.manager.listed(
            resource,
            ((entry.ID, entry.health, tuple(node.ID for node in entry.topology.nodes)) for entry in message.devices),
        )
        self._tell()

    async def _stream_ended(self, endpoint: Endpoint) -> None:
        victim = self.manager.ended(endpoint)
        for gone in {endpoint, victim} - {None}:
            # a client that was forgotten is left alone: its stream goes on
            if gone is not None and (victim is not None or self.rule == "1.34"):
                await self._disconnect(gone)
        self._tell()

    async def _disconnect(self, endpoint: Endpoint) -> None:
        if connection := self._connections.pop(endpoint, None):
            for task in connection.streams:
                if task is not asyncio.current_task():
                    task.cancel()
            await connection.channel.close(None)

    async def close_streams(self) -> None:
        """Hang up on every plugin, and live on."""
        for endpoint, connection in list(self._connections.items()):
            for task in connection.streams:
                task.cancel()
            await self._stream_ended(endpoint)

    def streams(self, resource: str) -> int:
        """How many streams are open."""
        return sum(
            not task.done()
            for endpoint, connection in self._connections.items()
            for task in connection.streams
            if endpoint.resource == resource
        )

    # --- pods --------------------------------------------------------------------------------------------------

    async def admit(self, pod: Pod) -> Held:
        """Admit a pod, after those that are being admitted. Raises AdmissionFailed with the text of its status."""
        async with self._serial:
            held = await self.admission.admit(pod)
        self._pods.append(pod)
        return held

    async def delete(self, pod: Pod) -> None:
        """End a pod, once no other is being admitted."""
        async with self._serial:
            self._forget(pod)

    def _forget(self, pod: Pod) -> None:
        self.admission.delete(pod)
        self._pods = [other for other in self._pods if other is not pod]

    async def _readmit_later(self, pods: Sequence[Pod]) -> None:
        await asyncio.sleep(self.behaviour.readmit)
        await self.readmit(pods)

    async def readmit(self, pods: Sequence[Pod] | None = None) -> None:
        """Admit pods of before once more, as happens after a start: one that held devices fails if no list has come.

        None = all that there are.
        """
        for pod in [pod for pod in self._pods if pods is None or pod in pods]:
            try:
                async with self._serial:
                    await self.admission.admit(pod)
            except AdmissionFailed as error:
                self.failed[pod.name] = str(error)
                self._forget(pod)

    async def prefer(
        self, endpoint: Endpoint, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        """Call the plugin; without a deadline."""
        each = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        answer = await self._call(
            endpoint,
            lambda stub: stub.GetPreferredAllocation(pb.PreferredAllocationRequest(container_requests=[each])),
        )
        taken = [] if self.behaviour.takes_no_advice else answer.container_responses[:1]
        return [device for response in taken for device in response.deviceIDs]

    async def allocate(self, endpoint: Endpoint, ids: Sequence[str]) -> pb.AllocateResponse:
        """Call the plugin; without a deadline."""
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids)])
        answer: pb.AllocateResponse = await self._call(endpoint, lambda stub: stub.Allocate(request))
        return answer

    async def _call(self, endpoint: Endpoint, call: Callable[[DevicePluginStub], Any]) -> Any:
        connection = self._connections.get(endpoint)
        if connection is None:
            raise AdmissionFailed(
                "rpc error: code = Unavailable desc = connection error: desc = "
                f'"transport: Error while dialing: dial unix {endpoint.socket}: connect: no such file or directory"'
            )
        try:
            return await call(connection.stub)
        except asyncio.CancelledError:
            if endpoint in self._connections:
                raise
            # the stream has ended meanwhile, and the kubelet has hung up
            text = "rpc error: code = Canceled desc = grpc: the client connection is closing"
            raise AdmissionFailed(text) from None
        except grpc.aio.AioRpcError as error:
            code = error.code().name.title().replace("_", "")
            raise AdmissionFailed(f"rpc error: code = {code} desc = {error.details()}") from error

    # --- what a node shows -------------------------------------------------------------------------------------

    def count(self) -> dict[str, tuple[int, int]]:
        """A node-status pass: (capacity, allocatable) of each resource. A key never goes away."""
        counts = self.manager.counts()
        for name in counts.removed:
            self._node[name] = (0, 0)
        for name, capacity in counts.capacity.items():
            self._node[name] = (capacity, counts.allocatable[name])
        return dict(self._node)

    async def until(self, holds: Callable[[], object], what: str, *, guard: float = 20.0) -> None:
        """Wait until it holds; looks after each list and each end of a stream, and now and then. A hang guard fails."""
        try:
            async with asyncio.timeout(guard):
                while not holds():
                    self._changed.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.02):
                            await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {guard:g} s: {what}; {self.count()}, {self.registers[-3:]}") from None

    def _tell(self) -> None:
        self._changed.set()
