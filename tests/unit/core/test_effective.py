"""Flag over environment over config over default, and what does not go together."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.strategies import specs

from gpusharing.api.pluginconfig import PluginConfig
from gpusharing.api.policy import PolicySpec
from gpusharing.core.configtext import read_foreign, read_rendered
from gpusharing.core.desired_state import render
from gpusharing.core.effective import Hidden, serve
from gpusharing.core.errors import InvalidInput
from gpusharing.core.options import NVIDIA, Given, Option, Options
from gpusharing.core.serving import ServedConfig

RUNTIME = "containerd://2.1.4"
# For each option two values that a config may say and that go with everything else; the first is not the default.
VALUES: dict[str, tuple[Any, Any]] = {
    "mig_strategy": ("single", "mixed"),
    "fail_on_init_error": (False, True),
    "driver_root": ("/run/nvidia/driver", "/"),
    "dev_root": ("/dev-root", ""),
    "mps_root": ("/run/nvidia/mps", "/mps"),
    "gdrcopy": (True, False),
    "gds": (True, False),
    "mofed": (True, False),
    "device_discovery_strategy": ("nvml", "auto"),
    "pass_device_specs": (True, False),
    "device_list_strategies": (("volume-mounts", "cdi-cri"), ("envvar",)),
    "device_id_strategy": ("index", "uuid"),
    "cdi_annotation_prefix": ("cdi.x/", "cdi.k8s.io/"),
    "nvidia_ctk_path": ("/bin/nvidia-ctk", "/usr/bin/nvidia-ctk"),
    "container_driver_root": ("/host", "/driver-root"),
    "allocation_policy": ("packed", "distributed"),
    "imex_channels": ((0,), ()),
    "imex_required": (True, False),
}
MPS = {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}


def config_of(**values: Any) -> PluginConfig:
    """A config that says these options, by their fields."""
    data: dict[str, Any] = {}
    for option in NVIDIA:
        if option.field in values:
            here = data
            *sections, key = option.path.split(".")
            for section in sections:
                here = here.setdefault(section, {})
            value = values[option.field]
            here[key] = list(value) if isinstance(value, tuple) else value
    return PluginConfig.model_validate(data)


def stated(**values: Any) -> Options:
    return Options({field: Given(value, f"--{field}") for field, value in values.items()})


def value_of(served: ServedConfig, field: str) -> Any:
    return served.allocation.policy if field == "allocation_policy" else getattr(served, field)


def refusal(config: PluginConfig, given: Options = stated(), runtime: str = "") -> str:  # noqa: B008
    with pytest.raises(InvalidInput) as caught:
        serve(config, "x", given, runtime=runtime)
    return str(caught.value)


served_options = [option for option in NVIDIA if option.field != "device_discovery_strategy"]


def test_every_option_is_tried_here() -> None:
    assert list(VALUES) == [option.field for option in NVIDIA]


@pytest.mark.parametrize("option", served_options, ids=lambda option: option.field)
class TestEveryOption:
    def test_is_nvidias_default_where_nothing_says_otherwise(self, option: Option) -> None:
        served, hidden = serve(PluginConfig(), "")
        assert value_of(served, option.field) == value_of(ServedConfig(), option.field)
        assert hidden == ()

    def test_is_what_the_config_says(self, option: Option) -> None:
        for value in VALUES[option.field]:
            served, hidden = serve(config_of(**{option.field: value}), "x", runtime=RUNTIME)
            assert value_of(served, option.field) == value
            assert hidden == ()

    def test_is_what_is_given_before_the_config_and_what_that_hides_is_named(self, option: Option) -> None:
        one, other = VALUES[option.field]
        given = stated(**{option.field: other})
        served, hidden = serve(config_of(**{option.field: one}), "x", given, runtime=RUNTIME)
        assert value_of(served, option.field) == other
        assert hidden == (Hidden(option.path, f"--{option.field}", other, one),)

    def test_hides_nothing_where_the_config_agrees_or_is_silent(self, option: Option) -> None:
        one, _ = VALUES[option.field]
        given = stated(**{option.field: one})
        for config in (PluginConfig(), config_of(**{option.field: one})):
            served, hidden = serve(config, "x", given, runtime=RUNTIME)
            assert value_of(served, option.field) == one
            assert hidden == ()


def test_a_warning_names_key_value_and_who_hides_it() -> None:
    hidden = Hidden("flags.migStrategy", "MIG_STRATEGY", "single", "mixed")
    assert str(hidden) == 'flags.migStrategy: "mixed" is hidden: MIG_STRATEGY says "single", and that wins'


# --- allocation (decision 27)


@pytest.mark.parametrize(
    ("flag", "ours", "nvidias", "want", "hides"),
    [
        ("", "", "", "distributed", ""),
        ("", "", "packed", "packed", ""),
        ("", "spread", "distributed", "spread", ""),
        ("", "distributed", "packed", "distributed", ""),
        ("packed", "", "", "packed", ""),
        ("packed", "spread", "distributed", "packed", "gpusharing.allocation.policy"),
        ("distributed", "", "packed", "distributed", "flags.plugin.sharedDevicesAllocationPolicy"),
        ("packed", "packed", "distributed", "packed", ""),
    ],
)
def test_a_flag_wins_over_our_key_and_that_over_nvidias(
    flag: str, ours: str, nvidias: str, want: str, hides: str
) -> None:
    data: dict[str, Any] = {}
    if ours:
        data["gpusharing"] = {"allocation": {"policy": ours, "topology": "preferred"}}
    if nvidias:
        data["flags"] = {"plugin": {"sharedDevicesAllocationPolicy": nvidias}}
    given = stated(**({"allocation_policy": flag} if flag else {}))
    served, hidden = serve(PluginConfig.model_validate(data), "x", given)
    assert served.allocation.policy == want
    assert served.allocation.topology == ("preferred" if ours else "none")
    assert [entry.path for entry in hidden] == ([hides] if hides else [])


def test_our_key_without_a_policy_leaves_it_to_nvidias() -> None:
    text = (
        "flags: {plugin: {sharedDevicesAllocationPolicy: packed}}\ngpusharing: {allocation: {keepTogether: preferred}}"
    )
    served, _ = serve(read_foreign(text).config, "x")
    assert (served.allocation.policy, served.allocation.keep_together) == ("packed", "preferred")


@given(specs)
@settings(deadline=None, max_examples=60)
def test_what_a_policy_asks_for_is_what_is_served(wanted: dict[str, Any]) -> None:
    spec = PolicySpec.model_validate(wanted)
    config = read_rendered(render(spec, "per-node").text)
    served, hidden = serve(config, "x", stated(mps_root="/run/nvidia/mps"), runtime=RUNTIME)
    assert served.allocation == spec.allocation
    assert served.mig_strategy == spec.mig_strategy
    assert (served.shared is None) == (spec.sharing is None)
    assert hidden == ()


# --- what does not go together (contract 1.7)


@pytest.mark.fault("F18")
def test_both_strategies_at_once_are_refused() -> None:
    both = PluginConfig.model_validate({"sharing": {**MPS, "timeSlicing": MPS["mps"]}})
    assert refusal(both, stated(mps_root="/m")) == ("sharing: both timeSlicing and mps. hint: leave one of them out")


@pytest.mark.parametrize("by_flag", [True, False])
def test_mps_with_mixed_is_refused_whoever_says_mixed(by_flag: bool) -> None:
    data = {"sharing": MPS, "flags": {"mpsRoot": "/m", **({} if by_flag else {"migStrategy": "mixed"})}}
    given = stated(mig_strategy="mixed") if by_flag else stated()
    assert "MPS with MIG strategy mixed" in refusal(PluginConfig.model_validate(data), given)


def test_mps_with_mixed_goes_where_a_flag_hides_mixed() -> None:
    data = {"sharing": MPS, "flags": {"mpsRoot": "/m", "migStrategy": "mixed"}}
    served, hidden = serve(PluginConfig.model_validate(data), "x", stated(mig_strategy="none"))
    assert (served.mig_strategy, len(hidden)) == ("none", 1)


@pytest.mark.parametrize("given", [stated(), stated(mps_root="")], ids=["nothing", "emptied"])
def test_mps_needs_its_root(given: Options) -> None:
    assert "MPS without flags.mpsRoot" in refusal(PluginConfig.model_validate({"sharing": MPS}), given)


@pytest.mark.parametrize("strategy", ["cdi-annotations", "cdi-cri"])
def test_cdi_needs_a_runtime_that_is_known(strategy: str) -> None:
    config = config_of(device_list_strategies=("envvar", strategy))
    assert f"{strategy}: the node's container runtime is not known" in refusal(config)
    assert serve(config, "x", runtime=RUNTIME)[0].device_list_strategies == ("envvar", strategy)


def test_channels_other_than_0_are_refused() -> None:
    assert "imex.channelIDs: [0, 1] is refused" in refusal(config_of(imex_channels=(0, 1)))


@pytest.mark.parametrize("by_flag", [True, False])
def test_tegra_is_refused_with_a_sentence(by_flag: bool) -> None:
    strategy = {"device_discovery_strategy": "tegra"}
    config, given = (PluginConfig(), stated(**strategy)) if by_flag else (config_of(**strategy), stated())
    assert "GPUs of Tegra are not served. hint:" in refusal(config, given)


@given(
    st.dictionaries(st.sampled_from(sorted(VALUES)), st.booleans()),
    st.dictionaries(st.sampled_from(sorted(VALUES)), st.booleans()),
)
@settings(deadline=None, max_examples=100)
def test_each_option_is_decided_alone(in_config: dict[str, bool], given_: dict[str, bool]) -> None:
    said = {field: VALUES[field][first] for field, first in in_config.items()}
    flags = {field: VALUES[field][first] for field, first in given_.items()}
    served, hidden = serve(config_of(**said), "x", stated(**flags), runtime=RUNTIME)
    for option in served_options:
        want = {**said, **flags}.get(option.field, value_of(ServedConfig(), option.field))
        assert value_of(served, option.field) == want
    differing = {option.path for option in NVIDIA if (f := option.field) in said and f in flags and said[f] != flags[f]}
    assert {entry.path for entry in hidden} == differing
