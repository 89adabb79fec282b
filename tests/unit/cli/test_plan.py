"""`kubectl gpusharing plan`, offline: what it prints, and its exit codes."""

import json
from pathlib import Path

import pytest
import yaml
from tests.support.builders import PolicyBuilder, make_node, make_policy, make_report
from tests.support.commands import run
from tests.support.worlds import configured, save

from gpusharing.api.plan import PlanReport

PACK = make_policy("pack").sharing(4)
Capsys = pytest.CaptureFixture[str]


def write(folder: Path, *policies: PolicyBuilder, name: str = "policies.yaml") -> str:
    file = folder / name
    objects = [{**policy.object(), "metadata": {"name": policy.name}} for policy in policies]
    file.write_text(yaml.safe_dump_all(objects))
    return str(file)


def test_changes_are_a_row_each_and_exit_code_two(tmp_path: Path, capsys: Capsys) -> None:
    saved = save(tmp_path, nodes=[make_node().gpus(8)])
    done = run(capsys, "plan", "-f", write(tmp_path, PACK), "--from", saved)
    config = PACK.rendered().name
    lines = done.out.splitlines()
    assert lines[0].split() == ["NODE", "MODEL", "OWNER", "CONFIG", "CHANGE", "DEVICES"]
    assert lines[1].split() == f"a A100-SXM4-80GB - → pack - → {config} add gpu 8 → 32".split()
    assert lines[-1] == "1 to add, 0 to change, 0 to release, 0 unchanged, 0 skipped"
    assert (done.code, done.err) == (2, "")


def test_nothing_to_do_is_one_line_and_exit_code_zero(tmp_path: Path, capsys: Capsys) -> None:
    node, record, report = configured(make_node(), PACK, make_report())
    saved = save(tmp_path, nodes=[node], policies=[PACK], records=[record], reports=[report])
    done = run(capsys, "plan", "-f", write(tmp_path, PACK), "--from", saved)
    assert (done.code, done.out) == (0, "0 to add, 0 to change, 0 to release, 1 unchanged, 0 skipped\n")
    done = run(capsys, "plan", "-f", write(tmp_path, PACK), "--from", saved, "--all")
    assert (done.code, done.out.splitlines()[1].split()[-3:]) == (0, ["unchanged", "gpu", "4"])


def test_a_saved_label_without_configmaps_prints_as_manual_with_a_question_mark(tmp_path: Path, capsys: Capsys) -> None:
    saved = save(tmp_path, nodes=[make_node().manual("theirs")])
    done = run(capsys, "plan", "-f", write(tmp_path, PACK), "--from", saved)
    assert "manual?" in done.out.splitlines()[1].split()
    assert "no ConfigMaps" in done.out
    assert done.code == 0


def test_alike_notes_are_said_once_with_the_first_names(tmp_path: Path, capsys: Capsys) -> None:
    saved = save(tmp_path, nodes=[make_node(name).skipped() for name in "abcde"])
    done = run(capsys, "plan", "-f", write(tmp_path, PACK), "--from", saved)
    assert [line for line in done.out.splitlines() if line.startswith("note: a, b, c and 2 more:")]


def test_a_node_that_a_tie_leaves_unchanged_is_a_note_and_no_row(tmp_path: Path, capsys: Capsys) -> None:
    node, record, report = configured(make_node(), PACK, make_report())
    saved = save(tmp_path, nodes=[node], policies=[PACK], records=[record], reports=[report])
    done = run(capsys, "plan", "-f", write(tmp_path, make_policy("other").sharing(2)), "--from", saved)
    assert done.out.splitlines() == [
        "note: a: other ties with pack on priority and changes nothing: the older wins; set spec.priority",
        "0 to add, 0 to change, 0 to release, 1 unchanged, 0 skipped",
    ]


def test_a_dry_run_policy_is_planned_and_said_to_write_nothing(tmp_path: Path, capsys: Capsys) -> None:
    done = run(
        capsys, "plan", "-f", write(tmp_path, PACK.dry_run()), "--from", save(tmp_path, nodes=[make_node().gpus(1)])
    )
    assert "pack is in mode dry-run: planned as if enforced; applying it writes nothing" in done.out
    assert "1 to add" in done.out


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_data_is_the_documented_model_and_nothing_else(tmp_path: Path, capsys: Capsys, form: str) -> None:
    saved = save(tmp_path, nodes=[make_node().gpus(8)])
    done = run(capsys, "plan", "-f", write(tmp_path, PACK), "--from", saved, "-o", form)
    data = json.loads(done.out) if form == "json" else yaml.safe_load(done.out)
    report = PlanReport.model_validate(data)
    assert report.to_wire() == data
    assert [(node.node, node.change) for node in report.nodes] == [("a", "add")]
    assert done.code == 2


def test_names_are_those_of_nodes_that_change(tmp_path: Path, capsys: Capsys) -> None:
    saved = save(tmp_path, nodes=[make_node("a"), make_node("b").label("team", "red")])
    done = run(capsys, "plan", "-f", write(tmp_path, PACK.selecting({"team": "red"})), "--from", saved, "-o", "name")
    assert (done.out, done.code) == ("node/b\n", 2)


def test_wide_has_the_notes_beside_their_nodes(tmp_path: Path, capsys: Capsys) -> None:
    saved = save(tmp_path, nodes=[make_node().skipped()])
    done = run(capsys, "plan", "-f", write(tmp_path, PACK), "--from", saved, "-o", "wide")
    assert done.out.splitlines()[0].split()[-1] == "NOTES"
    assert done.out.count("gpusharing.io/skip") == 1


def test_several_files_and_folders_are_planned_together(tmp_path: Path, capsys: Capsys) -> None:
    folder = tmp_path / "policies"
    folder.mkdir()
    write(folder, PACK.selecting({"team": "red"}))
    (folder / "notes.txt").write_text("not a policy: [")
    other = write(tmp_path, make_policy("other").selecting({"team": "blue"}))
    nodes = [make_node("a").label("team", "red"), make_node("b").label("team", "blue")]
    done = run(capsys, "plan", "-f", str(folder), "-f", other, "--from", save(tmp_path, nodes=nodes))
    assert done.err == ""
    assert [line.split()[0] for line in done.out.splitlines()[1:3]] == ["a", "b"]


def test_other_objects_beside_policies_are_no_concern_of_a_plan(tmp_path: Path, capsys: Capsys) -> None:
    file = Path(write(tmp_path, PACK))
    file.write_text(f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: x}}\n---\n{file.read_text()}")
    done = run(capsys, "plan", "-f", str(file), "--from", save(tmp_path, nodes=[make_node()]))
    assert (done.code, done.err) == (2, "")


def test_a_deletion_is_planned_like_an_edit(tmp_path: Path, capsys: Capsys) -> None:
    node, record, report = configured(make_node(), PACK, make_report())
    saved = save(tmp_path, nodes=[node], policies=[PACK], records=[record], reports=[report])
    done = run(capsys, "plan", "--delete", "pack", "--from", saved)
    assert "1 to release" in done.out
    assert done.code == 2


def test_wrong_policies_are_listed_with_their_lines_and_nothing_is_planned(tmp_path: Path, capsys: Capsys) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "apiVersion: gpusharing.io/v1alpha1\nkind: GpuSharingPolicy\nmetadata: {name: bad}\n"
        "spec:\n  nodeSelector: {}\n  shering: {}\n"
        "  sharing: {strategy: time-slicing, resources: [{name: nvidia.com/gpu, replicas: 1}]}\n"
    )
    done = run(capsys, "plan", "-f", str(file), "--from", save(tmp_path, nodes=[make_node()]))
    assert f"{file}:6: error: [bad] spec.shering: unknown field\n  hint: did you mean sharing?\n" in done.out
    assert f"{file}:7: error: [bad] spec.sharing.resources[0].replicas: 1" in done.out
    assert "to add" not in done.out
    assert done.err == "error: nothing is planned: 2 errors in the files\n"
    assert done.code == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to plan"),
        (["--delete", "pakc"], 'there is no policy "pakc"\nhint: did you mean pack?'),
        (["-f", "{tmp}/none.yaml"], "none.yaml cannot be read: No such file or directory"),
        (["-f", "{tmp}"], "no GpuSharingPolicy in"),
        (["-f", "-", "--from", "-"], "standard input can be read once only"),
        (["--nonsense"], "No such option"),
        (["-o", "xml"], "xml"),
    ],
    ids=["nothing", "unknown-policy", "no-file", "no-policy", "stdin-twice", "unknown-option", "unknown-format"],
)
def test_every_error_is_exit_code_one_for_two_means_changes(
    tmp_path: Path, capsys: Capsys, arguments: list[str], message: str
) -> None:
    saved = save(tmp_path, nodes=[make_node()], policies=[PACK.born(None)], name="saved.json")
    (tmp_path / "saved.json").rename(tmp_path / "saved")
    (tmp_path / "empty.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n")
    given = [each.replace("{tmp}", str(tmp_path)) for each in arguments]
    done = run(capsys, "plan", "--from", saved.removesuffix(".json"), *given)
    assert message in done.err
    assert done.err.startswith("error: ")
    assert (done.code, done.out) == (1, "")
