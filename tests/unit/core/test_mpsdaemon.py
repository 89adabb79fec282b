from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hardware import gpu_uuid, make_config, make_hardware

from gpusharing.core.mpsdaemon import MpsDaemon, RunningDaemon, mps_daemons, next_steps
from gpusharing.core.resources import resources_of

GPU = "nvidia.com/gpu"
ONE = MpsDaemon(GPU, (gpu_uuid(0),), ("set_default_active_thread_percentage 25",), "digest-1")
OTHER_LIMITS = replace(ONE, limits=("set_default_active_thread_percentage 12",), digest="digest-2")
OTHER_DIGEST = replace(ONE, digest="digest-3")
OTHER_GPUS = replace(ONE, gpus=(gpu_uuid(0), gpu_uuid(1)), digest="digest-4")
RUNNING = RunningDaemon(ONE)
USED = RunningDaemon(ONE, clients=True)
DEAD = RunningDaemon(ONE, alive=False)


@pytest.mark.parametrize(
    ("replicas", "percentage", "memory"), [(2, 50, 40960), (3, 33, 27306), (8, 12, 10240), (48, 2, 1706)]
)
def test_a_client_gets_its_part_of_threads_and_memory_rounded_down(replicas: int, percentage: int, memory: int) -> None:
    config, inventory = make_config().mps(replicas).build(), make_hardware(1).build()
    (daemon,) = mps_daemons(config, resources_of(config, inventory), inventory)
    assert daemon.limits == (
        f"set_default_device_pinned_mem_limit 0 {memory}M",
        f"set_default_active_thread_percentage {percentage}",
    )


def test_a_daemon_has_the_gpus_of_its_resource_by_index_and_the_hash_of_the_config() -> None:
    config = make_config().mps(4, renameByDefault=True).build()
    inventory = make_hardware(3).change(1, memory_mib=0).change(2, model="DGX Display").build()
    (daemon,) = mps_daemons(config, resources_of(config, inventory), inventory)
    assert daemon.resource == "nvidia.com/gpu.shared"
    assert daemon.gpus == (gpu_uuid(0), gpu_uuid(1))
    assert daemon.digest == config.config.digest()
    # the memory of the second is not known: it has no limit
    assert daemon.limits[:-1] == ("set_default_device_pinned_mem_limit 0 20480M",)


def test_without_mps_there_is_no_daemon() -> None:
    inventory = make_hardware(1).build()
    for config in (make_config().build(), make_config().shared(4).build()):
        assert mps_daemons(config, resources_of(config, inventory), inventory) == ()


STEPS = {
    "nothing runs, nothing is wanted": (None, None, ()),
    "the first start": (None, ONE, ("start", "mark")),
    "all is well": (RUNNING, ONE, ()),
    "all is well, with clients": (USED, ONE, ()),
    "no longer wanted": (RUNNING, None, ("unmark", "stop")),
    "no longer wanted, but in use": (USED, None, ("unmark",)),
    "it died": (DEAD, ONE, ("unmark", "start", "mark")),
    "it died and is not wanted": (DEAD, None, ("unmark", "stop")),
    "another config with the same limits": (RUNNING, OTHER_DIGEST, ("mark",)),
    "another config with the same limits, in use": (USED, OTHER_DIGEST, ("mark",)),
    "other limits": (RUNNING, OTHER_LIMITS, ("unmark", "stop", "start", "mark")),
    "other limits, in use": (USED, OTHER_LIMITS, ("unmark", "limit", "mark")),
    "limits were changed in use, and still are": (RunningDaemon(ONE, clients=True, outdated=True), ONE, ()),
    "limits were changed in use, nobody is left": (
        RunningDaemon(ONE, outdated=True),
        ONE,
        ("unmark", "stop", "start", "mark"),
    ),
    "other GPUs": (RUNNING, OTHER_GPUS, ("unmark", "stop", "start", "mark")),
    "other GPUs, in use": (USED, OTHER_GPUS, ("unmark",)),
}


@pytest.mark.parametrize(("running", "wanted", "steps"), STEPS.values(), ids=STEPS.keys())
def test_what_is_done_about_a_daemon(
    running: RunningDaemon | None, wanted: MpsDaemon | None, steps: tuple[str, ...]
) -> None:
    assert next_steps(running, wanted) == steps


daemons = st.sampled_from([ONE, OTHER_LIMITS, OTHER_DIGEST, OTHER_GPUS])
runnings = st.builds(RunningDaemon, daemons, st.just(True), st.booleans(), st.booleans())


@given(runnings, st.none() | daemons)
@settings(deadline=None, max_examples=100)
def test_clients_are_never_cut_off_for_a_config(running: RunningDaemon, wanted: MpsDaemon | None) -> None:
    steps = next_steps(running, wanted)
    assert not (running.clients and "stop" in steps)


@given(st.none() | runnings, st.none() | daemons)
@settings(deadline=None, max_examples=100)
def test_the_marker_comes_last_and_only_over_the_limits_of_its_config(
    running: RunningDaemon | None, wanted: MpsDaemon | None
) -> None:
    steps = next_steps(running, wanted)
    if "mark" in steps:
        assert wanted is not None
        assert steps[-1] == "mark"
        same = running is not None and (running.daemon.limits, running.daemon.gpus) == (wanted.limits, wanted.gpus)
        assert same or {"start", "limit"} & set(steps)
