"""Where a world comes from when there is no cluster: files, also broken ones."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.builders import make_node, make_policy
from tests.support.worlds import objects_of, save

from gpusharing.cli.sources import Source
from gpusharing.core.errors import InvalidInput

POLICY = make_policy("pack").sharing(4)


def write(folder: Path, text: str) -> str:
    file = folder / "saved"
    file.write_text(text)
    return str(file)


def test_a_saved_list_is_read_by_kind(tmp_path: Path) -> None:
    world = Source([save(tmp_path, nodes=[make_node()], policies=[POLICY])]).read()
    assert (list(world.nodes), list(world.policies), world.layout) == (["a"], ["pack"], "per-node")


def test_yaml_and_several_documents_and_files_are_read_too(tmp_path: Path) -> None:
    objects = objects_of(nodes=[make_node("a"), make_node("b")], policies=[POLICY])
    file = write(tmp_path, yaml.safe_dump_all([*objects["nodes"], {"kind": "List", "items": objects["policies"]}]))
    more = save(tmp_path, nodes=[make_node("c")])
    world = Source([file, more]).read()
    assert (sorted(world.nodes), list(world.policies)) == (["a", "b", "c"], ["pack"])


def test_only_configmaps_of_the_controllers_namespace_are_records(tmp_path: Path) -> None:
    record = {"kind": "ConfigMap", "metadata": {"name": "gpusharing-a", "namespace": "elsewhere"}}
    file = write(tmp_path, json.dumps({"kind": "List", "items": [{"kind": "Node", **make_node().object()}, record]}))
    here, there = Source([file]).read(), Source([file], namespace="elsewhere").read()
    assert (here.records, here.records_known) == ({}, False)
    assert (list(there.records), there.records_known) == (["a"], True)


def test_the_layout_can_be_told(tmp_path: Path) -> None:
    assert Source([save(tmp_path, nodes=[make_node()])], layout="shared").read().layout == "shared"


NODE = {"kind": "Node", "metadata": {"name": "a"}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is not valid YAML"),
        ("a: [", "is not valid YAML"),
        ("", "no nodes in"),
        ("3", "holds 3, which is no Kubernetes object"),
        ('{"kind": "List", "items": [null]}', "holds null"),
        ('{"kind": "Node", "metadata": {}}', "no Kubernetes object"),
        ('{"kind": "Node", "metadata": {"name": 7}}', "no Kubernetes object"),
        (
            json.dumps({"kind": "Node", "metadata": {"name": "a", "labels": {"x": 1}}}),
            'Node "a", which is no Kubernetes object: metadata.labels.x',
        ),
        (json.dumps({"kind": "List", "items": []}), "no nodes in"),
    ],
    ids=["json", "deep", "yaml", "empty", "number", "null", "nameless", "number-name", "label", "no-items"],
)
def test_a_broken_file_is_an_error_that_names_it(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        Source([write(tmp_path, text)]).read()
    assert message in error.value.message
    assert "saved" in error.value.message


def test_a_file_without_nodes_says_how_to_save_them(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as error:
        Source([write(tmp_path, json.dumps({"kind": "List", "items": []}))], namespace="ns").read()
    assert "kubectl get nodes,gsp,gpunodes,cm -n ns -o json" in error.value.hint


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        ({"kind": "Node", "metadata": {"name": "b", "managedFields": 3}}, "metadata.managedFields"),
        ({"kind": "Node", "metadata": {"name": "b"}, "status": {"allocatable": 3}}, "status.allocatable"),
        ({"kind": "GpuNode", "metadata": {"name": "a"}, "status": []}, "status"),
        ({"kind": "ConfigMap", "metadata": {"name": "gpusharing-a"}, "data": {"key": 3}}, "data.key"),
    ],
    ids=["managed-fields", "allocatable", "status", "data"],
)
def test_an_object_of_another_shape_is_refused_with_the_place(tmp_path: Path, broken: Any, path: str) -> None:
    with pytest.raises(InvalidInput, match=path):
        Source([write(tmp_path, json.dumps({"kind": "List", "items": [NODE, broken]}))]).read()


def test_a_policy_of_another_shape_is_read_as_an_invalid_one(tmp_path: Path) -> None:
    broken = {"kind": "GpuSharingPolicy", "metadata": {"name": "b"}, "spec": []}
    world = Source([write(tmp_path, json.dumps({"kind": "List", "items": [NODE, broken]}))]).read()
    assert world.policies["b"].problems


def test_a_file_that_is_no_text_says_so(tmp_path: Path) -> None:
    file = tmp_path / "saved"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="is not UTF-8 text"):
        Source([str(file)]).read()
