"""`kubectl gpusharing place` as a user runs it: offline, on files."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.commands import Done, run
from tests.support.controller import ROOT
from tests.support.placements import case, request_of

from gpusharing.cli.placementfile import read_placement
from gpusharing.core.placement.problems import Code

Capsys = pytest.CaptureFixture[str]
SAMPLES = ROOT / "config" / "placements"
GUIDE = (ROOT / "docs" / "guides" / "placement.md").read_text()
MARKER = "# Written by kubectl gpusharing place for team-a/rl-eval\n"


class Place:
    """The command, on files in a folder of the test's own."""

    def __init__(self, capsys: Capsys, folder: Path) -> None:
        self._capsys, self.folder = capsys, folder

    def write(self, name: str, content: Any) -> str:
        """Write a file, data as JSON; its path."""
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def case(self, name: str, *options: str) -> Done:
        """Place the request of a case, on its inventory, as the placement team-a/rl-eval."""
        given = case(name)["input"]
        placement = {
            "apiVersion": "gpusharing.io/v1alpha1",
            "kind": "GpuPlacement",
            "metadata": {"name": "rl-eval", "namespace": "team-a"},
            "spec": given["request"],
        }
        more = ["--compat", given["compat"]] if "compat" in given else []
        if "inventory" in given:
            more += ["--inventory", self.write("inventory.json", given["inventory"])]
        return self("-f", self.write("rl-eval.json", placement), *more, *options)

    def __call__(self, *options: str) -> Done:
        return run(self._capsys, "place", *options)

    def files(self, name: str = "out") -> dict[str, str]:
        """What was written to a folder, by path."""
        root = self.folder / name
        return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def place(capsys: Capsys, tmp_path: Path) -> Place:
    return Place(capsys, tmp_path)


def subset(want: Any, got: Any) -> bool:
    """Whether everything that is expected is there; more keys may have been added."""
    if isinstance(want, dict):
        return isinstance(got, dict) and all(key in got and subset(value, got[key]) for key, value in want.items())
    return bool(want == got)


# --- the answer


def test_a_plan_is_a_picture_of_each_node_and_who_has_which_gpus(place: Place) -> None:
    done = place.case("P01")
    assert done.out == (
        "rl-eval: pool gpu, nodes auto -> 1 (fewest possible), 3 of 4 GPUs used\n"
        "\n"
        "gpu/0  [judge ][policy][policy][......]\n"
        "\n"
        "SLOT    SERVICE   GPUS   NEED       WHY\n"
        "gpu/0   judge     0      1          planned\n"
        "gpu/0   policy    1,2    2 (TP 2)   planned, lead\n"
        "gpu/0   -         3                 free\n"
    )
    assert (done.err, done.code) == ("", 0)


def test_with_an_inventory_the_nodes_are_named(place: Place) -> None:
    lines = place.case("P44").out.splitlines()
    assert lines[5].split() == ["SLOT", "NODE", "SERVICE", "GPUS", "NEED", "WHY"]
    assert lines[6].split() == ["gpu/0", "node-a", "policy", "1,3", "2", "planned,", "lead"]


@pytest.mark.parametrize("name", ["P15", "P23", "P33", "P34", "P50", "P61", "Q01", "Q34", "Q36"])
def test_json_has_the_shape_that_the_scenarios_expect(place: Place, name: str) -> None:
    expected, done = case(name)["expect"], place.case(name, "-o", "json")
    got = json.loads(done.out)
    if "errors" in expected:
        assert _by_code(got.pop("errors")) == _by_code(expected["errors"])
        assert (got, done.code in {2, 3}) == ({}, True)
    else:
        assert subset(expected, got)
        assert (done.code, done.err) == (0, "")


def _by_code(errors: list[dict[str, str]]) -> list[tuple[str, str]]:
    return sorted((error["code"], error["message"]) for error in errors)


def test_yaml_says_what_json_says(place: Place) -> None:
    assert yaml.safe_load(place.case("P15", "-o", "yaml").out) == json.loads(place.case("P15", "-o", "json").out)


@pytest.mark.parametrize("form", ["table", "json", "yaml", "env", "slurm", "kubernetes"])
def test_the_same_file_gives_the_same_bytes(place: Place, form: str) -> None:
    assert place.case("P15", "-o", form, "--explain") == place.case("P15", "-o", form, "--explain")


def test_warnings_change_no_exit_code(place: Place) -> None:
    done = place.case("P48")
    assert done.code == 0
    assert done.err == (
        "warning: SharedNoIsolation: memory and faults are not isolated between services that share a GPU: llm, embed\n"
    )


def test_what_is_not_planned_is_said(place: Place) -> None:
    done = place.case("P61")
    assert (done.out.splitlines()[0], done.code) == ("rl-eval: pool gpu skipped", 0)
    assert done.err.startswith("notice: PoolSkipped: pool 'gpu' has no gpusPerNode")


def test_why_a_pool_takes_as_many_nodes(place: Place) -> None:
    explanation = [
        "pool gpu: 16 GPUs (policy 1, a 5, b 4, c 3, d 3) on nodes of 8 GPUs",
        "  fewer than 2 nodes cannot hold them (lower bound)",
        "  first fit decreasing: 3 nodes opened",
        "  result: 3 nodes, not proven to be the fewest; try --algorithm exact",
    ]
    assert place.case("P40 ffd", "--explain").out.splitlines()[-4:] == explanation
    assert json.loads(place.case("P40 ffd", "--explain", "-o", "json").out)["explain"] == {"gpu": explanation}
    assert "2 nodes, the fewest possible" in place.case("P40 ffd", "--explain", "--algorithm", "exact").out


def test_whose_gpus_do_not_fit_is_explained_too(place: Place) -> None:
    done = place.case("P43", "--explain")
    assert done.code == 3
    assert "first fit decreasing: 2 nodes opened, no room for c" in done.err


# --- what is wrong


def test_an_error_is_a_line_and_ends_with_2_and_nothing_is_written(place: Place) -> None:
    done = place.case("P08", "-o", "slurm", "--out", str(place.folder / "out"))
    assert done.err == (
        "PinOverlap: services 'judge' and 'policy' both pin GPU 1 of pool 'gpu'; change one, or set share: true on the "
        "one that may share\n"
    )
    assert (done.out, done.code, (place.folder / "out").exists()) == ("", 2, False)


def test_three_faults_are_three_lines(place: Place) -> None:
    codes = [line.partition(":")[0] for line in place.case("Q01").err.splitlines()]
    assert sorted(code for code in codes if code in set(Code)) == ["PinRepeats", "UnknownLead", "UnknownShareTarget"]


def test_what_does_not_fit_ends_with_3_and_has_a_hint(place: Place) -> None:
    done = place.case("P46")
    assert done.code == 3
    assert done.err.splitlines()[1] == "hint: 4 replicas in use touch 4 GPUs; the packed policy would hold them on 1"


def test_a_wrong_file_that_does_not_fit_either_ends_with_2(place: Place) -> None:
    request = {**request_of("P09"), "lead": "nobody"}
    done = place("-f", place.write("both.json", request))
    assert (done.code, "UnknownLead" in done.err, "Oversubscribed" in done.err) == (2, True, True)


def test_for_a_program_errors_are_data_on_standard_output(place: Place) -> None:
    done = place.case("P09", "-o", "json")
    assert json.loads(done.out) == case("P09")["expect"]
    assert (done.code, done.err.startswith("Oversubscribed: ")) == (3, True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"pools": [{"name": "gpu"}], "services": [{"name": "a", "gpus": -1}]}, "spec.services[0].gpus: -1"),
        ({"pools": [{"name": "gpu"}], "services": []}, "spec.services: []"),
        ({"pools": [{"name": "gpu"}], "services": [{"name": "a", "kind": "vlm"}]}, 'spec.services[0].kind: "vlm"'),
        ({"pools": [{"name": "gpu"}], "services": [{"name": "a", "gpu": 1}]}, "spec.services[0].gpu: 1, unknown field"),
        ("- a\n", '["a"], expected a mapping'),
        ("a: [\n", "line 1: "),
        ("kind: GpuPlacement\n---\nkind: GpuPlacement\n", "2 documents of kind GpuPlacement, expected exactly one"),
    ],
)
def test_what_is_no_placement_ends_with_2(place: Place, content: Any, says: str) -> None:
    done = place("-f", place.write("x.yaml", content))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"InvalidDocument: {says}")


@pytest.mark.parametrize("option", ["--inventory", "--check"])
@pytest.mark.parametrize("content", ["[1]", '{"nodes": 3}', "a: [", "", '{"kind": "Node", "metadata": {"name": "a"}}'])
def test_other_files_are_looked_at_as_closely(place: Place, option: str, content: str) -> None:
    done = place.case("P01", option, place.write("other", content))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("InvalidDocument: ")


@pytest.mark.parametrize("option", ["-f", "--inventory", "--check"])
def test_a_file_that_cannot_be_read_ends_with_1(place: Place, option: str) -> None:
    missing = str(place.folder / "missing")
    done = place("-f", missing) if option == "-f" else place.case("P01", option, missing)
    assert (done.code, done.err) == (1, f"error: {missing} cannot be read: No such file or directory\n")


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["-o", "xml"],
        ["--out", "x"],
        ["-n", "Team A"],
        ["--inventory", "-", "--check", "-"],
        ["-o", "env", "--visible", "uuid"],
        ["--compat", "other"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_ends_with_2(place: Place, options: list[str]) -> None:
    done = place.case("P01", *options) if options else place()
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")


@pytest.mark.parametrize(("key", "value"), [("name", "a\n#"), ("name", "$(id)"), ("uuid", "GPU-a\nX=1"), ("name", "")])
def test_nothing_of_an_inventory_can_mean_something_in_a_script(place: Place, key: str, value: str) -> None:
    node: Any = {"name": "node-a", "gpus": [{"index": 0, "uuid": "GPU-a"}]}
    (node if key == "name" else node["gpus"][0])[key] = value
    done = place.case("P01", "-o", "slurm", "--inventory", place.write("inventory.json", {"nodes": [node]}))
    assert (done.code, done.out) == (2, "")
    assert f".{key}: {json.dumps(value)}, expected " in done.err


def test_an_inventory_may_lie_about_counts_and_is_believed(place: Place) -> None:
    request = {**request_of("P01"), "pools": [{"name": "gpu", "nodes": "auto", "gpusPerNode": 8}]}
    inventory = place.write("inventory.json", case("P44")["input"]["inventory"])
    done = place("-f", place.write("x.json", request), "--inventory", inventory)
    assert done.code == 0
    assert "warning: GpusPerNodeDiffers: pool 'gpu' says gpusPerNode 8, but node-a has 4" in done.err


# --- whose it is


def test_the_namespace_is_the_options_else_the_files_else_default(place: Place) -> None:
    assert "rl-eval.team-a" in place.case("P01", "-o", "kubernetes").out
    assert "rl-eval.team-b" in place.case("P01", "-o", "kubernetes", "-n", "team-b").out
    assert "x.default" in place("-f", place.write("x.json", request_of("P01")), "-o", "kubernetes").out


@pytest.mark.parametrize(
    ("file", "name"), [("My_File.v2.yaml", "my-file"), ("rl-eval.json", "rl-eval"), ("_", "placement")]
)
def test_a_bare_spec_is_named_after_its_file(place: Place, file: str, name: str) -> None:
    assert read_placement(place.write(file, request_of("P01")), "").name == name


def test_standard_input_is_planned_too_and_a_terminal_gets_colours_in_its_width() -> None:
    reader, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    done = subprocess.run(
        [sys.executable, "-c", "from gpusharing.cli.app import main; main()", "place", "-f", "-"],
        input=json.dumps(request_of("P40 exact")).encode(),
        stdout=terminal,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "operator"), "TERM": "xterm-256color"},
        check=False,
    )
    os.close(terminal)
    printed = os.read(reader, 1 << 16).decode()
    os.close(reader)
    assert done.returncode == 0
    assert "\x1b[7;36m" in printed  # reverse, cyan
    lines = re.sub(r"\x1b\[[0-9;]*m", "", printed).splitlines()
    assert lines[0].startswith("placement: pool gpu, nodes auto -> 2")
    assert max(map(len, lines)) <= 80


# --- files


def test_files_are_printed_or_written_alike(place: Place) -> None:
    out = place.folder / "out"
    printed = place.case("P15", "-o", "slurm").out
    done = place.case("P15", "-o", "slurm", "--out", str(out))
    assert (done.out, done.err, done.code) == ("", f"5 files written to {out}\n", 0)
    assert sorted(place.files()) == ["big.step.sh", "header.sh", "policy.step.sh", "ray.step.sh", "slots.sh"]
    assert printed == "".join(f"# --- {path}\n{place.files()[path]}" for path in _in_order(printed))


def _in_order(printed: str) -> list[str]:
    return [line.removeprefix("# --- ") for line in printed.splitlines() if line.startswith("# --- ")]


def test_a_service_alone_on_its_node_leaves_no_device_line_anywhere(place: Place) -> None:
    for form in ("env", "slurm"):
        place.case("P05", "-o", form, "--out", str(place.folder / form))
        assert "CUDA_VISIBLE_DEVICES" not in "".join(place.files(form).values())


def test_a_step_that_is_no_longer_needed_goes(place: Place) -> None:
    out = str(place.folder / "out")
    place.case("P15", "-o", "slurm", "--out", out)
    place.case("P15", "-o", "env", "--out", out)
    (place.folder / "out" / "mine.sh").write_text("echo mine\n")
    place.case("P05", "-o", "slurm", "--out", out)
    assert sorted(path for path in place.files() if path.endswith(".sh")) == ["header.sh", "mine.sh", "slots.sh"]
    assert "gpu-1/ray.env" in place.files()
    place.case("P05", "-o", "env", "--out", out)
    assert [path for path in place.files() if path.endswith(".env")] == ["gpu-0/policy.env"]
    assert not (place.folder / "out" / "gpu-1").exists()


@pytest.mark.parametrize(
    "foreign",
    ["#!/bin/sh\n", "", MARKER.replace("rl-eval", "other"), f"\n{MARKER}"],
    ids=["a script", "empty", "another placement's", "not the first line"],
)
def test_a_foreign_file_is_never_overwritten_and_then_none_is(place: Place, foreign: str) -> None:
    out = place.folder / "out"
    out.mkdir()
    (out / "slots.sh").write_text(foreign)
    done = place.case("P15", "-o", "slurm", "--out", str(out))
    assert done.err == (
        f"error: {out}/slots.sh was not written by this command for this placement\n"
        "hint: name another folder, or remove it\n"
    )
    assert (done.code, place.files()) == (1, {"slots.sh": foreign})


def test_a_link_is_foreign_wherever_it_leads(place: Place) -> None:
    out = place.folder / "out"
    out.mkdir()
    (place.folder / "elsewhere").write_text(MARKER)
    (out / "slots.sh").symlink_to(place.folder / "elsewhere")
    assert place.case("P15", "-o", "slurm", "--out", str(out)).code == 1
    assert (place.folder / "elsewhere").read_text() == MARKER


def test_a_folder_that_cannot_be_made_leaves_nothing(place: Place) -> None:
    (place.folder / "file").write_text("")
    done = place.case("P15", "-o", "env", "--out", str(place.folder / "file"))
    assert (done.code, done.err.startswith(f"error: {place.folder}/file cannot be written: ")) == (1, True)


def test_files_of_a_run_that_fails_half_way_are_the_old_ones(place: Place) -> None:
    out = place.folder / "out"
    place.case("P15", "-o", "env", "--out", str(out))
    before = place.files()
    # a file where a folder of the new plan has to be
    request = {**request_of("P03"), "services": [*request_of("P03")["services"], {"name": "z", "gpus": 4}]}
    (out / "gpu-2").write_text("in the way\n")
    placement = {
        "apiVersion": "gpusharing.io/v1alpha1",
        "kind": "GpuPlacement",
        "metadata": {"name": "rl-eval", "namespace": "team-a"},
        "spec": request,
    }
    done = place("-f", place.write("new.json", placement), "-o", "env", "--out", str(out))
    assert done.code == 1
    assert place.files() == {**before, "gpu-2": "in the way\n"}


def test_how_gpus_are_named(place: Place) -> None:
    assert "CUDA_VISIBLE_DEVICES=GPU-b2,GPU-b0\n" in place.case("P33", "-o", "env", "--visible", "uuid").out
    named = place.case("P01", "-o", "env", "--visible", "args").out
    assert "GPU_PLACEMENT_ARGS=--device-ids 1,2\n" in named
    assert "CUDA_VISIBLE_DEVICES" not in named


# --- in a cluster


def test_a_cluster_refuses_share_so_no_patch_is_written(place: Place) -> None:
    done = place.case("P10", "-o", "kubernetes")
    assert done.err == "InvalidFields: service 'embed': share: true needs enforcement: env; use shareWith\n"
    assert (done.out, done.code) == ("", 2)
    assert place.case("P10").code == 0


def test_limits_do_not_go_with_env(place: Place) -> None:
    request = {**request_of("P01"), "enforcement": "env"}
    done = place("-f", place.write("x.json", request), "-o", "kubernetes")
    assert (done.code, "enforcement: reserve" in done.err) == (2, True)


def test_steps_share_a_host_so_ports_must_differ_there(place: Place) -> None:
    request = place.write(
        "x.json",
        {**request_of("P01"), "services": [{**each, "kind": "vllm"} for each in request_of("P01")["services"]]},
    )
    assert place("-f", request).code == 0
    done = place("-f", request, "-o", "slurm")
    assert (done.code, done.err) == (
        2,
        "PortConflict: services 'judge' and 'policy' on gpu/0 both listen on port 8000\n",
    )


# --- against an earlier plan


def test_the_same_plan_checks_out(place: Place) -> None:
    for form in ("json", "yaml"):
        plan = place.write("plan", place.case("P01", "-o", form).out)
        assert place.case("P01", "--check", plan) == Done(0, "", "")


def test_swapped_services_are_two_changed_lines_and_end_with_4(place: Place) -> None:
    plan = place.write("plan.json", place.case("P01", "-o", "json").out)
    request = request_of("P01")
    swapped = place.write("x.json", {**request, "services": request["services"][::-1]})
    changes = ["gpu/0 policy: 1,2, now 0,1", "gpu/0 judge: 0, now 2"]
    assert place("-f", swapped, "--check", plan) == Done(4, "".join(f"{line}\n" for line in changes), "")
    done = place("-f", swapped, "--check", plan, "-o", "json")
    assert (json.loads(done.out), done.code) == ({"changes": changes}, 4)


def test_what_came_and_went_is_told(place: Place) -> None:
    plan = place.write("plan.json", place.case("P03", "-o", "json").out)
    assert place.case("P01", "--check", plan).out.splitlines() == [
        "pool gpu nodes: 2, now 1",
        "gpu/1 reward: 0,1,2, now -",
        "gpu/1 reward exported: no, now -",
    ]


def test_a_plan_that_no_longer_fits_is_told_by_what_is_in_the_way(place: Place) -> None:
    plan = place.write("plan.json", place.case("P01", "-o", "json").out)
    busy = [{"index": index, "shares": 4, "inUse": 1} for index in range(4)]
    inventory = place.write("inventory.json", {"nodes": [{"name": "node-a", "gpus": busy}]})
    done = place.case("P01", "--check", plan, "--inventory", inventory)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("Unplaceable: pool 'gpu' has 0 free of 4 usable GPU(s) on 1 node(s)")


def test_a_plan_with_errors_is_no_plan(place: Place) -> None:
    plan = place.write("plan.json", place.case("P08", "-o", "json").out)
    done = place.case("P01", "--check", plan)
    assert (done.code, f"hint: {plan} is no plan: make one with -o json" in done.err) == (2, True)


# --- other formats


GYM = {
    "compute": {"cluster": {"type": "slurm", "node_pools": {"gpu": {"nodes": "auto", "gpus_per_node": 4}}}},
    "services": {
        "judge": {"type": "vllm", "tensor_parallel_size": 1, "port": 8001},
        "policy": {"type": "vllm", "tensor_parallel_size": 2},
    },
    "driver": {"policy_model": "policy"},
}


def test_a_submit_file_of_gym_is_planned_like_our_own(place: Place) -> None:
    ours = json.loads(place.case("P01", "-o", "json").out)
    gyms = json.loads(
        place("-f", place.write("submit.yaml", GYM), "--from", "gym", "--compat", "gym", "-o", "json").out
    )
    assert {key: gyms[key] for key in ("pools", "slots", "leadSlot", "planHash")} == {
        key: ours[key] for key in ("pools", "slots", "leadSlot", "planHash")
    }


def test_what_is_wrong_in_a_submit_file_is_said_in_its_words(place: Place) -> None:
    wrong = {**GYM, "services": {"policy": {"type": "vllm", "tensor_parallel_size": "${oc.env:TP}"}}}
    done = place("-f", place.write("submit.yaml", wrong), "--from", "gym")
    assert done.code == 2
    assert done.err.startswith('InvalidDocument: services.policy.tensor_parallel_size: "${oc.env:TP}"')
    assert done.err.splitlines()[1].startswith("hint: write the value itself")


def test_what_of_a_submit_file_is_left_out_is_said(place: Place) -> None:
    pools = {"gpu": {"nodes": 1, "gpus_per_node": 4}, "aux": {"nodes": 1, "gpus_per_node": 4}}
    services = {**GYM["services"], "judge": {"type": "vllm", "node_pool": "aux"}}
    file = place.write("submit.yaml", {"compute": {"c": {"node_pools": pools}}, "services": services})
    said = "service 'policy' names no node_pool of a job with several pools"
    assert f"notice: {said}" in place("-f", file, "--from", "gym").err
    (notice,) = json.loads(place("-f", file, "--from", "gym", "-o", "json").out)["notices"]
    assert (notice["code"], notice["message"].startswith(said)) == ("ServiceSkipped", True)


def test_saved_gpunodes_are_an_inventory(place: Place) -> None:
    conditions = [
        {"type": "GpuSharingReady", "status": "True", "reason": "Serving", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]
    gpus = [{"index": index, "uuid": f"GPU-{index}", "model": "H200"} for index in range(4)]
    items = [{"kind": "GpuNode", "metadata": {"name": "node-a"}, "status": {"gpus": gpus, "conditions": conditions}}]
    saved = place.write("saved.json", {"kind": "List", "items": items})
    request = place.write("x.json", {**request_of("P01"), "pools": [{"name": "gpu", "nodes": "auto"}]})
    slot = json.loads(place("-f", request, "--inventory", saved, "-o", "json").out)["slots"]["gpu/0"]
    assert (slot["node"], slot["assigned"]["policy"]["uuids"]) == ("node-a", ["GPU-1", "GPU-2"])


# --- samples, and what the guide shows of them


def shown() -> list[tuple[str, str]]:
    """Every command of the guide that is shown with its output."""
    found = re.findall(r"^```console\n\$ kubectl gpusharing place (.+)\n((?:.*\n)*?)```$", GUIDE, re.MULTILINE)
    assert len(found) > 4
    return found


@pytest.mark.parametrize(("command", "output"), shown(), ids=[command for command, _ in shown()])
def test_the_guide_shows_real_output(place: Place, command: str, output: str) -> None:
    too_much = place.write("too-much.yaml", request_of("P09"))
    words = [word.replace("config/placements", str(SAMPLES)) for word in command.split()]
    words = [{"too-much.yaml": too_much, "envs": str(place.folder / "envs")}.get(word, word) for word in words]
    done = place(*words)
    assert (done.out + done.err).replace(f"{place.folder}/", "") == output


def test_the_guide_shows_real_files(place: Place) -> None:
    for form in ("env", "kubernetes"):
        place("-f", str(SAMPLES / "rl-eval.yaml"), "-o", form, "--out", str(place.folder / form))
    assert f"```text\n{place.files('env')['gpu-0/policy.env']}```" in GUIDE
    assert f"```yaml\n{place.files('kubernetes')['policy.patch.yaml']}```" in GUIDE


def test_the_guides_first_example_is_the_sample() -> None:
    (first, *_) = re.findall(r"^```yaml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert yaml.safe_load(first) == yaml.safe_load((SAMPLES / "rl-eval.yaml").read_text())


def test_an_evaluation_with_a_judge_ray_and_a_router_takes_one_node(place: Place) -> None:
    done = place("-f", str(SAMPLES / "rl-eval.yaml"), "-o", "json")
    plan = json.loads(done.out)
    assert plan["pools"]["gpu"] == {"nodesResolved": 1, "lowerBoundNodes": 1, "provenMinimal": True}
    assert {name: each["indexes"] for name, each in plan["slots"]["gpu/0"]["assigned"].items()} == {
        "judge": [0],
        "policy": [1, 2],
        "embed": [0],
        "ray": [3],
    }


def test_two_ranks_leave_a_fifth_of_each_gpu(place: Place) -> None:
    plan = json.loads(place("-f", str(SAMPLES / "two-ranks.yaml"), "-o", "json").out)
    assert plan["slots"]["gpu/0"]["assigned"] == {
        "llm": {"indexes": [0, 1], "shares": 8},
        "embed": {"indexes": [0], "shares": 2},
    }


def test_tiers_have_nodes_of_their_own_and_a_reserved_gpu_is_left_alone(place: Place) -> None:
    plan = json.loads(place("-f", str(SAMPLES / "prefill-decode.yaml"), "-o", "json").out)
    assert {name: list(slot["assigned"]) for name, slot in plan["slots"].items()} == {
        "serving/0": ["decode"],
        "serving/1": ["decode"],
        "serving/2": ["prefill"],
        "aux/0": ["judge"],
    }
    assert plan["slots"]["aux/0"]["assigned"]["judge"]["indexes"] == [1, 2]


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir()))
@pytest.mark.parametrize("form", ["table", "env", "slurm", "kubernetes"])
def test_a_sample_can_be_had_in_every_form(place: Place, sample: str, form: str) -> None:
    done = place("-f", str(SAMPLES / sample), "-o", form)
    assert (done.code, bool(done.out)) == (0, True)
