"""A scenario for `kubectl gpusharing simulate` (decision 58): nodes, policies to compare, pods that come and go.

Times are in one unit of the author's choice; nothing depends on which.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from gpusharing.api.meta import Model
from gpusharing.api.pluginconfig import PluginConfig
from gpusharing.api.sharing import KeepTogether, Topology

# Those of a GpuSharingPolicy, and for comparison only what NVIDIA's plugin v0.20.0 does (contract 5.3, 12.1).
ComparedName = Literal["packed", "distributed", "spread", "nvidia-packed", "nvidia-distributed"]

SEEDS_MAX, POLICIES_MAX, NODES_MAX, EVENTS_MAX = 100, 20, 100, 100_000
PODS_MAX = 100_000  # of one seed


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _percentage(value: object) -> object:
    number, percent, rest = value.partition("%") if isinstance(value, str) else ("", "", "")
    if not percent or rest or not number.isascii() or not number.replace(".", "", 1).isdigit():
        raise PydanticCustomError("percentage", "must be a percentage such as 50%")
    return float(number) / 100


Moment = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Span = Annotated[float, Field(ge=1e-6, le=1e9, allow_inf_nan=False)]
Part = Annotated[float, BeforeValidator(_percentage), Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1, le=100_000)]
SizeKey = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,4}$")]
PodName = Annotated[str, Field(min_length=1, max_length=253)]


class ScenarioNode(Model):
    """A node: its hardware, and the config that its plugin serves."""

    inventory: Any = Field(description="A simulated inventory, or the name of a file with one, from the scenario's.")
    config: PluginConfig = Field(default_factory=PluginConfig, description="As in a ConfigMap, without allocation.")


class ScenarioPolicy(Model):
    """One of the policies that are compared."""

    policy: ComparedName = Field(description="As in a GpuSharingPolicy, or NVIDIA's way.")
    keep_together: KeepTogether = Field(default="none", description="As in a GpuSharingPolicy.")
    topology: Topology = Field(default="none", description="As in a GpuSharingPolicy.")


class Arrivals(Model):
    """Pods that come by chance and stay for a while: a Poisson process, of a rate that may swing."""

    process: Literal["poisson", "swing"] = Field(description="poisson: the same rate all the time. swing: a sine wave.")
    resource: str = Field(default="", description="What each pod asks for; needed where nodes have several resources.")
    mean: Annotated[Part, Field(gt=0)] = Field(description="How much of the resource is asked for on average.")
    amplitude: Part | None = Field(default=None, description="How far that swings up and down.")
    period: Span | None = Field(default=None, description="How long a swing takes.")
    lifetime: Span = Field(description="How long a pod runs on average; the times are exponential.")
    sizes: dict[SizeKey, Count] = Field(
        min_length=1, max_length=100, description="Ids of a pod → how often, as weights."
    )


class Event(Model):
    """A pod that comes, or one that leaves."""

    at: Moment = Field(description="When.")
    pod: PodName | None = Field(default=None, description="The pod that comes.")
    resource: str = Field(default="", description="What it asks for; needed where nodes have several resources.")
    count: Count | None = Field(default=None, description="How many ids.")
    leave: PodName | None = Field(default=None, description="The pod that leaves.")


class ScenarioFile(Model):
    """The whole file: either arrivals or events."""

    seed: Annotated[
        list[Annotated[int, Field(ge=0, lt=1 << 63)]],
        BeforeValidator(_listed),
        Field(min_length=1, max_length=SEEDS_MAX),
    ] = Field(default=[0], description="One number or several: each is a run of its own for every policy.")
    duration: Span = Field(description="When a run ends.")
    nodes: Annotated[list[ScenarioNode], Field(min_length=1, max_length=NODES_MAX)]
    policies: Annotated[list[ScenarioPolicy], Field(min_length=1, max_length=POLICIES_MAX)]
    arrivals: Arrivals | None = None
    events: Annotated[list[Event], Field(max_length=EVENTS_MAX)] | None = None
