"""A controller keeps of a report what it decides by, and shares it between nodes."""

import pytest
from tests.support.builders import make_policy, make_report

from gpusharing.api.node import GpuNodeStatus
from gpusharing.core.advertise import implied, predicted
from gpusharing.core.progress import Progress, by_report
from gpusharing.core.reports import read_report, shared_gpus


def test_reports_of_two_nodes_that_serve_the_same_are_one_object():
    config = make_policy().sharing(4).rendered()
    a, b = (read_report(make_report(name).gpus(8).serving(config).object()) for name in ("a", "b"))
    assert a is b
    assert a is not read_report(make_report("a").gpus(8).sick(3).serving(config).object())


@pytest.mark.parametrize(
    "change",
    [
        {"occupancy": [{"gpu": "GPU-a-0", "shares": 4, "inUse": 3}]},
        {"inUse": 3},
        {"driverVersion": "580.95.05"},
        {"history": [{"time": "2026-11-30T12:00:00Z", "to": "x", "result": "Applied"}]},
        {"gpus": [{**make_report().object()["status"]["gpus"][0], "uuid": "GPU-other", "numaNode": 1}]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_nothing_is_decided_by_is_no_news(change):
    obj = make_report().object()
    before = read_report(obj)
    obj["status"] |= change
    assert read_report(obj) is before


def test_the_verdict_is_that_of_the_whole_report():
    mixed = make_policy().mig("mixed").sharing({"nvidia.com/mig-1g.10gb": 2}).rendered()
    reports = {
        "served": make_report().gpus(2).mig(0, "1g.10gb", "3g.40gb").serving(mixed),
        "one GPU sick": make_report().gpus(2).mig(0, "1g.10gb").sick(1).serving(mixed),
        "too few advertised": make_report().gpus(2).serving(mixed).row("nvidia.com/gpu", advertised=1),
        "some retiring": make_report().gpus(2).serving(mixed).row("nvidia.com/gpu", devices=3, retiring=1),
        "reserved": make_report().gpus(3).serving(mixed).row("nvidia.com/gpu", advertised=2).reserved("Active", 1),
        "refused": make_report().gpus(2).asked_for(mixed, "no such profile"),
        "not asked yet": make_report().gpus(2),
    }
    for name, report in reports.items():
        whole, kept = report.build(), read_report(report.object())
        assert kept is not None
        assert by_report(mixed, kept) == by_report(mixed, whole), name
        assert implied(mixed.config, kept.gpus) == implied(mixed.config, whole.gpus), name
        assert predicted(mixed.config, kept.gpus, {}) == predicted(mixed.config, whole.gpus, {}), name
    assert by_report(mixed, read_report(reports["served"].object())).progress is Progress.APPLIED


def test_which_gpus_are_shared_is_that_of_the_whole_report():
    report = make_report().gpus(5).reserved("Active", 1, before=[4]).reserved("Conflict", 2).reserved("Releasing", 3)
    kept = read_report(report.object())
    assert kept is not None
    assert [gpu.index for gpu in shared_gpus(kept)] == [gpu.index for gpu in shared_gpus(report.build())] == [0, 2]


@pytest.mark.parametrize("obj", [{}, {"status": None}, {"status": {"gpus": None, "config": None, "resources": None}}])
def test_a_status_that_says_nothing_is_an_empty_report(obj):
    assert read_report(obj) == GpuNodeStatus()


@pytest.mark.parametrize(
    "status",
    [
        {"gpus": "two"},
        {"gpus": ["GPU-0"]},
        {"gpus": [{"index": -1}]},
        {"gpus": [{"index": 0, "migDevices": [{"start": 0}]}]},
        {"gpus": [{"index": 0, "migDevices": 7}]},
        {"config": "packed"},
        {"resources": [{"devices": 8}]},
        {"resources": {"nvidia.com/gpu": 8}},
    ],
    ids=str,
)
def test_a_status_of_another_shape_counts_as_no_report(status):
    assert read_report({"status": status}) is None
