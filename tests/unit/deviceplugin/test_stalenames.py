"""When a name that the kubelet keeps is taken from the Node (E14 of the placement guide). On a fake clock."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpusharing.api.node import ReservationReport
from gpusharing.core.errors import ApiError
from gpusharing.core.listing import Listing
from gpusharing.core.nodeproblems import Observed
from gpusharing.core.reservationreport import Reserved
from gpusharing.deviceplugin.stalenames import StaleNames

pytestmark = [pytest.mark.looptime, pytest.mark.fault("F51")]

JUDGE, POLICY = (f"place.gpusharing.io/{it}.rl-eval.team-a" for it in ("judge", "policy"))
IDLE = Observed()
Steps = list[dict[str, Any]]


class Api:
    """Keeps what is asked of it, and when."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, Steps]] = []
        self.fails: ApiError | None = None

    async def change(self, path: str, steps: Steps, *, only_metadata: bool) -> None:
        assert path == "/api/v1/nodes/gpu-a/status"
        self.asked.append((asyncio.get_running_loop().time(), steps))
        if self.fails:
            raise self.fails

    @property
    def removed(self) -> list[set[str]]:
        """The names of each request."""
        return [
            {step["path"].rpartition("/")[2].replace("~1", "/") for step in steps if step["op"] == "remove"}
            for _, steps in self.asked
        ]

    @contextmanager
    def cleaned(self) -> Iterator[StaleNames]:
        client: Any = self
        stale = StaleNames(client, "gpu-a")
        task = asyncio.ensure_future(stale.run())
        try:
            yield stale
            assert not task.done()
        finally:
            task.cancel()


def node(uid: str = "u", allocatable: dict[str, str] | None = None, **shown: str) -> dict[str, Any]:
    """A Node that shows these resources: `judge="0"`."""
    capacity = {"cpu": "8", "nvidia.com/mig-1g.5gb": "0"} | {
        f"place.gpusharing.io/{name}.rl-eval.team-a": count for name, count in shown.items()
    }
    return {"metadata": {"uid": uid}, "status": {"capacity": capacity, "allocatable": capacity | (allocatable or {})}}


def reserved(name: str) -> Observed:
    return Observed(reservations=Reserved(2, (ReservationReport(resource=name, gpus=["GPU-1"], state="Withdrawing"),)))


async def test_a_name_goes_after_ten_minutes_without_devices_and_nothing_else_does() -> None:
    with (api := Api()).cleaned() as stale:
        stale.see(IDLE)
        stale.see_node(node(judge="0", policy="2"))
        await asyncio.sleep(599)
        assert api.asked == []
        await asyncio.sleep(2)
        assert api.removed == [{JUDGE}]
        [(_, steps)] = api.asked
        assert steps[0] == {"op": "test", "path": "/metadata/uid", "value": "u"}
        tested = {step["path"] for step in steps if step["op"] == "test" and step["value"] == "0"}
        assert tested == {step["path"] for step in steps if step["op"] == "remove"}
        stale.see_node(node(policy="2"))
        await asyncio.sleep(3600)
        assert len(api.asked) == 1


async def test_each_name_has_ten_minutes_of_its_own_and_devices_meanwhile_begin_them_anew() -> None:
    with (api := Api()).cleaned() as stale:
        stale.see(IDLE)
        stale.see_node(node(judge="0", policy="0"))
        await asyncio.sleep(300)
        stale.see_node(node(judge="0", policy="2"))
        stale.see_node(node(judge="0", policy="0"))
        await asyncio.sleep(301)
        assert api.removed == [{JUDGE}]
        stale.see_node(node(policy="0"))
        await asyncio.sleep(300)
        assert api.removed == [{JUDGE}, {POLICY}]


@pytest.mark.parametrize(
    "observed", [reserved(JUDGE), Observed(listing=Listing({JUDGE: {}})), None], ids=["reserved", "listed", "not known"]
)
async def test_a_name_that_is_listed_or_reserved_stays_and_so_do_all_while_that_is_not_known(
    observed: Observed | None,
) -> None:
    with (api := Api()).cleaned() as stale:
        if observed is not None:
            stale.see(observed)
        stale.see_node(node(judge="0"))
        await asyncio.sleep(3600)
        assert api.asked == []
        stale.see(IDLE)
        await asyncio.sleep(590)
        assert api.asked == []
        await asyncio.sleep(11)
        assert api.removed == [{JUDGE}]


async def test_a_name_with_devices_for_pods_stays_whatever_the_capacity_says() -> None:
    with (api := Api()).cleaned() as stale:
        stale.see(IDLE)
        stale.see_node(node(judge="0", allocatable={JUDGE: "2"}))
        await asyncio.sleep(3600)
        assert api.asked == []


async def test_a_node_that_was_created_anew_begins_anew() -> None:
    with (api := Api()).cleaned() as stale:
        stale.see(IDLE)
        stale.see_node(node(judge="0"))
        await asyncio.sleep(500)
        stale.see_node(None)
        stale.see_node(node("another", judge="0"))
        await asyncio.sleep(590)
        assert api.asked == []
        await asyncio.sleep(11)
        assert api.asked[0][1][0]["value"] == "another"


@pytest.mark.parametrize("status", [0, 403, 422, 503])
async def test_what_fails_is_tried_again_after_another_ten_minutes(status: int) -> None:
    with (api := Api()).cleaned() as stale:
        api.fails = ApiError("no", status=status)
        stale.see(IDLE)
        stale.see_node(node(judge="0"))
        await asyncio.sleep(601)
        stale.see_node(node(judge="0"))
        await asyncio.sleep(598)
        assert len(api.asked) == 1
        await asyncio.sleep(2)
        assert [at - api.asked[0][0] for at, _ in api.asked] == pytest.approx([0, 600], abs=0.1)
