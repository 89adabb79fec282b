"""A resource that a test holds in its hands: what the kubelet edge asks the plugin, answered from a list."""

from collections.abc import Awaitable, Callable, Collection, Sequence

from gpusharing.core.allocation.request import Choice
from gpusharing.core.edits import Edits
from gpusharing.core.errors import InvalidInput
from gpusharing.core.kubeletchoice import Offer, Verdict, judge
from gpusharing.core.listing import Entry
from gpusharing.core.resources import Device, Resource
from gpusharing.core.serving import ServedConfig

GPU = "nvidia.com/gpu"


def devices(count: int, *, numa_node: int | None = 0) -> tuple[Device, ...]:
    """So many GPUs."""
    return tuple(Device(f"GPU-{n}", f"GPU-{n}", f"GPU-{n}", numa_node) for n in range(count))


class StubView:
    """`show` changes the list; `on_prefer` and `on_allocate`, when set, answer instead."""

    def __init__(self, count: int = 8, name: str = GPU) -> None:
        self.name = name
        self.policy = "packed"
        self.verdicts: list[Verdict] = []
        self.show(devices(count))
        self.on_prefer: Callable[[Collection[str], Sequence[str], int], Awaitable[Sequence[str]]] | None = None
        self.on_allocate: Callable[[Sequence[str]], Awaitable[Edits]] | None = None
        self.open = self.answered = 0

    def show(self, shown: Sequence[Device], *, sick: Sequence[str] = ()) -> None:
        """List these, and those as unhealthy."""
        self._listed = tuple((device, device.id not in sick) for device in shown)

    def listed(self) -> Sequence[tuple[Device, bool]]:
        return self._listed

    async def prefer(self, available: Collection[str], must_include: Sequence[str], size: int) -> Choice:
        if self.on_prefer:
            return Choice(tuple(await self.on_prefer(available, must_include, size)))
        rest = sorted(set(available) - set(must_include))
        return Choice((*must_include, *rest[: size - len(must_include)]))

    def judge(self, offer: Offer, ids: Sequence[str]) -> Verdict:
        entries = {device.id: Entry(device, Resource(self.name, ()), ServedConfig()) for device, _ in self._listed}
        verdict = judge(offer, ids, entries)
        self.verdicts.append(verdict)
        return verdict

    async def allocate(self, ids: Sequence[str]) -> Edits:
        if self.on_allocate:
            return await self.on_allocate(ids)
        unknown = set(ids) - {device.id for device, _ in self._listed}
        if unknown:
            raise InvalidInput(f"{self.name} has no device {min(unknown)!r}", hint="delete the pod")
        return Edits(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(sorted(ids))})

    def opened(self) -> None:
        self.open += 1

    def closed(self) -> None:
        self.open -= 1
        self.answered += 1
