"""`kubectl gpusharing simulate` as a user runs it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
import yaml
from tests.support.commands import Done, run
from tests.support.controller import ROOT
from tests.unit.cli.test_progress import Terminal
from tests.unit.cli.test_reference import section

from gpusharing.api.meta import Model
from gpusharing.api.scenario import Arrivals, Event, ScenarioFile, ScenarioNode, ScenarioPolicy
from gpusharing.cli.progress import CLEAR_LINE, Progress

Capsys = pytest.CaptureFixture[str]
GPUS = [{"index": at, "model": "NVIDIA L40S"} for at in range(2)]
SHARED = {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}
SCENARIO: dict[str, Any] = {
    "duration": 10,
    "nodes": [{"inventory": {"gpus": GPUS}, "config": SHARED}],
    "policies": [{"policy": "packed"}, {"policy": "packed", "keepTogether": "preferred"}, {"policy": "nvidia-packed"}],
    "events": [{"at": 0, "pod": "a", "count": 3}, {"at": 0, "pod": "b", "count": 2}, {"at": 5, "leave": "a"}],
}


def save(folder: Path, text: str) -> str:
    file = folder / "small.yaml"
    file.write_text(text)
    return str(file)


def simulate(capsys: Capsys, folder: Path, *arguments: str, **fields: Any) -> Done:
    changed = {key: value for key, value in {**SCENARIO, **fields}.items() if value is not None}
    return run(capsys, "simulate", save(folder, yaml.safe_dump(changed, sort_keys=False)), *arguments)


def test_a_row_and_a_bar_for_each_policy(capsys: Capsys, tmp_path: Path) -> None:
    done = simulate(capsys, tmp_path)
    assert done.out.splitlines()[:11] == [
        "small: 2 GPUs, 8 × nvidia.com/gpu",
        "1 seed, 2 pods each",
        "",
        "POLICY                            FREE   IDEAL   OF IDEAL   SPLIT   STRANDED   LARGEST",
        "packed                            0.00    0.50        0 %    50 %        4.5       3.0",
        f"  {'░' * 21}{'·' * 63}",
        "packed, keepTogether: preferred   0.50    0.50      100 %     0 %        2.5       3.0",
        f"  {'█' * 21}{'·' * 63}",
        "nvidia-packed                     0.00    0.50        0 %    50 %        4.5       3.0",
        f"  {'░' * 21}{'·' * 63}",
        "",
    ]
    assert (done.err, done.code) == ("", 0)


def test_wide_tells_how_far_the_seeds_are_apart(capsys: Capsys, tmp_path: Path) -> None:
    arrivals = {"process": "poisson", "mean": "50%", "lifetime": 1, "sizes": {1: 1}}
    done = simulate(capsys, tmp_path, "-o", "wide", events=None, arrivals=arrivals, seed=[1, 2])
    row = next(line for line in done.out.splitlines() if line.startswith("packed "))
    assert row.count("–") == 5
    assert "Each figure is the median of 2 seeds" in done.out


def test_pods_that_waited_are_told_for_each_policy_if_they_differ(capsys: Capsys, tmp_path: Path) -> None:
    waiting = [{"at": 0, "pod": "a", "count": 8}, {"at": 1, "pod": "b", "count": 1}]
    assert "\n1 of 2 pods waited\n" in simulate(capsys, tmp_path, events=waiting).out
    refused = [{"at": at, "pod": f"p{at}", "count": 3 if at < 2 else 2} for at in range(3)]
    policies = [{"policy": "packed"}, {"policy": "packed", "keepTogether": "required"}]
    out = simulate(capsys, tmp_path, events=refused, policies=policies).out
    assert "\npacked, keepTogether: required: 1 of 3 pods waited, 1 of them refused by the plugin\n" in out
    assert "packed: " not in out
    assert "waited" not in simulate(capsys, tmp_path).out


def test_json_yaml_and_table_have_the_same_figures(capsys: Capsys, tmp_path: Path) -> None:
    report = json.loads(simulate(capsys, tmp_path, "-o", "json").out)
    assert yaml.safe_load(simulate(capsys, tmp_path, "-o", "yaml").out) == report
    assert (report["scenario"], report["gpus"], report["resources"]) == ("small", 2, {"nvidia.com/gpu": 8})
    together = report["policies"][1]
    assert together["freeGpus"] == {"median": 0.5, "lowest": 0.5, "highest": 0.5}
    assert (together["couldStayTogether"], together["splitNeedlessly"], together["reference"]) == (2, 0, False)


def test_every_field_of_the_json_is_told(capsys: Capsys, tmp_path: Path) -> None:
    report = json.loads(simulate(capsys, tmp_path, "-o", "json").out)
    told = set(re.findall(r"[A-Za-z]+", " ".join(re.findall(r"`([^`]+)`", section("simulate")))))
    assert _keys(report) - told == set()


def _keys(value: Any) -> set[str]:
    """The names of fields; those of `resources` on top are names of resources."""
    if isinstance(value, list):
        return set().union(*map(_keys, value))
    if not isinstance(value, dict):
        return set()
    return {key for key in value if "/" not in key}.union(*map(_keys, value.values()))


def test_another_process_with_other_hashes_gives_the_same_figures(capsys: Capsys, tmp_path: Path) -> None:
    arrivals = {
        "process": "swing",
        "mean": "60%",
        "amplitude": "30%",
        "period": 4,
        "lifetime": 1,
        "sizes": {1: 3, 3: 1},
    }
    policies = [*SCENARIO["policies"], {"policy": "packed", "keepTogether": "required"}, {"policy": "spread"}]
    here = simulate(capsys, tmp_path, "-o", "json", events=None, arrivals=arrivals, policies=policies).out
    there = subprocess.run(
        [sys.executable, "-c", "from gpusharing.cli.app import main; main()", "simulate", "small.yaml", "-o", "json"],
        env={**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": str(ROOT / "operator")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert there.stdout == here


# --- the picture


def test_the_picture_is_written_as_a_whole(capsys: Capsys, tmp_path: Path) -> None:
    file = tmp_path / "comparison.svg"
    file.write_text("older")
    assert simulate(capsys, tmp_path, "--svg", str(file)).code == 0
    assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["comparison.svg", "small.yaml"]


def test_a_picture_that_cannot_be_written_is_said_in_a_sentence(capsys: Capsys, tmp_path: Path) -> None:
    done = simulate(capsys, tmp_path, "--svg", str(tmp_path / "missing" / "comparison.svg"))
    assert done.err.startswith(f"error: {tmp_path}/missing/comparison.svg cannot be written: ")
    assert (done.code, done.err.count("\n")) == (1, 1)
    folder = simulate(capsys, tmp_path, "--svg", str(tmp_path))
    assert (folder.code, [path.name for path in tmp_path.iterdir()]) == (1, ["small.yaml"])


# --- a terminal


def test_a_bar_shows_how_far_it_is_with_each_percent() -> None:
    stream, moments = Terminal(), iter(range(99))
    with Progress(stream, clock=lambda: next(moments)) as progress:
        for part in (0.0, 0.501, 0.509, 1.0):
            progress.bar("simulating", part)
    assert stream.getvalue().split(CLEAR_LINE)[1:-1] == [
        f"simulating [{'-' * 25}] 0 %",
        f"simulating [{'#' * 12}{'-' * 13}] 50 %",
        f"simulating [{'#' * 25}] 100 %",
    ]


# --- scenarios that are wrong

TEXT = """\
seed: [0, 1]
duration: 100
nodes:
- inventory:
    gpus:
    - {index: 0, model: NVIDIA A100-SXM4-80GB, memoryMiB: 81920}
    - {index: 1, model: NVIDIA A100-SXM4-80GB, memoryMiB: 81920}
  config:
    sharing:
      timeSlicing:
        resources:
        - {name: nvidia.com/gpu, replicas: 4}
policies:
- {policy: packed}
- policy: distributed
arrivals:
  process: swing
  mean: 50%
  amplitude: 20%
  period: 40
  lifetime: 5
  sizes: {1: 60, 2: 25}
"""
EVENTS = TEXT.partition("arrivals:")[0] + "events:\n"
WRONG: dict[str, tuple[str, int, str, str]] = {
    "an unknown key": (
        TEXT.replace("seed:", "seeds:"),
        1,
        "seeds: unknown field",
        "did you mean seed?",
    ),
    "a policy that is none": (
        TEXT.replace("policy: distributed", "policy: binpack"),
        15,
        'policy: "binpack" is not',
        "",
    ),
    "a policy twice": (
        TEXT.replace("policy: distributed", "policy: packed"),
        15,
        'policies[1]: "packed" stands twice',
        "name each once",
    ),
    "spread that keeps together": (
        TEXT.replace("policy: distributed", "policy: spread\n  keepTogether: required"),
        16,
        "policies[1].keepTogether: keepTogether contradicts policy: spread",
        "",
    ),
    "topology without keepTogether": (
        TEXT.replace("policy: distributed", "policy: packed\n  topology: preferred"),
        16,
        "policies[1].topology: topology: preferred needs keepTogether",
        "",
    ),
    "a reference with what it lacks": (
        TEXT.replace("policy: distributed", "policy: nvidia-packed\n  keepTogether: preferred"),
        15,
        "policies[1].policy: NVIDIA's plugin has neither keepTogether nor topology",
        "leave them out, or name packed",
    ),
    "no percentage": (TEXT.replace("50%", "50"), 18, "arrivals.mean: 50: must be a percentage such as 50%", ""),
    "a percentage above 100": (TEXT.replace("50%", "150%"), 18, "arrivals.mean: ", ""),
    "nothing is asked for": (TEXT.replace("50%", "0%"), 18, "arrivals.mean: ", ""),
    "a swing without its period": (
        TEXT.replace("  period: 40\n", ""),
        16,
        "arrivals.period: missing",
        "process: swing needs period",
    ),
    "a swing of a poisson process": (
        TEXT.replace("process: swing", "process: poisson").replace("  period: 40\n", ""),
        19,
        "arrivals.amplitude: has no effect",
        "process: poisson does not swing: leave it out",
    ),
    "a pod that fits on no node": (
        TEXT.replace("2: 25", "9: 25"),
        22,
        "arrivals.sizes: 9 fits on no node",
        "the largest has 8 nvidia.com/gpu",
    ),
    "a pod that would be refused always": (
        TEXT.replace("2: 25", "5: 25").replace("{policy: packed}", "{policy: packed, keepTogether: required}"),
        22,
        'arrivals.sizes: 5 fits on no GPU, so that "packed, keepTogether: required" refuses it always',
        "the largest has 4 nvidia.com/gpu; leave the policy out, or ask for less",
    ),
    "several shares where the config allows one": (
        TEXT.replace("timeSlicing:", "timeSlicing:\n        failRequestsGreaterThanOne: true"),
        23,
        "arrivals.sizes: 2: nvidia.com/gpu: 2 shares requested, and failRequestsGreaterThanOne allows 1",
        "request nvidia.com/gpu: 1;",
    ),
    "too many pods": (
        TEXT.replace("duration: 100", "duration: 900000"),
        2,
        "duration: about 556,364 pods would come, more than 100,000",
        "shorten duration, or let pods run longer",
    ),
    "a resource that no node has": (
        TEXT.replace("process: swing", "process: swing\n  resource: nvidia.com/gpus"),
        18,
        'arrivals.resource: no node has "nvidia.com/gpus"',
        "did you mean nvidia.com/gpu?",
    ),
    "a config that the plugin refuses": (
        TEXT.replace("replicas: 4", "replicas: 1"),
        12,
        "nodes[0].config.sharing.timeSlicing.resources[0].replicas: 1, must be at least 2",
        "to not share it leave it out",
    ),
    "a config with an unknown key": (
        TEXT.replace("timeSlicing:", "timeSlicng:"),
        10,
        "nodes[0].config.sharing.timeSlicng: unknown field",
        "did you mean timeSlicing?",
    ),
    "a config that shares what is not there": (
        TEXT.replace("nvidia.com/gpu,", "nvidia.com/mig-1g.10gb,"),
        8,
        "nodes[0].config: sharing names nvidia.com/mig-1g.10gb, of which the node has none",
        "it has nvidia.com/gpu",
    ),
    "a config that chooses": (
        TEXT.replace("  config:\n", "  config:\n    gpusharing: {allocation: {policy: packed}}\n"),
        9,
        "nodes[0].config.gpusharing: how devices are chosen",
        "say it under policies",
    ),
    "a config that chooses as NVIDIA's does": (
        TEXT.replace("  config:\n", "  config:\n    flags: {plugin: {sharedDevicesAllocationPolicy: packed}}\n"),
        9,
        "nodes[0].config.flags.plugin.sharedDevicesAllocationPolicy: how devices are chosen",
        "say it under policies",
    ),
    "an inventory with an unknown key": (
        TEXT.replace("index: 1,", "index: 1, numanode: 0,"),
        7,
        "nodes[0].inventory.gpus[1].numanode: unknown field",
        "did you mean numaNode?",
    ),
    "an inventory that contradicts itself": (
        TEXT.replace("index: 1", "index: 2"),
        5,
        "nodes[0].inventory.gpus: indices [0, 2]",
        "NVML counts GPUs from 0 without gaps",
    ),
    "an inventory with faults": (
        TEXT.replace("    gpus:\n", "    faults: [{gpu: 0, lost: true}]\n    gpus:\n"),
        5,
        "nodes[0].inventory.faults: have no effect",
        "a simulation has no faults: leave them out",
    ),
    "no inventory": (
        "duration: 1\nnodes: [{inventory: 7}]\npolicies: [{policy: packed}]\nevents: []\n",
        2,
        "nodes[0].inventory: 7 is no inventory",
        "a mapping with gpus, or the name of a file with one",
    ),
    "an inventory that is not there": (
        "duration: 1\nnodes: [{inventory: none.yaml}]\npolicies: [{policy: packed}]\nevents: []\n",
        2,
        "nodes[0].inventory: none.yaml: ",
        "",
    ),
    "both arrivals and events": (TEXT + "events: []\n", 1, "both arrivals and events", "arrivals: pods that come by"),
    "neither": (TEXT.partition("arrivals:")[0], 1, "neither arrivals nor events", "arrivals: pods that come by"),
    "events out of order": (
        EVENTS + "- {at: 5, pod: a, count: 1}\n- {at: 4, pod: b, count: 1}\n",
        18,
        "events[1].at: 4, but 5 stands before it",
        "events stand in order of time",
    ),
    "an event after the end": (
        EVENTS + "- {at: 101, pod: a, count: 1}\n",
        17,
        "events[0].at: 101 is after the end",
        "",
    ),
    "an event that is neither": (EVENTS + "- {at: 1, count: 1}\n", 17, "events[0]: neither a pod that comes nor", ""),
    "a pod without a count": (EVENTS + "- {at: 1, pod: a}\n", 17, "events[0].count: missing", ""),
    "a pod twice": (
        EVENTS + "- {at: 1, pod: a, count: 1}\n- {at: 2, pod: a, count: 1}\n",
        18,
        'events[1].pod: "a" came before',
        "give each pod its own name",
    ),
    "a pod that never came": (
        EVENTS + "- {at: 1, pod: web-0, count: 1}\n- {at: 2, leave: web-1}\n",
        18,
        'events[1].leave: no pod "web-1" came before',
        "did you mean web-0?",
    ),
    "a pod that left": (
        EVENTS + "- {at: 1, pod: a, count: 1}\n- {at: 2, leave: a}\n- {at: 3, leave: a}\n",
        19,
        'events[2].leave: "a" has left before',
        "a pod leaves once",
    ),
    "a pod that leaves a part": (
        EVENTS + "- {at: 1, pod: a, count: 2}\n- {at: 2, leave: a, count: 1}\n",
        18,
        "events[1].count: has no effect",
        "a pod leaves with all that it has",
    ),
    "a key twice": (TEXT + "duration: 7\n", 23, "duration: the key stands twice", ""),
    "two documents": (TEXT + "---\na: 1\n", 23, "a second document", "a scenario is one YAML document"),
    "no YAML": ("seed: [0\n", 1, "not valid YAML", ""),
    "nothing": ("", 1, "null is not a mapping", ""),
}


@pytest.mark.parametrize(("text", "line", "message", "hint"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_with_its_line(
    capsys: Capsys, tmp_path: Path, text: str, line: int, message: str, hint: str
) -> None:
    done = run(capsys, "simulate", save(tmp_path, text))
    first, *others = done.out.splitlines()
    assert first.startswith(f"{tmp_path}/small.yaml:{line}: error: ")
    assert message in first
    assert not hint or others[0].startswith(f"  hint: {hint}")
    assert done.err.startswith("error: nothing is simulated: 1 error in the scenario\nhint: docs/guides/simulation.md")
    assert done.code == 1


def test_all_that_is_wrong_is_told_at_once(capsys: Capsys, tmp_path: Path) -> None:
    text = TEXT.replace("lifetime:", "lifetme:").replace("replicas: 4", "replicas: 1")
    done = run(capsys, "simulate", save(tmp_path, text.replace("index: 1, model:", "index: 1, modl:")))
    lines = [int(line.split(":")[1]) for line in done.out.splitlines() if ": error: " in line]
    assert lines == sorted(lines)
    assert set(lines) == {7, 12, 16, 21}
    assert "5 errors" in done.err


def test_an_inventory_may_be_a_file_beside_the_scenario(capsys: Capsys, tmp_path: Path) -> None:
    (tmp_path / "node.yaml").write_text(yaml.safe_dump({"gpus": GPUS}))
    nodes = [{"inventory": "node.yaml", "config": SHARED}]
    assert "small: 2 GPUs, 8 × nvidia.com/gpu\n" in simulate(capsys, tmp_path, nodes=nodes).out


def test_no_file_is_a_usage_error(capsys: Capsys) -> None:
    assert run(capsys, "simulate").code == 2


# --- the guide

GUIDE = (ROOT / "docs" / "guides" / "simulation.md").read_text()


def test_the_scenario_of_the_guide_can_be_played_with_arrivals_and_with_events(capsys: Capsys, tmp_path: Path) -> None:
    scenario, events = re.findall(r"^```yaml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert run(capsys, "simulate", save(tmp_path, scenario)).code == 0
    assert run(capsys, "simulate", save(tmp_path, scenario.partition("arrivals:")[0] + events)).code == 0


def test_the_guide_tells_of_every_key_and_word_of_a_scenario() -> None:
    words = {word for model in (ScenarioFile, ScenarioNode, ScenarioPolicy, Arrivals, Event) for word in _words(model)}
    assert {word for word in words if not re.search(rf"\b{re.escape(word)}\b", GUIDE)} == set()


def _words(model: type[Model]) -> set[str]:
    fields = {field.alias or name for name, field in model.model_fields.items()}
    choices = {word for field in model.model_fields.values() for word in get_args(field.annotation)}
    return fields | {word for word in choices if isinstance(word, str)}
