import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.hardware import ConfigBuilder, make_config, make_hardware

from gpusharing.core.errors import InvalidInput
from gpusharing.core.host import (
    HostFacts,
    check_host,
    device_nodes,
    imex_channels,
    optional_nodes,
    read_mig_minors,
    uses_cdi,
)

CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
CDI = make_config().lists("cdi-cri")
MIG_MINORS = """\
config 1
monitor 2
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu0/gi1/ci1/access 14
gpu10/gi7/access 201
gpu10/gi7/ci0/access 202

gpu0/gi2/access
gpu0/gi2/ci0/access x
gpux/gi2/access 3
"""


def refusal(config: ConfigBuilder, host: HostFacts) -> str:
    with pytest.raises(InvalidInput) as caught:
        check_host(config.build(), host)
    return str(caught.value)


def test_capability_nodes_are_read_and_other_lines_skipped() -> None:
    assert read_mig_minors(MIG_MINORS) == {
        (0, 1, None): 12,
        (0, 1, 0): 13,
        (0, 1, 1): 14,
        (10, 7, None): 201,
        (10, 7, 0): 202,
    }
    assert read_mig_minors("") == {}


@given(st.text(max_size=60))
@settings(deadline=None, max_examples=60)
def test_no_text_in_place_of_capability_nodes_is_an_error(text: str) -> None:
    read_mig_minors(text)
    assert read_mig_minors(f"{text}\ngpu3/gi4/access 5")[3, 4, None] == 5


def test_the_minor_names_the_node_of_a_gpu() -> None:
    (gpu,) = make_hardware(1).change(0, minor=7).build().gpus
    assert device_nodes(gpu, None, HostFacts()) == ("/dev/nvidia7",)


def test_a_mig_device_has_the_node_of_its_gpu_and_two_capability_nodes() -> None:
    (gpu,) = make_hardware(1).change(0, minor=0).mig(0, "1g.10gb").build().gpus
    host = HostFacts(mig_minors=read_mig_minors(MIG_MINORS))
    got = device_nodes(gpu, gpu.mig_devices[0], host)
    assert got == ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13")


@pytest.mark.parametrize("line", ["gpu10/gi1/access 5", "gpu10/gi1/ci0/access 5"])
def test_a_mig_device_without_one_of_its_capability_nodes_is_an_error(line: str) -> None:
    (gpu,) = make_hardware(1).mig(0, "1g.10gb").build().gpus
    with pytest.raises(InvalidInput, match=r"has no capability node: the driver lists none for gpu10/gi1/ci0. hint"):
        device_nodes(gpu, gpu.mig_devices[0], HostFacts(mig_minors=read_mig_minors(line)))


def test_the_shell_looks_for_control_nodes_and_configured_channels() -> None:
    control = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
    assert optional_nodes(make_config().build()) == control
    assert optional_nodes(make_config().set(imex_channels=(0,)).build()) == (*control, CHANNEL)


def test_a_channel_that_is_missing_is_dropped_unless_it_is_required() -> None:
    config = make_config().set(imex_channels=(0,))
    there, missing = HostFacts(nodes=frozenset({CHANNEL})), HostFacts()
    assert (imex_channels(config.build(), there), imex_channels(config.build(), missing)) == ((0,), ())
    check_host(config.build(), missing)
    check_host(config.set(imex_required=True).build(), there)
    got = refusal(config.set(imex_required=True), missing)
    assert got.startswith(f"imex.required: true, but {CHANNEL} is not there. hint: start the IMEX service")
    check_host(make_config().set(imex_required=True).build(), missing)


@pytest.mark.parametrize(
    "runtime",
    [
        "containerd://1.7.0",
        "containerd://2.4.2",
        "containerd://v1.7.23-k3s2",
        "containerd://10.0.0",
        "cri-o://1.23.0",
        "cri-o://1.30.0",
    ],
)
@pytest.mark.parametrize("strategy", ["cdi-cri", "cdi-annotations"])
def test_a_runtime_with_cdi_passes(runtime: str, strategy: str) -> None:
    config = make_config().lists("envvar", strategy).build()  # type: ignore[arg-type]
    check_host(config, HostFacts(runtime=runtime, cdi_classes=frozenset({"gpu"})))


@pytest.mark.parametrize(
    "runtime",
    ["containerd://1.6.20", "containerd://1.6.999", "cri-o://1.22.9", "docker://27.0.0", "containerd", "\x1b[31m", "7"],
)
@pytest.mark.fault("X12")
def test_a_runtime_without_cdi_is_refused_and_quoted(runtime: str) -> None:
    got = refusal(CDI, HostFacts(runtime=runtime, cdi_classes=frozenset({"gpu"})))
    assert "has no CDI: containers would start without their GPUs. hint: CDI needs containerd 1.7" in got
    assert "\x1b" not in got


def test_a_runtime_that_nobody_knows_is_refused_with_the_setting_to_name_it() -> None:
    got = refusal(CDI, HostFacts(cdi_classes=frozenset({"gpu"})))
    assert got.startswith("deviceListStrategy cdi-cri, but the container runtime is not known, and not each has CDI")
    assert "hint: set CONTAINER_RUNTIME" in got


def test_without_a_spec_cdi_is_refused_naming_the_tool() -> None:
    got = refusal(CDI.set(nvidia_ctk_path="/opt/nvidia-ctk"), HostFacts(runtime="containerd://2.0.0"))
    assert "there is no CDI spec: /opt/nvidia-ctk is not on the host, or failed. hint: install" in got


def test_without_cdi_nothing_of_it_is_asked() -> None:
    config = make_config().lists("envvar", "volume-mounts").build()
    assert not uses_cdi(config)
    check_host(config, HostFacts())
