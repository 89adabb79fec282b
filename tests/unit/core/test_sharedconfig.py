import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, ago

from gpusharing.api import names
from gpusharing.core.sharedconfig import (
    NOTHING_SHARED,
    SharedConfig,
    SharedPlan,
    plan_shared,
    read_shared,
    shared_object,
)

DEFAULT = "version: v1\n"
DELAY, RETENTION = timedelta(seconds=120), timedelta(minutes=10)


def planned(
    current: SharedConfig,
    configs: dict[str, str],
    *labelled: str,
    now: datetime = NOW,
    default: str = DEFAULT,
) -> SharedPlan:
    return plan_shared(current, configs, frozenset(labelled), default=default, now=now, retention=RETENTION)


def stored(shared: SharedConfig, **others: str) -> SharedConfig:
    """What stands in the cluster after our apply, with keys that others own."""
    obj = shared_object(shared, "c", "ns")
    return read_shared({**obj, "data": {**others, **obj["data"]}})


def after(current: SharedConfig, configs: dict[str, str], *labelled: str, now: datetime = NOW) -> SharedConfig:
    return stored(planned(current, configs, *labelled, now=now).wanted)


WITH_A = after(NOTHING_SHARED, {"a": "A"})


# --- reading and writing

instants = st.dictionaries(
    st.text(max_size=5),
    st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9000, 1, 1)).map(
        lambda moment: moment.replace(microsecond=0, tzinfo=NOW.tzinfo)
    ),
)


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5)), instants, instants)
def test_it_is_read_back_as_it_was_written(
    data: dict[str, str], written: dict[str, datetime], unreferenced: dict[str, datetime]
) -> None:
    shared = SharedConfig(data, written, unreferenced)
    read = stored(shared)
    assert read == shared
    assert (read.exists, read.ours) == (True, True)


def test_none_at_all_is_not_there() -> None:
    assert (read_shared(None), read_shared(None).exists) == (NOTHING_SHARED, False)


def test_one_without_our_label_is_foreign() -> None:
    read = read_shared({"metadata": {"name": "c"}, "data": {"default": "x"}})
    assert (read.exists, read.ours) == (True, False)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "3",
        "null",
        '{"a": 3}',
        '{"a": "soon"}',
        '{"a": null}',
        '{"a": "2026-11-30T12:00:00"}',
        "[" * 5000,
    ],
    ids=[
        "empty",
        "no JSON",
        "a list",
        "a number",
        "null",
        "a number inside",
        "no time",
        "null inside",
        "no zone",
        "deep",
    ],
)
def test_an_annotation_that_somebody_broke_counts_as_not_there(text: str) -> None:
    annotations = {names.WRITTEN_ANNOTATION: text, names.UNREFERENCED_ANNOTATION: text}
    read = read_shared({"metadata": {"annotations": annotations}, "data": {"a": "A"}})
    assert (read.written, read.unreferenced) == ({}, {})


# --- what is in it


def test_the_first_write_has_the_configs_and_the_default() -> None:
    plan = planned(NOTHING_SHARED, {"a": "A", "b": "B"})
    assert plan.write
    assert plan.wanted == SharedConfig(
        {"default": DEFAULT, "a": "A", "b": "B"}, {"default": NOW, "a": NOW, "b": NOW}, {}
    )


def test_it_is_written_even_if_no_config_is_wanted() -> None:
    assert planned(NOTHING_SHARED, {}).write


def test_nothing_changed_is_no_write() -> None:
    plan = planned(WITH_A, {"a": "A"}, now=NOW + timedelta(hours=1))
    assert (plan.write, plan.due) == (False, None)


@pytest.mark.parametrize(
    "damage",
    [
        {"data": {"default": DEFAULT, "a": "edited"}},
        {"data": {"default": DEFAULT}},
        {"data": {}},
        {"data": {"default": "edited", "a": "A"}},
        {"written": {}},
        {"unreferenced": {"a": NOW}},
    ],
    ids=["a text edited", "a key removed", "emptied", "the default edited", "one annotation gone", "another one wrong"],
)
def test_what_somebody_damaged_is_put_back(damage: dict[str, Any]) -> None:
    plan = planned(replace(WITH_A, **damage), {"a": "A"}, now=NOW + timedelta(hours=1))
    assert plan.write
    assert plan.wanted.data == {"default": DEFAULT, "a": "A"}


def test_another_default_is_written() -> None:
    plan = planned(WITH_A, {"a": "A"}, default="version: v1 # mine")
    assert (plan.write, plan.wanted.data["default"]) == (True, "version: v1 # mine")


# --- the first clock: a label moves once every reader has its key


def test_a_key_is_visible_sync_delay_after_it_was_written() -> None:
    assert WITH_A.visible_in("a", NOW, DELAY) == DELAY
    assert WITH_A.visible_in("a", NOW + timedelta(seconds=119), DELAY) == timedelta(seconds=1)
    assert WITH_A.visible_in("a", NOW + DELAY, DELAY) == timedelta(0)
    assert WITH_A.visible_in("a", NOW + timedelta(days=1), DELAY) == timedelta(0)


def test_a_key_that_is_not_written_is_not_visible_at_any_time() -> None:
    assert WITH_A.visible_in("b", NOW, DELAY) is None
    assert replace(WITH_A, data={}).visible_in("a", NOW, DELAY) is None


def test_a_restart_does_not_wait_anew() -> None:
    later = NOW + timedelta(seconds=100)
    restarted = after(stored(WITH_A), {"a": "A"}, now=later)
    assert restarted.visible_in("a", later, DELAY) == timedelta(seconds=20)


def test_a_text_that_was_edited_and_put_back_has_to_reach_the_readers_again() -> None:
    later = NOW + timedelta(hours=1)
    edited = replace(WITH_A, data={"default": DEFAULT, "a": "edited"})
    assert after(edited, {"a": "A"}, now=later).visible_in("a", later, DELAY) == DELAY


def test_an_instant_in_the_future_holds_a_label_no_longer_than_the_delay() -> None:
    future = replace(WITH_A, written={"a": NOW + timedelta(days=365)})
    assert future.visible_in("a", NOW, DELAY) == DELAY
    assert after(future, {"a": "A"}).written["a"] == NOW


# --- the second clock: a key goes once nobody can still read it


def test_a_key_goes_retention_after_its_last_reference() -> None:
    dropped = after(WITH_A, {})
    assert dropped.unreferenced == {"a": NOW}
    kept = planned(dropped, {}, now=NOW + RETENTION - timedelta(seconds=1))
    assert "a" in kept.wanted.data
    assert (kept.write, kept.due) == (False, timedelta(seconds=1))
    gone = planned(dropped, {}, now=NOW + RETENTION)
    assert gone.wanted == SharedConfig({"default": DEFAULT}, {"default": NOW}, {})
    assert (gone.write, gone.due) == (True, None)


def test_a_restart_does_not_start_the_retention_anew() -> None:
    dropped = after(WITH_A, {})
    restarted = after(stored(dropped), {}, now=NOW + timedelta(minutes=9))
    assert "a" not in planned(restarted, {}, now=NOW + RETENTION).wanted.data


def test_a_key_that_is_wanted_again_starts_over() -> None:
    dropped = after(WITH_A, {})
    back = after(dropped, {"a": "A"}, now=NOW + timedelta(minutes=9))
    assert back.unreferenced == {}
    assert after(back, {}, now=NOW + timedelta(minutes=20)).unreferenced == {"a": NOW + timedelta(minutes=20)}


def test_a_key_that_a_label_still_names_does_not_go() -> None:
    labelled = after(WITH_A, {}, "a")
    assert labelled.unreferenced == {}
    assert "a" in planned(labelled, {}, "a", now=NOW + timedelta(days=30)).wanted.data


def test_of_several_keys_the_next_to_go_is_due() -> None:
    both = after(NOTHING_SHARED, {"a": "A", "b": "B"}, now=ago(minutes=9))
    one = after(both, {"b": "B"}, now=ago(minutes=5))
    assert planned(one, {}).due == timedelta(minutes=5)


def test_without_its_annotations_no_key_goes_early() -> None:
    bare = replace(after(WITH_A, {}), written={}, unreferenced={})
    later = NOW + timedelta(days=1)
    plan = planned(bare, {}, now=later)
    assert (plan.wanted.data["a"], plan.due) == ("A", RETENTION)


@pytest.mark.parametrize("year", [2027, 9999])
def test_an_instant_in_the_future_keeps_a_key_no_longer_than_the_retention(year: int) -> None:
    future = replace(after(WITH_A, {}), unreferenced={"a": NOW.replace(year=year)})
    plan = planned(future, {})
    assert plan.wanted.unreferenced == {"a": NOW}
    assert plan.due == RETENTION


# --- keys of others


def test_a_key_that_somebody_added_is_left_to_them_and_to_no_clock() -> None:
    current = stored(WITH_A, mine="M")
    plan = planned(current, {"a": "A"}, now=NOW + timedelta(days=1))
    assert (plan.write, plan.due) == (False, None)
    assert "mine" not in plan.wanted.data


def test_a_key_that_somebody_added_does_not_cause_writes_for_ever() -> None:
    current, writes, now = stored(after(WITH_A, {}), mine="M"), 0, NOW
    for _ in range(200):
        now += timedelta(minutes=1)
        plan = planned(current, {}, now=now)
        writes += plan.write
        current = stored(plan.wanted, mine="M")
    assert writes == 1  # the end of `a`


def test_a_key_that_somebody_added_and_a_label_names_is_kept() -> None:
    plan = planned(stored(WITH_A, mine="M"), {"a": "A"}, "mine")
    assert plan.wanted.data["mine"] == "M"


# --- laws

keys = st.sampled_from(["a", "b", "c"])
texts = {"a": "A", "b": "B", "c": "C"}
steps = st.lists(
    st.tuples(st.frozensets(keys), st.frozensets(keys), st.integers(0, 900), st.sampled_from(["", "written", "both"])),
    min_size=1,
    max_size=12,
)


@given(steps)
def test_a_key_that_is_referenced_or_labelled_is_never_dropped(steps: list[Any]) -> None:
    current, now = NOTHING_SHARED, NOW
    for wanted, labels, seconds, broken in steps:
        now += timedelta(seconds=seconds)
        if broken:
            current = replace(current, written={}, unreferenced={} if broken == "both" else current.unreferenced)
        plan = planned(current, {key: texts[key] for key in sorted(wanted)}, *labels, now=now)
        assert wanted <= set(plan.wanted.data)
        assert labels & set(current.data) <= set(plan.wanted.data)
        current = stored(plan.wanted)


@given(steps)
def test_a_key_goes_no_earlier_than_retention_after_it_was_last_referenced(steps: list[Any]) -> None:
    current, now = NOTHING_SHARED, NOW
    last: dict[str, datetime] = {}
    for wanted, labels, seconds, _ in steps:
        now += timedelta(seconds=seconds)
        # a key is referenced up to the pass that first finds it unreferenced
        last.update(dict.fromkeys((set(current.data) - set(current.unreferenced)) | wanted, now))
        plan = planned(current, {key: texts[key] for key in sorted(wanted)}, *labels, now=now)
        for key in set(current.data) - set(plan.wanted.data):
            assert now >= last[key] + RETENTION
        current = stored(plan.wanted)


@given(steps)
def test_planning_again_writes_nothing(steps: list[Any]) -> None:
    current, now = NOTHING_SHARED, NOW
    for wanted, labels, seconds, _ in steps:
        now += timedelta(seconds=seconds)
        configs = {key: texts[key] for key in sorted(wanted)}
        current = stored(planned(current, configs, *labels, now=now).wanted)
        assert not planned(current, configs, *labels, now=now).write


@given(steps, st.integers(0, 999_999))
def test_every_written_key_has_an_instant_and_none_lies_in_the_future(steps: list[Any], micros: int) -> None:
    current, now = NOTHING_SHARED, NOW.replace(microsecond=micros)
    for wanted, labels, seconds, _ in steps:
        now += timedelta(seconds=seconds)
        current = stored(planned(current, {key: texts[key] for key in wanted}, *labels, now=now).wanted)
        assert set(current.written) == set(current.data)
        assert set(current.unreferenced) <= set(current.data) - wanted - labels
        assert all(moment <= now for moment in [*current.written.values(), *current.unreferenced.values()])


def test_the_order_of_configs_does_not_change_what_is_written() -> None:
    one = shared_object(planned(NOTHING_SHARED, {"a": "A", "b": "B"}).wanted, "c", "ns")
    other = shared_object(planned(NOTHING_SHARED, {"b": "B", "a": "A"}).wanted, "c", "ns")
    assert one == other
    assert json.loads(one["metadata"]["annotations"][names.WRITTEN_ANNOTATION])["a"] == "2026-11-30T12:00:00Z"
