"""What people see: real terminals of several widths, colour, and none of it in a pipe."""

import json
import shlex
from pathlib import Path

import pytest
from tests.support.builders import ReportBuilder, make_node, make_policy, make_report
from tests.support.cluster.binaries import bring_kubectl
from tests.support.kubectlplugin import kubectl, on_a_terminal
from tests.support.scattered import save_reports, scattered
from tests.support.worlds import configured, save

PACK = make_policy("pack-inference").allocating("packed").sharing(4)
ESCAPE = "\x1b["


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """Twelve nodes with names as clouds give them; one short of devices, one of them skipped."""
    bring_kubectl()
    nodes, records, reports = [], [], list[ReportBuilder]()
    for number in range(12):
        name = f"gpu-a100-{number:02}"
        node, record, report = configured(make_node(name).gpus(8), PACK, make_report(name).gpus(8))
        nodes.append(node.skipped() if number == 5 else node)
        records.append(record)
        reports.append(report.row("nvidia.com/gpu", advertised=24) if number == 7 else report)
    return save(tmp_path, nodes=nodes, policies=[PACK], records=records, reports=reports)


COMMANDS = {
    "plan": ["plan", "--delete", "pack-inference"],
    "status": ["status", "--nodes"],
    "explain": ["explain", "node/gpu-a100-07"],
}


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_tables_fit_the_terminal(saved: str, command: list[str], columns: int) -> None:
    shown = on_a_terminal([*command, "--from", saved], columns=columns, NO_COLOR="1")
    tables = [line for line in shown.splitlines() if not line.startswith(("note:", "pack-inference:"))]
    assert max(map(len, tables)) <= columns, shown


def test_what_does_not_fit_stands_below_its_row(saved: str) -> None:
    wide, narrow = (
        on_a_terminal(["plan", "--delete", "pack-inference", "--from", saved], columns=columns, NO_COLOR="1")
        for columns in (200, 60)
    )
    assert "OWNER" in wide.splitlines()[0]
    assert "OWNER" not in narrow.splitlines()[0]
    assert narrow.splitlines()[2:4] == ["   owner: pack-inference → -", f"   config: {PACK.rendered().name} → -"]


def test_colour_is_for_terminals_that_want_it(saved: str) -> None:
    command = ["status", "--from", saved]
    coloured, plain, dumb = (
        on_a_terminal(command, columns=120, **more) for more in ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"})
    )
    piped = kubectl("gpusharing", *command).stdout
    assert ESCAPE in coloured
    assert ESCAPE not in plain + dumb + piped
    assert plain == piped


@pytest.mark.parametrize("columns", [80, 120])
def test_reasons_of_a_preference_stand_below_its_line_on_a_terminal(tmp_path: Path, columns: int) -> None:
    uuids = [f"GPU-{at:08}-aaaa-bbbb-cccc-dddddddddddd" for at in range(2)]
    free = {uuids[0]: 6, uuids[1]: 9}
    case = {"policy": "packed", "replicas": dict.fromkeys(uuids, 10), "available": free, "required": {uuids[1]: 1}}
    file = tmp_path / "requests.json"
    file.write_text(json.dumps({"cases": [{**case, "unhealthy": {uuids[1]: 1}, "size": 2}]}))
    command = ["prefer", str(file), "--explain", "--check"]
    shown = on_a_terminal(command, columns=columns, NO_COLOR="1").splitlines()
    assert max(map(len, shown[1:])) <= columns
    assert json.loads(shown[0]) == {"case": 0, "counts": {uuids[0]: 1, uuids[1]: 1}}
    assert shown[1:3] == ["  packed: the fullest GPU first", f"  GPU 0 ({uuids[0]}): 6 of 10 free, load 4"]
    assert shown[-1] == "1 cases, 0 different"
    (piped,) = kubectl("gpusharing", *command).stdout.splitlines()
    assert " ".join(json.loads(piped)["explain"]).split() == " ".join(shown[1:-1]).split()


@pytest.mark.parametrize("columns", [80, 120])
def test_the_command_of_a_restart_set_fits_the_terminal_and_stays_one_command(tmp_path: Path, columns: int) -> None:
    bring_kubectl()
    pods = [f"team-{space}/inference-7c9f7d6d5b-x8k{at}" for space in "ab" for at in range(5)]
    report = scattered("gpu-h100-pool-0a1b2c3d", [31, 17] * 8, *pods, shares=32, possible=4)
    command = ["fragmentation", "node/gpu-h100-pool-0a1b2c3d", "--from", save_reports(tmp_path, report)]
    shown = on_a_terminal(command, columns=columns, NO_COLOR="1")
    assert max(map(len, shown.partition("hint:")[0].splitlines())) <= columns, shown
    told = shown[shown.index("  kubectl delete") :].partition("\n\n")[0]
    [piped] = [line for line in kubectl("gpusharing", *command).stdout.splitlines() if line.startswith("  kubectl")]
    assert shlex.split(told.replace("\\\n", "")) == shlex.split(piped)


def test_a_pipe_is_never_cut(saved: str) -> None:
    rows = kubectl(
        "gpusharing", "plan", "--delete", "pack-inference", "--from", saved, "-o", "wide"
    ).stdout.splitlines()
    assert rows[0].split() == ["NODE", "MODEL", "OWNER", "CONFIG", "CHANGE", "DEVICES", "NOTES"]
    assert all("→" in row for row in rows[1:5])
