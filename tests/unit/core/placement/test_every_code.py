"""Every code of the placement guide's section 7: the sentence, word for word, and what `place` exits with."""

from dataclasses import dataclass, field

import pytest
from tests.support.planning import Wire, inventory, messages, node, planned, pool, refused, said, service, shaped, spec

from gpusharing.api.placement import Inventory, PlacementSpec
from gpusharing.core.placement.problems import Code


@dataclass(frozen=True)
class Case:
    """A placement and all that is said about it."""

    name: str
    pools: Wire | list[Wire]
    services: list[Wire]
    says: list[str]
    known: Inventory | None = None
    more: Wire = field(default_factory=dict)
    request: Wire = field(default_factory=dict)


TWO_POOLS = [pool(), pool(name="aux")]
OF_33 = [service(f"s{at}", 1, fraction="1%") for at in range(33)]
CUT = pool(sharing={"replicas": 100})
EXCEEDED = "MaxNodesExceeded: pool 'gpu' needs more than maxNodes=1 node(s) for"
TOO_MANY = "TooManyNames: gpu/0 needs 33 resource names, with those of other placements; a node takes at most 32"
SHARED = "SharedNoIsolation: memory and faults are not isolated between services that share a GPU: "

REFUSED = [
    Case("twice", pool(), [service("a", 1)] * 3, ["DuplicateService: service 'a' is declared 3 times"]),
    Case("pool twice", [pool(), pool()], [service("a", 1)], ["DuplicatePool: pool 'gpu' is declared 2 times"]),
    Case(
        "no pool",
        TWO_POOLS,
        [service("a", 1)],
        ["PoolRequired: service 'a' names no pool and the placement has 2 (gpu, aux)"],
    ),
    Case(
        "unknown pool",
        pool(),
        [service("a", 1, pool="gqu")],
        ["UnknownPool: service 'a' names pool 'gqu', which is not a pool of this placement (gpu)"],
    ),
    Case(
        "unknown lead",
        pool(),
        [service("a", 1), service("b", 1), service("c", 1, deploy=False)],
        ["UnknownLead: lead 'c' is not a deployed service of this placement (a, b)"],
        more={"lead": "c"},
    ),
    Case(
        "share target in another pool",
        TWO_POOLS,
        [service("a", pool="gpu", shareWith="b"), service("b", 1, pool="aux")],
        ["UnknownShareTarget: service 'a' shares with 'b', which is in another pool ('aux')"],
    ),
    Case(
        "share target that is itself",
        pool(),
        [service("a", shareWith="a"), service("b", 1)],
        ["UnknownShareTarget: service 'a' shares with 'a', which has no GPUs of its own"],
    ),
    Case(
        "share and a pin",
        pool(),
        [service("a", share=True, visibleDevices="0")],
        ["ShareWithPin: service 'a' sets both share and visibleDevices; remove one"],
    ),
    Case(
        "a pin that repeats",
        pool(),
        [service("a", visibleDevices="1,0,1")],
        ["PinRepeats: service 'a' lists a GPU twice in visibleDevices (1,0,1)"],
    ),
    Case(
        "a pin too small",
        pool(2),
        [shaped("a", 2, 4, distribute="evenly", visibleDevices="0,1")],
        ["PinTooSmall: service 'a' pins 2 GPU(s) (0,1) but its shape needs 4"],
    ),
    Case(
        "pins out of range",
        pool(nodes=2, gpus=None, gpusByNode=[2, 4]),
        [service("a", visibleDevices="4,1,9")],
        [
            "PinOutOfRange: service 'a' pins GPU 4, but nodes of pool 'gpu' have GPUs 0-3",
            "PinOutOfRange: service 'a' pins GPU 9, but nodes of pool 'gpu' have GPUs 0-3",
        ],
    ),
    Case(
        "a reserved pin",
        pool(reserved=[1]),
        [service("a", visibleDevices="0,1")],
        ["PinReserved: service 'a' pins GPU 1, which pool 'gpu' keeps reserved"],
    ),
    Case(
        "a reserved pin by UUID",
        pool(reserved=[1]),
        [service("a", visibleDevices="GPU-n1")],
        ["PinReserved: service 'a' pins GPU 1, which pool 'gpu' keeps reserved"],
        known=inventory(node("n")),
    ),
    Case(
        "pins that overlap twice",
        pool(),
        [service("a", visibleDevices="2,1"), service("b", visibleDevices="1,2")],
        [
            "PinOverlap: services 'a' and 'b' both pin GPU 2,1 of pool 'gpu'; change one, or set share: true on the "
            "one that may share"
        ],
    ),
    Case(
        "an even pin meets every other",
        pool(2),
        [shaped("a", 1, 2, distribute="evenly", visibleDevices="0"), service("b", visibleDevices="0")],
        [
            "PinOverlap: services 'a' and 'b' both pin GPU 0 of pool 'gpu'; change one, or set share: true on the one "
            "that may share"
        ],
    ),
    Case(
        "an index and a UUID of one GPU",
        pool(),
        [service("a", visibleDevices="GPU-n0"), service("b", visibleDevices="0")],
        [
            "PinOverlap: services 'a' and 'b' both pin GPU GPU-n0 of pool 'gpu'; change one, or set share: true on the "
            "one that may share"
        ],
        known=inventory(node("n")),
    ),
    Case(
        "UUIDs of two nodes",
        pool("auto"),
        [service("a", visibleDevices="GPU-n0,GPU-m0")],
        ["PinUnresolved: service 'a' pins GPUs of more than one node (GPU-n0,GPU-m0)"],
        known=inventory(node("n"), node("m")),
    ),
    Case(
        "a run-time pin beside what takes the rest",
        pool(),
        [service("a", visibleDevicesFromEnv="MINE"), service("b", leftover={})],
        [
            "OpaquePin: service 'a' takes visibleDevices from a value known only at run time, so its GPUs cannot be "
            "kept from the other services of pool 'gpu'; use an index list, share: true, or a pool of its own"
        ],
    ),
    Case(
        "instances that do not divide",
        pool(2),
        [shaped("a", 1, 3, distribute="evenly")],
        [
            "InstancesNotDivisible: service 'a' runs 3 instances evenly over 2 nodes of pool 'gpu', but 3 is not a "
            "multiple of 2"
        ],
    ),
    Case(
        "evenly over any number of nodes",
        pool("auto"),
        [shaped("a", 1, 2, distribute="evenly")],
        ["EvenlyNeedsCount: service 'a' is spread evenly, so pool 'gpu' needs a node count instead of nodes: auto"],
    ),
    Case(
        "tiers on an auto pool, as the reference has it",
        pool("auto"),
        [service("a", 4, exclusiveNodes=True), service("b", 4, exclusiveNodes=True)],
        [
            "ExclusiveNeedsCount: pool 'gpu' has nodes: auto but holds services with exclusiveNodes (a, b); give a "
            "node count"
        ],
        request={"compat": "gym"},
    ),
    Case(
        "auto of unknown size",
        pool("auto", gpus=None),
        [service("a", 1)],
        ["GpusPerNodeRequired: pool 'gpu' has nodes: auto, so gpusPerNode must be set or an inventory given"],
    ),
    Case(
        "auto with a size for each node",
        pool("auto", gpus=None, gpusByNode=[4]),
        [service("a", 1)],
        ["GpusPerNodeLength: pool 'gpu' has nodes: auto, so gpusByNode cannot be used; give gpusPerNode"],
    ),
    Case(
        "sizes for too few nodes",
        pool(3, gpus=None, gpusByNode=[4, 8]),
        [service("a", 1)],
        ["GpusPerNodeLength: pool 'gpu' lists gpusByNode for 2 node(s) but has nodes: 3"],
    ),
    Case(
        "nothing to size by",
        pool("auto"),
        [service("a", 0)],
        [
            "NothingToSize: pool 'gpu' has nodes: auto but no service in it needs GPUs of its own; put a service in "
            "the pool or give a node count"
        ],
    ),
    Case(
        "three want the rest",
        pool(),
        [service(name, leftover={}) for name in "abc"],
        ["TwoLeftovers: services 'a', 'b', 'c' of pool 'gpu' all ask for the leftover GPUs; only one may"],
    ),
    Case(
        "one port on one host",
        pool(),
        [service(name, 1, kind="vllm") for name in "abc"],
        [
            "PortConflict: services 'a' and 'b' on gpu/0 both listen on port 8000",
            "PortConflict: services 'a' and 'c' on gpu/0 both listen on port 8000",
        ],
        more={"enforcement": "env"},
    ),
    Case(
        "a long namespace",
        pool(),
        [service("a", 1)],
        [
            f"NameTooLong: namespace '{'n' * 55}' has more than 54 characters, so no resource name fits; use a shorter "
            "namespace or enforcement: env"
        ],
        request={"namespace": "n" * 55},
    ),
    Case(
        "more than there is",
        pool(2, reserved=[0]),
        [service("a", 4), service("b", 3)],
        [
            "Oversubscribed: pool 'gpu' has 6 GPU(s) on 2 node(s) but its services need 7 (a 4, b 3); reduce one, add "
            "nodes, or set share: true"
        ],
    ),
    Case(
        "not on one node",
        pool(2),
        [service("a", 2, visibleDevices="0,1"), service("b", 5), service("c", 1, visibleDevices="0")],
        [
            "DoesNotFit: pool 'gpu' has 8 GPU(s) on 2 node(s) for a need of 8 (a 2, b 5, c 1), but not in one piece: "
            "a needs 2 on one node, c needs 1 on one node"
        ],
    ),
    Case(
        "not on whole nodes",
        pool(2),
        [service("a", 5), service("b", 2, exclusiveNodes=True)],
        [
            "DoesNotFit: pool 'gpu' has 8 GPU(s) on 2 node(s) for a need of 7 (a 5, b 2), but not in one piece: b "
            "needs 2 on whole nodes"
        ],
    ),
    Case(
        "not on every node",
        pool(2, gpus=None, gpusByNode=[2, 8]),
        [shaped("a", 3, 2, distribute="evenly")],
        [
            "DoesNotFit: pool 'gpu' has 10 GPU(s) on 2 node(s) for a need of 6 (a 6), but not in one piece: a needs 3 "
            "on every node"
        ],
    ),
    Case(
        "more nodes than it may have",
        pool("auto", maxNodes=1),
        [service("a", 3), service("b", 2), service("c", 3)],
        [
            f"{EXCEEDED} 8 GPU(s) (a 3, b 2, c 3); unplaced: b, c",
        ],
    ),
    Case(
        "too little is left",
        pool(),
        [service("a", 3), service("b", leftover={"min": 2})],
        ["NothingLeft: service 'b' takes what the others leave, at least 2 GPU(s), but pool 'gpu' leaves 1"],
    ),
    Case(
        "no node",
        pool(),
        [service("a", 1)],
        ["Unplaceable: pool 'gpu' has 0 free of 0 usable GPU(s) on 0 node(s); its services need 1 (a 1); unplaced: a"],
        known=inventory(node("n", schedulable=False)),
    ),
    Case(
        "sick and busy GPUs",
        pool(),
        [service("a", 2)],
        ["Unplaceable: pool 'gpu' has 1 free of 2 usable GPU(s) on 1 node(s); its services need 2 (a 2); unplaced: a"],
        known=inventory(node("n", "0!1*23-")),
    ),
    Case("33 names", CUT, OF_33, [TOO_MANY]),
    Case(
        "names of other placements",
        pool(),
        [service("a", 1), service("b", shareWith="a")],
        [TOO_MANY],
        known=inventory(node("n", names=31)),
    ),
    Case(
        "an inventory that lists things twice",
        pool(),
        [service("a", 1)],
        [
            "InvalidDocument: nodes: node 'n' is listed twice, expected once",
            "InvalidDocument: nodes: GPU 0 of node 'm' is listed twice, expected once",
            "InvalidDocument: nodes: GPU GPU-n0 is listed twice, expected once",
            "InvalidDocument: nodes: GPU GPU-m0 is listed twice, expected once",
        ],
        known=inventory(node("n", "0"), node("n", "0"), node("m", "00")),
    ),
]

PLANNED = [
    Case(
        "a pin too large",
        pool(),
        [shaped("a", 2, visibleDevices="0,1,2")],
        ["PinTooLarge: service 'a' pins 3 GPUs (0,1,2) but its shape needs 2; 1 will idle"],
    ),
    Case(
        "whole nodes that are larger",
        pool(2),
        [service("a", 5)],
        ["IdleGpus: service 'a' owns 2 whole node(s) of pool 'gpu' with 8 GPU(s) but needs 5; 3 will idle"],
    ),
    Case(
        "sharing",
        pool(sharing={"replicas": 2}),
        [service("a", 1, fraction="50%"), service("b", share=True), service("c", shareWith="a"), service("d", 1)],
        [f"{SHARED}a, b, c"],
    ),
    Case(
        "an inventory that has other nodes",
        pool(gpus=4),
        [service("a", 1)],
        ["GpusPerNodeDiffers: pool 'gpu' says gpusPerNode 4, but m has 2; the inventory counts"],
        known=inventory(node("n"), node("m", "01")),
    ),
    Case(
        "a pool of unknown size",
        [pool(gpus=None), pool(name="aux")],
        [service("a", 1, pool="gpu"), service("b", 1, pool="aux")],
        ["PoolSkipped: pool 'gpu' has no gpusPerNode and there is no inventory; nothing is planned for it"],
    ),
    Case(
        "tiers, as the reference has them",
        pool(2),
        [service("a", 4, exclusiveNodes=True), service("b", visibleDevices="0")],
        ["PoolSkipped: pool 'gpu' holds services with exclusiveNodes (a); nothing is planned for it"],
        request={"compat": "gym"},
    ),
    Case(
        "only leftovers, as the reference has them",
        pool(),
        [service("a", leftover={}), service("b", leftover={})],
        ["PoolSkipped: pool 'gpu' has no service with GPUs of its own beside a, b; nothing is planned for it"],
        request={"compat": "gym"},
    ),
    Case(
        "needs per node that the reference does not know",
        pool(2),
        [service("a", 1), shaped("b", 1, 2, distribute="evenly"), service("c", 2), service("d", leftover={})],
        ["PoolSkipped: pool 'gpu' has 2 nodes and the need per node of a, c is not known; nothing is planned for it"],
        request={"compat": "gym"},
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_what_is_wrong_is_said_with_names_and_numbers(case: Case) -> None:
    refusal = refused(spec(case.pools, *case.services, **case.more), case.known, **case.request)
    assert messages(refusal) == case.says
    assert refusal.exit == max(each.code.exit for each in refusal.errors)


@pytest.mark.parametrize("case", PLANNED, ids=lambda case: case.name)
def test_what_is_worth_knowing_is_said_and_there_is_a_plan(case: Case) -> None:
    plan = planned(spec(case.pools, *case.services, **case.more), case.known, **case.request)
    assert said(plan) == case.says


def test_every_code_has_a_case() -> None:
    elsewhere = {Code.INVALID_FIELDS, Code.GROUP_STRADDLES}  # test_fields.py, test_layout.py
    # test_incidents.py
    elsewhere |= {Code.QUOTA_EXCEEDED, Code.RESERVATION_CONFLICT, Code.NODE_LOST, Code.GPU_UNHEALTHY}
    here = {line.split(":")[0] for case in (*REFUSED, *PLANNED) for line in case.says}
    assert {*here, *elsewhere} == set(Code)


def test_an_invalid_file_counts_more_than_one_that_does_not_fit() -> None:
    both = refused(
        spec([pool(), pool(name="aux")], service("a", 9, pool="gpu"), service("b", pool="aux", visibleDevices="7"))
    )
    assert [each.code for each in both.errors] == [Code.OVERSUBSCRIBED, Code.PIN_OUT_OF_RANGE]
    assert both.exit == 2


def test_each_error_names_its_pool_and_services() -> None:
    (error,) = refused(spec(pool(), service("a", visibleDevices="0"), service("b", visibleDevices="0"))).errors
    assert (error.pool, error.services) == ("gpu", ("a", "b"))


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        (spec(pool(), service("judge", 1), lead="jugde"), "did you mean judge?"),
        (spec(pool(), service("a", 1, pool="gpuu")), "did you mean gpu?"),
        (spec(pool(), service("judge", 1), service("b", shareWith="jugde")), "did you mean judge?"),
    ],
    ids=["lead", "pool", "share target"],
)
def test_a_misspelt_name_is_met_with_the_right_one(wanted: PlacementSpec, hint: str) -> None:
    (error,) = refused(wanted).errors
    assert error.hint == hint


def test_the_hint_of_what_does_not_fit_names_the_policy_that_would_have_left_room() -> None:
    scattered = [{"index": at, "shares": 4, "inUse": used} for at, used in enumerate((3, 1, 2, 1))]
    (error,) = refused(spec(pool(), service("a", 1)), inventory({"name": "n", "gpus": scattered})).errors
    assert error.hint == "7 replicas in use touch 4 GPUs; the packed policy would hold them on 2"


def test_the_hint_says_how_many_nodes_a_pool_may_open_where_there_are_more() -> None:
    (error,) = refused(spec(pool(), service("a", 3), service("b", 3)), inventory(node("n"), node("m"))).errors
    assert error.hint == "the pool may open 1 node(s)"


def test_where_services_share_no_host_and_need_no_name_neither_can_be_short() -> None:
    twins = [service(name, 1, kind="vllm") for name in "ab"]
    assert planned(spec(pool(), *twins))
    assert messages(refused(spec(pool(), *twins), enforcement="env"))[0].startswith("PortConflict")
    assert planned(spec(CUT, *OF_33), enforcement="env", namespace="n" * 99)
