"""What a kubelet made of a preference: whether it took other ids, and whether a request was split needlessly.

A kubelet takes a whole preference as it is: what must be included is part of it, and everything in it is available
(kubelet contract, section 5, step 7). Other ids of the same offer mean that something else decides.

There are `Allocate`s that no preference was asked for: where exactly as many devices are aligned as are needed, and
where an init container's are used again. So only one that can answer the offer is judged by it.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from gpusharing.core.listing import Entry
from gpusharing.core.oneline import few


class Offer(NamedTuple):
    """What a kubelet asked a preference for, and what it was told."""

    available: Collection[str]
    must_include: Sequence[str]
    size: int
    # none = there was no preference
    preferred: Sequence[str] = ()


class Verdict(NamedTuple):
    """How an `Allocate` compares with the offer before it."""

    # the kubelet took other ids than the preferred ones
    overruled: bool = False
    # whose choice is on several GPUs although one of them had room for all; empty = it is on one, or none had
    split_by: Literal["", "plugin", "kubelet"] = ""


NO_VERDICT = Verdict()


def judge(offer: Offer, ids: Sequence[str], entries: Mapping[str, Entry]) -> Verdict:
    """Return how the ids of an `Allocate` compare with the offer before it. `entries` is the list at that time."""
    taken, preferred = set(ids), set(offer.preferred)
    followed = bool(preferred) and taken == preferred
    if not followed and not _answers(offer, taken):
        return NO_VERDICT
    split = _is_needless_split(offer, taken, entries)
    return Verdict(bool(preferred) and not followed, ("plugin" if followed else "kubelet") if split else "")


def overruled_sentence(resource: str, offer: Offer, ids: Sequence[str]) -> str:
    """Return what a person should know of a choice that was not the preferred one."""
    taken, preferred = sorted({*ids} - {*offer.preferred}), sorted({*offer.preferred} - {*ids})
    return (
        f"{resource}: the kubelet gave a container {few(taken)} where the plugin preferred {few(preferred)}. "
        "hint: find out what chooses devices on this node beside the kubelet and this plugin"
    )


def _answers(offer: Offer, taken: set[str]) -> bool:
    """Whether a kubelet can have chosen these ids from the offer."""
    must = set(offer.must_include)
    return len(taken) == offer.size and must <= taken <= must.union(offer.available)


def _is_needless_split(offer: Offer, taken: set[str], entries: Mapping[str, Entry]) -> bool:
    """Whether the ids are on several GPUs, and one had room for all; a GPU with a sick share is no better place."""
    if len({entries[each].device.gpu for each in taken if each in entries}) < 2:
        return False
    offered = {*offer.available, *offer.must_include}
    room = Counter(entries[each].device.gpu for each in offered if each in entries)
    home = {entries[each].device.gpu for each in offer.must_include if each in entries}
    sick = {entry.device.gpu for entry in entries.values() if entry.sick}
    return len(home) < 2 and any(room[gpu] >= offer.size for gpu in (home or room.keys()) - sick)
