from typing import Any

import pytest
from pydantic import ValidationError
from tests.support.builders import NOW, make_policy, make_report

from gpusharing.api.node import ConfigChange, GpuNodeObject, GpuNodeStatus, RestartSet
from gpusharing.api.problems import parse


def test_a_report_is_read_back_as_it_was_written() -> None:
    report = make_report().gpus(2).mig(1, "1g.10gb").serving(make_policy().mig("mixed").sharing(4).rendered())
    read, problems = parse(GpuNodeObject, report.object())
    assert problems == []
    assert read is not None
    assert read.status == report.build()


def test_fields_are_spelled_as_the_design_spells_them() -> None:
    wire = make_report().serving(make_policy().rendered()).row("nvidia.com/gpu", in_use=1).object()["status"]
    assert {"gpus", "config", "resources", "migStrategy", "gpuCount"} <= set(wire)
    assert {"index", "uuid", "model", "memoryMiB", "healthy", "migMode", "migDevices"} <= set(wire["gpus"][0])
    assert {"desired", "served", "lastGood", "error"} == set(wire["config"])
    (row,) = wire["resources"]
    assert {"name", "devices", "healthy", "withheld", "retiring", "inUse", "advertised", "predicted"} == set(row)


def test_fragmentation_is_spelled_as_the_design_spells_it() -> None:
    wire = {
        "freeWholeGpus": 3,
        "possibleWholeGpus": 5,
        "resources": [{"name": "nvidia.com/gpu", "freeShares": 21, "largestRequest": 4}],
        "restart": {"gpu": "GPU-a", "pods": ["team-a/web-0"], "more": 0},
    }
    read = GpuNodeStatus.model_validate({"fragmentation": wire}).fragmentation
    assert read
    assert read.to_wire() == wire


@pytest.mark.parametrize("name", ["web-0", "team-a/--all", "team-a/$(reboot)", "team-a/a b", "team-a/web\n"])
def test_what_is_no_name_of_a_pod_is_none_to_delete(name: str) -> None:
    with pytest.raises(ValidationError):
        RestartSet(gpu="GPU-a", pods=[name])


def test_a_change_of_config_says_from_what_to_what() -> None:
    change = ConfigChange.model_validate({"time": NOW, "from": "a", "to": "b", "policy": "p", "result": "Applied"})
    assert change.to_wire() == {
        "time": "2026-11-30T12:00:00Z",
        "from": "a",
        "to": "b",
        "policy": "p",
        "result": "Applied",
    }


def test_unreadable_devices_are_absent_and_not_zero() -> None:
    wire = make_report().row("nvidia.com/gpu", advertised=None).object()["status"]
    assert "advertised" not in wire["resources"][0]
    assert GpuNodeStatus.model_validate(wire).resources[0].advertised is None


def test_a_report_of_a_newer_plugin_is_read_without_its_new_fields() -> None:
    wire: dict[str, Any] = make_report().object()
    wire["status"]["gpus"][0]["temperature"] = 40
    assert parse(GpuNodeObject, wire)[1] == []
