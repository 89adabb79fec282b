"""The files that `kubectl gpusharing prefer` reads: questions to an allocation policy, with answers if they are known.

The form is that of the recorded decisions of NVIDIA's allocators; the optional keys are ours (decision 56).
"""

from typing import Annotated, Any

from pydantic import Field

from gpusharing.api.meta import Model
from gpusharing.api.sharing import AllocationPolicyName, KeepTogether, Topology

Count = Annotated[int, Field(ge=0, le=100_000)]
Place = Annotated[int, Field(ge=0)]
Counts = dict[str, Count]
# 1 across sockets, 2 same socket, 3 host bridge, 4 several switches, 5 one switch, 6 same board, 6 + n = n NVLinks
LinkKind = Annotated[int, Field(ge=1, le=6 + 36)]
LinkMatrix = Annotated[list[list[list[LinkKind] | None]], Field(max_length=64)]


class GreedyCase(Model):
    """A request for shares of GPUs; all counts are by GPU."""

    name: str = Field(default="", description="For people.")
    policy: AllocationPolicyName = Field(description="packed, distributed or spread.")
    keep_together: KeepTogether = Field(default="none", description="As in a policy.")
    topology: Topology = Field(default="none", description="As in a policy; needs links.")
    replicas: Counts = Field(description="Shares of each GPU; GPUs are numbered in the order of their names.")
    available: Counts = Field(description="Free shares, the required ones included.")
    required: Counts = Field(default_factory=dict, description="Shares that must be part of the answer.")
    unhealthy: Counts = Field(default_factory=dict, description="Sick shares; they are not available, and no load.")
    other_load: Counts = Field(default_factory=dict, description="Ids of other resources in use on each GPU.")
    links: LinkMatrix | None = Field(default=None, description="What connects GPU i and GPU j.")
    size: int = Field(description="How many shares are asked for.")
    outcomes: list[Counts] | None = Field(default=None, description="Every answer that is right.")
    error: bool = Field(default=False, description="The right answer is a refusal.")


class AlignedCase(Model):
    """A request for whole GPUs, which are named by their index."""

    name: str = Field(default="", description="For people.")
    links: LinkMatrix = Field(description="What connects GPU i and GPU j.")
    available: list[Place] = Field(description="Free GPUs, the required ones included.")
    required: list[Place] = Field(default_factory=list, description="GPUs that must be part of the answer.")
    unhealthy: list[Place] = Field(default_factory=list, description="Sick GPUs.")
    size: int = Field(description="How many GPUs are asked for.")
    chosen: list[Place] | None = Field(default=None, description="A recorded answer; empty = a refusal.")
    set_score: int | None = Field(default=None, description="The points of the recorded answer.")
    partition_score: int | None = Field(default=None, description="The points of the partition that it comes from.")


class CaseFile(Model):
    """The file; what kind of case each is shows by its keys."""

    about: str = Field(default="", description="For people.")
    cases: list[dict[str, Any]] = Field(description="One entry per request.")


class GreedyAnswer(Model):
    """What is printed for a request for shares."""

    case: int = Field(description="The number of the case, from 0.")
    counts: dict[str, int] = Field(description="The chosen shares of each GPU, required ones included.")
    error: str | None = Field(default=None, description="Why there is no choice.")
    explain: list[str] | None = Field(default=None, description="Why these, with --explain.")


class AlignedAnswer(Model):
    """What is printed for a request for whole GPUs."""

    case: int = Field(description="The number of the case, from 0.")
    choice: list[int] = Field(description="The chosen GPUs by index.")
    score: int = Field(description="The points of the chosen set.")
    error: str | None = Field(default=None, description="Why there is no choice.")
    explain: list[str] | None = Field(default=None, description="Why these, with --explain.")
