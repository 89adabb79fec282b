"""Points of pairs, and what counts as linked."""

import pytest
from tests.support.allocation import NVLINK, PCIE, gpu, linked

from gpusharing.core.allocation.links import is_linked, links_of, pair_score
from gpusharing.core.devices import Inventory, Link


@pytest.mark.parametrize(
    ("link", "points"),
    [
        (Link(50), 10),
        (Link(40), 20),
        (Link(30), 30),
        (Link(20), 40),
        (Link(10), 50),
        (Link(0), 60),
        (Link(50, nvlinks=2), 210),
        (Link(10, nvlinks=18), 1850),
        (Link(10, nvlinks=36), 1850),
        (Link(30, switched=True), 30),
        (None, 0),
    ],
    ids=str,
)
def test_the_points_of_a_pair(link: Link | None, points: int) -> None:
    assert pair_score(link) == points


@pytest.mark.parametrize(
    ("link", "want"),
    [(NVLINK, True), (Link(30, switched=True), True), (PCIE, False), (None, False)],
    ids=["nvlink", "nvswitch", "pcie", "unreadable"],
)
def test_linked_is_what_nvlink_joins(link: Link | None, want: bool) -> None:
    assert is_linked(link) is want


def test_a_set_is_the_sum_of_its_pairs_whatever_the_order() -> None:
    gpus = [gpu(at, name) for at, name in enumerate("ABC")]
    links = links_of(gpus, Inventory(gpus=tuple(gpus), links=linked("ABC", "A-C", other=None)))
    assert links.score((0, 1, 2)) == links.score((2, 1, 0)) == 410
    assert links.unlinked((0, 1, 2)) == 2
    assert links.score((1,)) == links.unlinked((1,)) == 0


def test_a_gpu_that_is_not_in_the_inventory_has_no_links() -> None:
    links = links_of([gpu(0, "A"), None], Inventory())
    assert (links.score((0, 1)), links.unlinked((0, 1))) == (0, 1)
