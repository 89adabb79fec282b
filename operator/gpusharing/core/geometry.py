"""MIG geometry: whether devices fit on a board together. For simulated GPUs: real ones need nobody to say so."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpusharing.api.problems import nearest
from gpusharing.core.mig import Board, MigProfile

_PROFILE = re.compile(r"(?:(?P<compute>[1-7])c\.)?(?P<instance>[1-7]g\.\d+gb(?:[+-][a-z.]+)?)")


@dataclass(frozen=True, slots=True)
class Placed:
    """A MIG device somewhere on a board; several compute instances may share one GPU instance."""

    # as NVIDIA names it: 1g.10gb, 1c.3g.20gb
    profile: str
    start: int

    @property
    def instance(self) -> tuple[str, int]:
        """Return which GPU instance it is in: profile and start."""
        return instance_profile(self.profile), self.start

    def compute_slices(self, of: MigProfile) -> int:
        """Return its compute slices: all of the GPU instance, unless the name says fewer."""
        found = _PROFILE.fullmatch(self.profile)
        return int(found["compute"]) if found and found["compute"] else of.slices


def instance_profile(name: str) -> str:
    """Return the profile of the GPU instance that a device is in: `3g.20gb` of `1c.3g.20gb`."""
    found = _PROFILE.fullmatch(name)
    return found["instance"] if found else name


def misplaced(board: Board, devices: Sequence[Placed]) -> Iterator[tuple[int, str, str]]:
    """Yield what the board cannot hold, devices taken in order: the device's place in the list, why, and a hint."""
    instances: dict[tuple[str, int], int] = {}
    for place, device in enumerate(devices):
        profile = board.profile(instance_profile(device.profile))
        if profile is None:
            known = [known.name for known in board.profiles]
            meant = nearest(device.profile, known)
            hint = f"did you mean {meant}?" if meant else f"it makes {', '.join(known)}"
            yield place, f"{board.models[0]} has no MIG profile {device.profile}", hint
        elif device.start not in profile.starts:
            starts = ", ".join(map(str, profile.starts))
            yield place, f"{profile.name} cannot start at {device.start}", f"it may start at {starts}"
        elif problem := _clash(board, profile, device, instances):
            yield place, *problem
        else:
            instances[device.instance] = instances.get(device.instance, 0) + device.compute_slices(profile)


def _clash(
    board: Board, profile: MigProfile, device: Placed, instances: dict[tuple[str, int], int]
) -> tuple[str, str] | None:
    """Return why the device does not fit beside those that are there (instance → compute slices used)."""
    if device.instance in instances:
        free = profile.slices - instances[device.instance]
        if device.compute_slices(profile) > free:
            return f"{device.profile} at {device.start} wants more compute slices than the {free} left there", ""
        return None
    others = [(found, start) for name, start in instances if (found := board.profile(name))]
    for other, start in others:
        if device.start < start + other.size and start < device.start + profile.size:
            return f"{device.profile} at {device.start} overlaps {other.name} at {start}", ""
        if not _share_engines(profile.name, other.name):
            hint = "a board has one set of media engines: one +me profile at a time, beside +me.all only -me ones"
            return f"{device.profile} at {device.start} wants media engines that {other.name} has", hint
    alike = sum(other is profile for other, _ in others)
    if alike >= profile.most:
        return f"more than {profile.most} × {profile.name}", ""
    return None


def _share_engines(one: str, other: str) -> bool:
    """Whether two profiles leave each other the media engines that they need."""
    if "+me" in one and "+me" in other:
        return False
    return not any(name.endswith("+me.all") for name in (one, other)) or any(
        name.endswith("-me") for name in (one, other)
    )
