import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import NOW, ago, make_node, make_policy, make_record

from gpusharing.api import names
from gpusharing.core.records import Record, needs_write, read_record, record_name, record_object, wanted_record

NODE = make_node("a").build()
OLD, NEW = make_policy().sharing(2), make_policy().sharing(4)
OLD_CONFIG, NEW_CONFIG = OLD.rendered(), NEW.rendered()

DNS = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
words = st.text("abz019", min_size=1, max_size=4) | st.sampled_from(["n" * 60, "a-b", "x--y"])
node_names = st.lists(words, min_size=1, max_size=6).map(".".join).map(lambda name: name[:253].rstrip(".-"))


# --- names


def test_a_record_is_named_after_its_node() -> None:
    assert record_name("gpu-a.example.com") == "gpusharing-gpu-a.example.com"


def test_of_two_nodes_of_253_characters_that_differ_at_the_end_each_has_its_own_record() -> None:
    one, other = "n" * 252 + "a", "n" * 252 + "b"
    assert record_name(one) != record_name(other)
    assert {len(record_name(one)), len(record_name(other))} == {253}


def test_the_longest_name_that_fits_is_not_cut() -> None:
    assert record_name("n" * 242) == f"gpusharing-{'n' * 242}"
    assert record_name("n" * 243) != f"gpusharing-{'n' * 243}"


@pytest.mark.parametrize("ending", [".", "-", "a.", "a-"], ids=repr)
def test_a_name_that_is_cut_at_a_dot_or_hyphen_stays_valid(ending: str) -> None:
    node = "n" * (244 - len("gpusharing-") - len(ending)) + ending + "z" * 20
    assert re.fullmatch(DNS, record_name(node))


@given(st.lists(node_names, min_size=2, max_size=2, unique=True))
def test_every_name_is_a_dns_name_of_its_own(nodes: list[str]) -> None:
    records = [record_name(node) for node in nodes]
    assert all(re.fullmatch(DNS, record) and len(record) <= 253 for record in records)
    assert len(set(records)) == 2


# --- reading and writing


@given(node_names, st.none() | st.just("") | st.just("manual"), st.dictionaries(st.text(min_size=1), st.text()))
def test_a_record_is_read_back_as_it_was_written(node: str, previous_label: str | None, data: dict[str, str]) -> None:
    record = Record(node, "u", "p", "pu", "packed-1", previous_label, data)
    read = read_record(record_object(record, "ns"))
    assert read == record
    assert (read.ours, read.name) == (True, record_name(node))


def test_a_record_dies_with_its_node_and_does_not_block_its_end() -> None:
    obj = record_object(make_record(NODE, OLD), "ns")
    assert obj["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "uid-a"}]
    assert obj["metadata"]["namespace"] == "ns"


def written(record: Record | None = None, **metadata: Any) -> dict[str, Any]:
    obj = record_object(record or make_record(NODE, OLD), "ns")
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


OURS = {"manager": names.FIELD_MANAGER, "operation": "Apply", "time": "2026-11-30T11:00:00Z"}


class TestWhoseItIs:
    def test_a_configmap_of_that_name_without_our_marks_is_foreign(self) -> None:
        read = read_record({"metadata": {"name": "gpusharing-a"}, "data": {"x": "y"}})
        assert (read.ours, read.node) == (False, "a")

    def test_our_label_makes_it_ours(self) -> None:
        assert read_record(written()).ours

    def test_our_apply_makes_it_ours_even_if_somebody_removed_the_label(self) -> None:
        assert read_record(written(labels={}, managedFields=[OURS])).ours

    def test_an_update_in_our_name_does_not(self) -> None:
        assert not read_record(written(labels=None, managedFields=[{**OURS, "operation": "Update"}])).ours

    def test_a_node_annotation_that_somebody_broke_does_not_make_it_foreign(self) -> None:
        read = read_record(written(annotations={names.NODE_ANNOTATION: "another", names.CONFIG_ANNOTATION: "x"}))
        assert (read.ours, read.node, read.config) == (True, "a", "x")

    def test_all_annotations_gone_it_is_still_ours_and_says_nothing(self) -> None:
        read = read_record(written(annotations=None))
        assert (read.ours, read.node, read.policy, read.config, read.previous_label) == (True, "a", "", "", None)

    def test_a_configmap_of_ours_that_bears_no_record_s_name_is_no_record(self) -> None:
        shared = {"metadata": {"name": "gpu-sharing-config", "labels": {names.MANAGED_LABEL: "true"}}}
        assert not read_record(shared).ours

    def test_of_a_long_name_the_annotation_says_the_node(self) -> None:
        long = make_node("n" * 253).build()
        assert read_record(written(make_record(long, OLD))).node == "n" * 253


def test_the_time_of_our_last_apply_is_read() -> None:
    other = {"manager": "kubectl-edit", "operation": "Update", "time": "2026-11-30T11:59:00Z"}
    earlier = {**OURS, "time": "2026-11-30T10:00:00Z"}
    assert read_record(written(managedFields=[earlier, OURS, other])).applied_at == ago(hours=1)
    assert read_record(written()).applied_at is None


def test_a_record_of_a_node_that_was_created_anew_has_the_old_uid() -> None:
    other_owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "other"}
    obj = written()
    obj["metadata"]["ownerReferences"].insert(0, other_owner)
    assert read_record(obj).node_uid == "uid-a"
    assert read_record(written(ownerReferences=[])).node_uid == ""


# --- what a record should be


def wanted(current: Record | None, label: str = "", policy: Any = NEW) -> Record:
    node = make_node("a").config(label).build() if label else NODE
    return wanted_record(node, policy.build(), "per-node", current, None)


def test_a_first_record_holds_the_config_alone() -> None:
    record = wanted(None)
    assert record == make_record(NODE, NEW)
    assert (record.policy, record.policy_uid, record.config) == ("p", "uid-p", NEW_CONFIG.name)


def test_the_config_before_is_kept_beside_the_new_one() -> None:
    record = wanted(make_record(NODE, OLD), label=OLD_CONFIG.name)
    assert record.data == {NEW_CONFIG.name: NEW_CONFIG.text, OLD_CONFIG.name: OLD_CONFIG.text}


def test_it_stays_until_the_next_change() -> None:
    current = make_record(NODE, NEW, **{OLD_CONFIG.name: OLD_CONFIG.text})
    assert wanted(current, label=NEW_CONFIG.name) == current
    assert not needs_write(current, wanted(current, label=NEW_CONFIG.name))


def test_there_are_never_more_than_two() -> None:
    current = make_record(NODE, NEW, **{OLD_CONFIG.name: OLD_CONFIG.text})
    third = make_policy().sharing(8)
    record = wanted(current, label=NEW_CONFIG.name, policy=third)
    assert list(record.data) == [third.rendered().name, NEW_CONFIG.name]


def test_going_back_swaps_the_two() -> None:
    current = make_record(NODE, NEW, **{OLD_CONFIG.name: OLD_CONFIG.text})
    record = wanted(current, label=NEW_CONFIG.name, policy=OLD)
    assert list(record.data) == [OLD_CONFIG.name, NEW_CONFIG.name]


def test_what_the_label_still_names_is_kept_even_if_the_record_was_one_step_further() -> None:
    """The pass that assigned NEW ended before the label moved, and the policy changed again."""
    current = make_record(NODE, NEW, **{OLD_CONFIG.name: OLD_CONFIG.text})
    third = make_policy().sharing(8)
    record = wanted(current, label=OLD_CONFIG.name, policy=third)
    assert list(record.data) == [third.rendered().name, OLD_CONFIG.name]


@pytest.mark.parametrize(
    "text",
    ["", "version: v1", "not: {a config", "x: y", "version: 2026-99-99", OLD_CONFIG.text.replace("2", "3")],
    ids=["emptied", "another config", "no YAML", "no config", "no date", "edited"],
)
def test_a_previous_config_that_was_edited_by_hand_is_not_one_to_go_back_to(text: str) -> None:
    current = make_record(NODE, OLD)
    edited = Record(current.node, current.node_uid, "p", "uid-p", OLD_CONFIG.name, data={OLD_CONFIG.name: text})
    assert wanted(edited, label=OLD_CONFIG.name).data == {NEW_CONFIG.name: NEW_CONFIG.text}


@pytest.mark.parametrize("key", ["notes", "notes-", "packed-00000000"], ids=repr)
def test_a_key_that_names_no_content_is_not_taken_for_a_config(key: str) -> None:
    current = make_record(NODE, NEW, **{key: OLD_CONFIG.text})
    assert wanted(current, label=NEW_CONFIG.name).data == {NEW_CONFIG.name: NEW_CONFIG.text}


def test_in_layout_shared_a_record_has_no_data() -> None:
    record = wanted_record(NODE, NEW.build("shared"), "shared", make_record(NODE, OLD), "manual")
    assert (record.data, record.previous_label) == ({}, "manual")


# --- whether to write it

CHANGES = {
    "node": "b",
    "node_uid": "new",
    "policy": "q",
    "policy_uid": "new",
    "config": "other",
    "previous_label": "manual",
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_difference_in_any_field_needs_a_write(field: str) -> None:
    current = make_record(NODE, OLD)
    fields = {name: getattr(current, name) for name in (*CHANGES, "data")}
    assert needs_write(current, Record(**{**fields, field: CHANGES[field]}))


def test_a_text_that_was_edited_needs_a_write() -> None:
    current = make_record(NODE, OLD)
    edited = Record(current.node, current.node_uid, "p", "uid-p", current.config, data={current.config: "x"})
    assert needs_write(edited, current)


def test_a_key_that_is_gone_needs_a_write() -> None:
    emptied = Record("a", "uid-a", "p", "uid-p", OLD_CONFIG.name)
    assert needs_write(emptied, make_record(NODE, OLD))


def test_a_key_that_somebody_added_is_none_of_our_business() -> None:
    assert not needs_write(make_record(NODE, OLD, notes="mine"), make_record(NODE, OLD))


def test_when_it_was_applied_is_none_of_our_business() -> None:
    current = make_record(NODE, OLD)
    read = Record(current.node, current.node_uid, "p", "uid-p", current.config, data=current.data, applied_at=NOW)
    assert not needs_write(read, current)


def test_no_record_needs_a_write() -> None:
    assert needs_write(None, make_record(NODE, OLD))
