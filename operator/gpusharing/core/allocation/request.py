"""What the kubelet asks of an allocation, and what it is told: ids in, ids out."""

from collections.abc import Collection, Mapping, Sequence, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, NewType, Protocol

if TYPE_CHECKING:
    from gpusharing.core.allocation.buckets import Buckets

# How much of a GPU is in use: GPU slices of its MIG instances, then ids. One number, so that loads add and compare.
Load = NewType("Load", int)
_SLICE = 1 << 32
# Why there is no preference; empty = there is one. `size`: nothing is asked for. `must-include`: more must be included
# than is asked for, or (whole GPUs) something that is not available. `insufficient`: too few are free.
# `split`: no single GPU holds the request, and `keepTogether: required` forbids to split it.
Refusal = Literal["", "size", "must-include", "insufficient", "split"]


def load(*, slices: int = 0, ids: int = 0) -> Load:
    """Return the load of so many GPU slices and ids; slices count first (decision 52)."""
    return Load(slices * _SLICE + ids)


def slices_and_ids(it: Load) -> tuple[int, int]:
    """Return the two parts of a load."""
    return divmod(it, _SLICE)


_NOTHING: Mapping[str, Load] = MappingProxyType({})


class AllocationRequest(NamedTuple):
    """One container's request for one resource, and what is known of the node at that moment.

    A named tuple, as `Choice` is: made for every call, in a third of the time that a frozen dataclass takes.
    """

    # a frozenset is taken as it is
    available: Collection[str]
    size: int
    must_include: Collection[str] = ()
    # ids of this resource whose GPU, MIG device or share is sick
    sick: Set[str] = frozenset()
    # those of the sick ones that a container still holds
    sick_and_held: Set[str] = frozenset()
    # GPU uuid → what all other resources use of it (`buckets.other_load`)
    other_load: Mapping[str, Load] = _NOTHING


class Choice(NamedTuple):
    """The preferred ids: exactly as many as were asked for, the must-include ones first; or none, and why."""

    ids: tuple[str, ...] = ()
    refusal: Refusal = ""
    # ids of the request that the resource does not have, sorted
    unknown: tuple[str, ...] = ()


class AllocationPolicy(Protocol):
    """A file of `policies/`: one way to choose among the free devices of a resource."""

    # as users write it
    NAME: str
    # whether users may name it; else it is chosen by itself
    FOR_USERS: bool
    # one clause for explanations: "the fullest GPU first"
    RULE: str
    # what a GPU's load is worth when sets of GPUs are compared: -1 = the fullest are best, 1 = the emptiest are
    LOAD_SIGN: int

    def choose(self, buckets: "Buckets", gpus: Sequence[int]) -> list[str]:
        """Choose `buckets.need` ids on these GPUs, which have at least as many; fewer where no choice is allowed."""
