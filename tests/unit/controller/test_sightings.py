"""Lists, watches and answers overtake each other; an object never becomes older, and stays dead."""

from typing import Any

import pytest

from gpusharing.controller.sightings import Sightings


def at(version: int, name: str = "a") -> dict[str, Any]:
    return {"name": name, "resourceVersion": str(version)}


def seen(*metadata: dict[str, Any]) -> Sightings:
    sightings = Sightings()
    for each in metadata:
        sightings.is_news(each)
    return sightings


def missing_from_list(sightings: Sightings, version: int, *names: str) -> list[str]:
    """What a list of this version with these names lacks."""
    sightings.ask_list()
    sightings.start_list(version)
    return sightings.missing(set(names))


def test_what_was_never_seen_is_news() -> None:
    assert Sightings().is_news(at(1))


@pytest.mark.parametrize(("version", "want"), [(4, False), (5, True), (6, True)], ids=["older", "same", "newer"])
def test_only_what_is_older_is_no_news(version: int, want: bool) -> None:
    assert seen(at(5)).is_news(at(version)) is want


def test_versions_are_compared_as_numbers() -> None:
    assert seen(at(9)).is_news(at(10))


def test_old_news_does_not_make_an_object_older() -> None:
    sightings = seen(at(5))
    sightings.is_news(at(4))
    assert not sightings.is_news(at(4))


def test_names_do_not_concern_one_another() -> None:
    assert seen(at(5, "a")).is_news(at(4, "b"))


def test_an_object_without_a_version_is_always_news() -> None:
    assert seen(at(5)).is_news({"name": "a"})


def test_a_list_lacks_what_is_gone() -> None:
    assert missing_from_list(seen(at(5, "a"), at(6, "b")), 7, "b") == ["a"]


def test_a_list_does_not_lack_what_is_younger_than_itself() -> None:
    sightings = seen(at(5, "a"))
    sightings.ask_list()
    sightings.is_news(at(9, "b"))
    sightings.start_list(8)
    assert sightings.missing(set()) == ["a"]


def test_what_is_gone_is_not_brought_back_by_an_older_answer() -> None:
    sightings = seen(at(5))
    missing_from_list(sightings, 7)
    assert not sightings.is_news(at(6))
    assert sightings.is_news(at(8))


def test_a_deletion_is_not_undone_by_an_answer_that_it_overtook() -> None:
    sightings = seen(at(5))
    assert sightings.bury(at(7))
    assert not sightings.is_news(at(6))
    assert sightings.is_news(at(8))


def test_a_deletion_that_the_next_of_the_name_overtook_is_no_news() -> None:
    assert not seen(at(8)).bury(at(7))


def test_a_deletion_is_remembered_until_the_second_list_after_it() -> None:
    sightings = seen(at(5))
    sightings.bury(at(7))
    assert missing_from_list(sightings, 8) == ["a"]
    assert not sightings.is_news(at(6))
    assert missing_from_list(sightings, 9) == ["a"]
    assert missing_from_list(sightings, 10) == []  # forgotten


def test_an_object_that_lives_again_is_not_forgotten() -> None:
    sightings = seen(at(5))
    missing_from_list(sightings, 6)
    sightings.is_news(at(7))
    assert missing_from_list(sightings, 8, "a") == []
    assert not sightings.is_news(at(6))
    assert missing_from_list(sightings, 9) == ["a"]
    assert not sightings.is_news(at(8))


def test_what_we_deleted_ourselves_is_not_brought_back_by_a_list_that_began_before() -> None:
    sightings = seen(at(5))
    sightings.bury_ours("a")
    assert not sightings.is_news(at(5))
    assert sightings.is_news(at(7))


def test_an_etcd_that_was_set_back_makes_everything_news_and_what_it_lacks_is_gone() -> None:
    sightings = seen(at(50, "a"), at(60, "b"))
    sightings.ask_list()
    sightings.start_list(40)
    assert sightings.is_news(at(30, "a"))
    assert sightings.missing({"a"}) == ["b"]
    assert not sightings.is_news(at(29, "a"))


def test_a_list_that_a_watch_overtook_is_not_taken_for_an_etcd_that_was_set_back() -> None:
    sightings = seen(at(5))
    sightings.ask_list()
    sightings.is_news(at(9))
    sightings.start_list(8)
    assert not sightings.is_news(at(7))


def test_after_an_etcd_was_set_back_it_goes_on_as_before() -> None:
    sightings = seen(at(50))
    missing_from_list(sightings, 40, "a")
    sightings.is_news(at(41))
    assert missing_from_list(sightings, 42, "a") == []
    assert not sightings.is_news(at(40))


def test_only_the_very_version_that_was_taken_in_is_known() -> None:
    sightings = seen(at(5))
    assert sightings.knows(at(5))
    assert not sightings.knows(at(4))
    assert not sightings.knows(at(6))
    assert not sightings.knows(at(5, "b"))


def test_an_object_without_a_version_is_never_known() -> None:
    assert not seen({"name": "a"}).knows({"name": "a"})


def test_a_version_of_an_object_that_is_gone_is_not_known() -> None:
    by_watch, by_list, by_us = seen(at(5)), seen(at(5)), seen(at(5))
    by_watch.bury(at(6))
    missing_from_list(by_list, 6)
    by_us.bury_ours("a")
    for sightings in (by_watch, by_list, by_us):
        assert not any(sightings.knows(at(version)) for version in (5, 6))


def test_after_an_etcd_was_set_back_no_version_is_known() -> None:
    sightings = seen(at(5), at(9, "b"))
    missing_from_list(sightings, 6, "a")
    assert not sightings.knows(at(5))
