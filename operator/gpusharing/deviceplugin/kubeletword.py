"""What the kubelet says of devices, and how far that counts: it may be about other lists, or another kubelet's."""

import asyncio
from collections.abc import Mapping, Sequence

from gpusharing.core.listing import LINGER
from gpusharing.core.occupancy import PodDevices
from gpusharing.deviceplugin.usage import Usage

Ids = Mapping[str, frozenset[str]]


class KubeletWord:
    """The last look at the kubelet's pod resources, beside when lists changed and kubelets were restarted."""

    def __init__(self, usage: Usage, *, confirm: float = 0.3, linger: float = LINGER) -> None:
        """A look counts if it began `confirm` seconds after a change. Call `restarted` before anything is asked."""
        self._usage = usage
        self._confirm = confirm
        self._linger = linger
        self._changed_at = float("-inf")
        self._restarted_at = float("-inf")

    def lists_changed(self) -> None:
        """Take note of other lists or streams, and have the kubelet asked what it makes of them."""
        self._changed_at = asyncio.get_running_loop().time()
        self._usage.look_within(2 * self._confirm)

    def restarted(self, *, gone: bool = False) -> None:
        """Take note that we began, or that a kubelet ended or began: nothing from before counts (placement guide, 8.2).

        With the last stream it is `gone`, and nothing counts until it has opened one again: a kubelet that has just
        begun may say that nobody holds anything, since it has not read its own checkpoint yet.
        """
        self._restarted_at = float("inf") if gone else asyncio.get_running_loop().time()
        self._usage.forget_pods()

    @property
    def is_gone(self) -> bool:
        """Whether the kubelet is gone."""
        return self._restarted_at == float("inf")

    @property
    def pods(self) -> Sequence[PodDevices] | None:
        """Return who holds what, as this kubelet says; None = it has not."""
        return self._usage.pods if self._counts else None

    @property
    def held(self) -> Ids | None:
        """Return resource → ids that pods hold, or may since; None = this kubelet has not said."""
        return self._usage.held() if self._counts else None

    @property
    def held_or_unconfirmed(self) -> Ids | None:
        """Return the same with all that we gave out and that no look has confirmed."""
        return self._usage.held_or_unconfirmed() if self._counts else None

    @property
    def _counts(self) -> bool:
        return self._usage.looked_at >= self._restarted_at

    @property
    def allocatable(self) -> Ids | None:
        """Return resource → ids that the kubelet may give out, now that it has the lists; None = not known yet."""
        return self._usage.allocatable if self._usage.looked_at >= self._changed_at + self._confirm else None

    @property
    def settled(self) -> Ids | None:
        """Return the same if a GPU may be given to another owner by it: nothing was restarted within `linger`."""
        waited = asyncio.get_running_loop().time() >= self._restarted_at + self._linger
        return self.allocatable if waited else None
