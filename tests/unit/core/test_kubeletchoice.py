"""Whether a kubelet took other ids than the preferred ones, and whether a request was split needlessly."""

import pytest

from gpusharing.core.kubeletchoice import NO_VERDICT, Offer, Verdict, judge, overruled_sentence
from gpusharing.core.listing import Entry
from gpusharing.core.resources import Device, Resource
from gpusharing.core.serving import ServedConfig

RESOURCE, CONFIG = Resource("nvidia.com/gpu", ()), ServedConfig()


def entries(*gpus: str, shares: int = 4, sick: str = "") -> dict[str, Entry]:
    """The shares A0, A1, … of the GPUs."""
    devices = [Device(f"{gpu}{at}", gpu, gpu) for gpu in gpus for at in range(shares)]
    return {it.id: Entry(it, RESOURCE, CONFIG, sick="XID 48" * (it.id == sick)) for it in devices}


LIST = entries("A", "B", "C")


def offer(available: str, size: int, preferred: str = "", must_include: str = "") -> Offer:
    return Offer(available.split(), must_include.split(), size, preferred.split())


@pytest.mark.parametrize(
    ("made", "taken", "want"),
    [
        (offer("A0 A1 B0", 2, "A0 A1"), "A1 A0", Verdict()),
        (offer("A0 A1 B0", 1, "A0"), "A1", Verdict(overruled=True)),
        (offer("A0 A1 B0", 2, "A0 A1"), "A0 B0", Verdict(overruled=True, split_by="kubelet")),
        (offer("A0 B0 C0", 2, "A0 B0"), "A0 C0", Verdict(overruled=True)),
        (offer("A0 A1 B0", 2, "A0 B0"), "B0 A0", Verdict(split_by="plugin")),
        (offer("A0 A1 B0", 2), "A1 B0", Verdict(split_by="kubelet")),
        (offer("A0 A1 B0", 2), "A1 A0", Verdict()),
        (offer("A0 B0 B1", 2, "A0 B0"), "A0 B0", Verdict(split_by="plugin")),
        (offer("A0 B0 B1", 2, "A0 B0", must_include="A0"), "A0 B0", Verdict()),
        (offer("B0", 3, "A0 A1 B0", must_include="A0 A1"), "A0 A1 B0", Verdict()),
        (offer("A2 B0", 3, "A0 A1 B0", must_include="A0 A1"), "A0 A1 B0", Verdict(split_by="plugin")),
        (offer("A1 A2 A3 C0", 3, "A0 B0 C0", must_include="A0 B0"), "A0 B0 C0", Verdict()),
    ],
    ids=[
        "followed",
        "another share of the same GPU",
        "split against advice",
        "split another way where it had to be",
        "the policy splits",
        "no preference, split",
        "no preference, not split",
        "the policy splits although another GPU has room",
        "what must be included is where there is no room",
        "must-include ids are on a full GPU",
        "must-include ids are on a GPU with room",
        "must-include ids are split already",
    ],
)
def test_an_allocate_is_judged_by_the_offer_before_it(made: Offer, taken: str, want: Verdict) -> None:
    assert judge(made, taken.split(), LIST) == want


@pytest.mark.parametrize(
    ("made", "taken"),
    [
        (offer("A0 A1", 2, "A0 A1"), "A1"),
        (offer("A0 A1", 1, "A0"), "B0"),
        (offer("A1 B0", 2, "A0 A1", must_include="A0"), "A1 B0"),
    ],
    ids=["another size", "not offered", "without what must be included"],
)
def test_an_allocate_that_cannot_answer_the_offer_is_not_judged_by_it(made: Offer, taken: str) -> None:
    assert judge(made, taken.split(), LIST) == NO_VERDICT


def test_a_gpu_with_a_sick_share_is_no_place_that_a_request_should_have_been_kept_on() -> None:
    made = offer("A0 A1 B0 C0", 2, "B0 C0")
    assert judge(made, ["B0", "C0"], entries("A", "B", "C", sick="A3")) == NO_VERDICT


def test_whole_gpus_are_never_split_needlessly() -> None:
    made = offer("A0 B0 C0", 2, "A0 B0")
    assert judge(made, ["A0", "B0"], entries("A", "B", "C", shares=1)) == NO_VERDICT


def test_a_sentence_names_what_differs_and_no_more_than_a_few() -> None:
    made = offer("A0 A1 B0", 2, "A0 A1")
    assert overruled_sentence("nvidia.com/gpu", made, ["A1", "B0"]).startswith(
        "nvidia.com/gpu: the kubelet gave a container B0 where the plugin preferred A0. hint: "
    )
    long = Offer([], [], 9, [f"A{at}" for at in range(9)])
    assert "A0, A1, A2, A3, A4 and 4 more. hint" in overruled_sentence("r", long, [f"B{at}" for at in range(9)])
