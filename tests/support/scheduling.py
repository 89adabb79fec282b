"""In which order tests run, and in which worker: what waits much begins first, and what is dear to start is shared."""

from enum import IntEnum
from typing import Any

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

_END_TO_END_WITHOUT_NODE = ("test_samples.py", "test_kind_machine.py", "test_kind_refusals.py")
_AS_ONE = "tests/integration/test_manifests.py"  # what kubectl renders is kept for the whole file
_ON_NODES = (_KUBELET, _PRODUCT) = ("the kubelet", "the product")


class Part(IntEnum):
    """What tests need, in the order in which they run; told by the file, for workers are chosen by node ids alone."""

    A_NODE = 0
    A_CLUSTER = 1
    NEITHER = 2

    @classmethod
    def of(cls, nodeid: str) -> "Part":
        """The part that a test belongs to."""
        file = _file(nodeid)
        if file.startswith("tests/e2e/") and not file.endswith(_END_TO_END_WITHOUT_NODE):
            return cls.A_NODE
        return cls.NEITHER if file.startswith("tests/unit/") else cls.A_CLUSTER


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Two workers have a node each, from the beginning on; the others have a cluster each, and get test by test.

    What needs neither is given by whole files, for every turn costs, and to those with a node once that has ended: they
    would have to start a cluster. Marks (`--dist loadgroup`) say nothing of this to pytest-xdist 3.8 with pytest 9.2,
    which keeps a node id elsewhere.
    """

    def _split_scope(self, nodeid: str) -> str:
        match Part.of(nodeid):
            case Part.A_NODE:
                return _KUBELET if "kubelet" in _file(nodeid) else _PRODUCT
            case Part.A_CLUSTER:
                return _AS_ONE if _file(nodeid) == _AS_ONE else nodeid
            case Part.NEITHER:
                return _file(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        if not self.assigned_work[node].keys().isdisjoint(_ON_NODES):
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
