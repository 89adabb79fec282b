"""`GpuPlacement`: several services on shared GPU nodes, each with its own GPUs; and the inventory it is planned on.

Types, limits, enums and unknown fields are checked here; whatever needs two fields or arithmetic is the planner's.
"""

from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from gpusharing.api import placementrules as rules
from gpusharing.api.meta import LabelSelector, Model

MAX_POOLS, MAX_SERVICES = 8, 64
MAX_NODES, MAX_GPUS_PER_NODE, MAX_GPUS = 256, 64, 4096
MAX_REPLICAS = 128
MAX_INVENTORY_NODES = 20_000

Kind = Literal["generic", "vllm", "sglang", "trtllm", "ray", "triton", "router"]
# Where a service of the kind listens unless it says so; generic and router have no port of their own.
DEFAULT_PORTS: dict[str, int] = {"vllm": 8000, "sglang": 30000, "trtllm": 8000, "ray": 6379, "triton": 8000}

GpuOrder = Literal["declared", "aligned"]
Algorithm = Literal["exact", "ffd"]
Enforcement = Literal["reserve", "env"]
FractionPolicy = Literal["packed", "distributed"]

_DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_PINS = r"^([0-9]{1,3}(,[0-9]{1,3})*|GPU-[0-9A-Za-z-]+(,GPU-[0-9A-Za-z-]+)*)$"
_BY_NAME: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


def _expected(what: str) -> WrapValidator:
    """Say of every wrong value in one sentence what was expected instead, whichever limit it broke."""

    def check(value: Any, inner: ValidatorFunctionWrapHandler) -> Any:
        try:
            return inner(value)
        except ValidationError:
            raise PydanticCustomError("expected", "{what}", {"what": what}) from None

    return WrapValidator(check)


def _word(of: Any) -> WrapValidator:
    """Say which words there are."""
    return _expected(f"one of {', '.join(get_args(of))}")


Name = Annotated[
    str,
    Field(min_length=1, max_length=63, pattern=_DNS_LABEL),
    _expected(rules.NAME),
]
Index = Annotated[int, Field(ge=0, le=255), _expected("an integer 0-255")]
Count = Annotated[int, Field(ge=0), _expected("an integer of at least 0")]
Flag = Annotated[bool, _expected("true or false")]
# The longest of an object's names
Text = Annotated[str, Field(max_length=317), _expected("a text of at most 317 characters")]
# Names that go into shell scripts and env files: nothing in them may mean something there.
Word = Annotated[
    str,
    Field(max_length=253, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"),
    _expected("a word of letters, digits, -, _ and ."),
]


class PoolSharing(Model):
    """How GPUs of a pool are cut for services that take a fraction of each of their GPUs."""

    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS), _expected(f"an integer 1-{MAX_REPLICAS}")] = Field(
        default=1, description="Shares that every GPU is cut into; only for services with fraction."
    )
    policy: Annotated[FractionPolicy, _word(FractionPolicy)] = Field(
        default="packed", description="packed fills the fullest GPU first, distributed the emptiest."
    )


class Pool(Model):
    """Nodes as the user has them; never rewritten."""

    model_config = ConfigDict(json_schema_extra=rules.POOL_RULES)

    name: Name = Field(description="The pool's name; its nodes are the slots <name>/0, <name>/1, ...")
    nodes: Annotated[
        Annotated[int, Field(ge=1, le=MAX_NODES)] | Literal["auto"],
        _expected(f"an integer 1-{MAX_NODES} or auto"),
    ] = Field(default=1, description="How many nodes; auto = the fewest that do.")
    max_nodes: Annotated[Annotated[int, Field(ge=1, le=MAX_NODES)] | None, _expected(f"an integer 1-{MAX_NODES}")] = (
        Field(default=None, description="The most that nodes: auto may take; absent = 8.")
    )
    gpus_per_node: Annotated[
        Annotated[int, Field(ge=1, le=MAX_GPUS_PER_NODE)] | None, _expected(f"an integer 1-{MAX_GPUS_PER_NODE}")
    ] = Field(default=None, description="GPUs of every node. With an inventory the inventory counts.")
    gpus_by_node: (
        Annotated[
            list[Annotated[int, Field(ge=1, le=MAX_GPUS_PER_NODE), _expected(f"an integer 1-{MAX_GPUS_PER_NODE}")]],
            Field(min_length=1, max_length=MAX_NODES, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
        ]
        | None
    ) = Field(default=None, description="GPUs of each node where they differ, one entry per node.")
    node_selector: LabelSelector | None = Field(
        default=None,
        description="Which nodes of the inventory; absent = all. Products match with and without GFD's suffixes.",
        json_schema_extra={"x-kubernetes-map-type": "atomic"},
    )
    reserved: Annotated[list[Index], Field(max_length=MAX_GPUS_PER_NODE)] = Field(
        default=[],
        description="Indexes of GPUs that are never used, on any node of the pool.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    sharing: PoolSharing = Field(default=PoolSharing(), description="Only for services with fraction.")


class Parallelism(Model):
    """The shape of a service: it needs tensor x pipeline x instances GPUs."""

    tensor: Annotated[int, Field(ge=1, le=MAX_GPUS), _expected(f"an integer 1-{MAX_GPUS}")] = Field(
        default=1, description="GPUs that share each layer."
    )
    pipeline: Annotated[int, Field(ge=1, le=MAX_GPUS), _expected(f"an integer 1-{MAX_GPUS}")] = Field(
        default=1, description="Stages, one after the other."
    )
    instances: Annotated[int, Field(ge=1, le=MAX_GPUS), _expected(f"an integer 1-{MAX_GPUS}")] = Field(
        default=1, description="Copies of the model: its data-parallel size."
    )

    @property
    def per_instance(self) -> int:
        """Return the GPUs of one instance."""
        return self.tensor * self.pipeline


class Leftover(Model):
    """The service takes every GPU that the others of its pool leave."""

    min: Annotated[int, Field(ge=1, le=MAX_GPUS), _expected(f"an integer 1-{MAX_GPUS}")] = Field(
        default=1, description="The fewest GPUs that will do."
    )


class Service(Model):
    """One thing that runs and may need GPUs; its place in the list is its declaration order."""

    model_config = ConfigDict(json_schema_extra=rules.SERVICE_RULES)

    name: Name = Field(description="The service's name.")
    kind: Annotated[Kind, _word(Kind)] = Field(
        default="generic", description="What it is: its default port, and how it is rendered. The planner ignores it."
    )
    pool: Annotated[Name | None, _expected("the name of a pool")] = Field(
        default=None, description="Its pool; needed only where there are several."
    )
    gpus: Annotated[Annotated[int, Field(ge=0, le=MAX_GPUS)] | None, _expected(f"an integer 0-{MAX_GPUS}")] = Field(
        default=None, description="How many GPUs it needs; 0 = none."
    )
    parallelism: Parallelism | None = Field(default=None, description="Or its shape, from which the need follows.")
    leftover: Leftover | None = Field(default=None, description="Or whatever the others leave.")
    visible_devices: Annotated[
        Annotated[str, Field(max_length=4096, pattern=_PINS)] | None,
        _expected("a comma-separated list of GPU indexes, or of GPU-... UUIDs, without spaces"),
    ] = Field(default=None, description="A pin: GPUs by index or by UUID, in the order in which they are rendered.")
    visible_devices_from_env: Annotated[
        Annotated[str, Field(max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None,
        _expected("the name of an environment variable"),
    ] = Field(default=None, description="A pin that is known only at run time: the variable that will hold it.")
    share: Flag = Field(default=False, description="true: owns no GPU and sees every GPU of its node.")
    share_with: Annotated[Name | None, _expected("the name of a service")] = Field(
        default=None, description="Owns no GPU and sees exactly those of this service."
    )
    fraction: Annotated[
        Annotated[str, Field(max_length=4, pattern=r"^([1-9][0-9]?|100)%$")] | None,
        _expected('a percentage "1%"-"100%"'),
    ] = Field(default=None, description="The part that it takes of each of its GPUs.")
    exclusive_nodes: Flag = Field(default=False, description="true: owns whole nodes.")
    distribute: Annotated[Literal["evenly"] | None, _expected("evenly")] = Field(
        default=None, description="evenly: the same number of instances on every node of a pool with a node count."
    )
    span: Annotated[Literal["whole", "tail"], _expected("one of whole, tail")] = Field(
        default="whole",
        description="Larger than a node: whole nodes only, or (tail) the remainder on a node with others.",
    )
    split: Annotated[Literal["instances"] | None, _expected("instances")] = Field(
        default=None, description="instances: each instance is placed by itself."
    )
    deploy: Flag = Field(default=True, description="false: the service is ignored.")
    port: Annotated[Annotated[int, Field(ge=1, le=65535)] | None, _expected("an integer 1-65535")] = Field(
        default=None, description="Where it listens; absent = the kind's port."
    )
    host_network: Flag = Field(default=False, description="true: it listens on its node's own address.")

    @property
    def listens_on(self) -> int | None:
        """Return its port, or its kind's; None = not known."""
        return self.port if self.port is not None else DEFAULT_PORTS.get(self.kind)


class PlacementSpec(Model):
    """What the owner of an application wants."""

    model_config = ConfigDict(json_schema_extra=rules.SPEC_RULES)

    pools: Annotated[list[Pool], Field(min_length=1, max_length=MAX_POOLS)] = Field(
        description="The nodes there are.", json_schema_extra=_BY_NAME
    )
    lead: Annotated[Name | None, _expected("the name of a service")] = Field(
        default=None, description="The service beside the driver: it sits on slot 0 of its pool."
    )
    gpu_order: Annotated[GpuOrder, _word(GpuOrder)] = Field(
        default="declared",
        description="Who gets the lowest GPUs of a node: who is declared first, or (aligned) who needs most.",
    )
    algorithm: Annotated[Algorithm, _word(Algorithm)] = Field(
        default="exact", description="ffd: first fit decreasing. exact: and then a search for fewer nodes."
    )
    enforcement: Annotated[Enforcement, _word(Enforcement)] = Field(
        default="reserve",
        description="reserve: a resource name per service. env: environment variables, advisory.",
    )
    services: Annotated[list[Service], Field(min_length=1, max_length=MAX_SERVICES)] = Field(
        description="What runs, in declaration order.", json_schema_extra=_BY_NAME
    )


class InventoryGpu(Model):
    """One GPU as it stands."""

    index: Index = Field(description="Its index on the node, in PCI order.")
    uuid: Word = Field(default="", description="Its UUID, GPU-...; empty = not known.")
    healthy: Flag = Field(default=True, description="false: it is broken.")
    mig_mode: Flag = Field(default=False, description="true: it is cut into MIG devices, so placements leave it alone.")
    link_group: Annotated[Index | None, _expected("an integer 0-255")] = Field(
        default=None, description="GPUs of one group are linked; absent = not known."
    )
    shares: Count = Field(default=1, description="How many shares the shared resource offers of it.")
    in_use: Count = Field(default=0, description="How many of them pods hold.")
    reserved_by: Annotated[Text | None, _expected("a text of at most 317 characters")] = Field(
        default=None, description="The placement, namespace/name, that it is reserved for; absent = it is free."
    )


class InventoryNode(Model):
    """One node as it stands."""

    name: Annotated[Word, Field(min_length=1)] = Field(description="The Node's name.")
    labels: dict[str, str] = Field(default={}, description="The Node's labels.")
    names: Count = Field(default=0, description="Resource names that other placements have there.")
    ready: Flag = Field(default=True, description="Ready and GpuSharingReady.")
    schedulable: Flag = Field(default=True, description="false: it is cordoned.")
    gpus: Annotated[list[InventoryGpu], Field(max_length=256)] = Field(description="Its GPUs.")


class Inventory(Model):
    """The nodes that there are; what a placement is planned on where it is given."""

    nodes: Annotated[list[InventoryNode], Field(max_length=MAX_INVENTORY_NODES)] = Field(description="The nodes.")
