"""Whether a config may be served: by its text, then on the hardware."""

import pytest
from tests.support.hardware import gpu_uuid, make_hardware

from gpusharing.core.acceptance import ConfigText, accept, fit
from gpusharing.core.errors import InvalidInput
from gpusharing.core.listing import Listing, advance
from gpusharing.core.options import Given, Options

NOTHING = Options()
FOREIGN = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\nsurprise: 1\n"


def test_without_a_text_flags_and_environment_alone_count() -> None:
    given = Options({"mig_strategy": Given("mixed", "MIG_STRATEGY")})
    accepted = accept(ConfigText(), given, "")
    assert accepted.served.mig_strategy == "mixed"
    assert (accepted.unknown_keys, accepted.remarks, accepted.hidden) == ((), (), ())


def test_an_unknown_key_is_named_in_a_hand_written_config_and_refused_in_one_of_ours() -> None:
    assert accept(ConfigText("c", FOREIGN), NOTHING, "").unknown_keys == ("surprise",)
    with pytest.raises(InvalidInput, match="surprise"):
        accept(ConfigText("c", FOREIGN, rendered=True), NOTHING, "")


def test_what_a_flag_takes_away_from_a_config_is_told() -> None:
    text = "version: v1\nflags: {migStrategy: single}\n"
    accepted = accept(
        ConfigText("c", text, rendered=True), Options({"mig_strategy": Given("none", "--mig-strategy")}), ""
    )
    assert accepted.served.mig_strategy == "none"
    assert [(hidden.by, hidden.hidden_value) for hidden in accepted.hidden] == [("--mig-strategy", "single")]


@pytest.mark.parametrize("text", ["version: v2\n", "[", "- 1\n", "version: v1\nsharing: {timeSlicing: 4}\n"])
@pytest.mark.parametrize("rendered", [True, False])
def test_a_text_that_cannot_be_read_is_refused_with_a_sentence(text: str, rendered: bool) -> None:
    with pytest.raises(InvalidInput) as refused:
        accept(ConfigText("c", text, rendered), NOTHING, "")
    assert refused.value.message


@pytest.mark.parametrize("text", ["", "version: v1\n"])
def test_a_hand_written_config_that_says_nothing_means_the_defaults(text: str) -> None:
    fitted = fit(accept(ConfigText("c", text), NOTHING, ""), make_hardware(2).build(), Listing())
    assert [device.id for each in fitted.resources for device in each.devices] == [gpu_uuid(0), gpu_uuid(1)]


def test_replicas_for_a_resource_that_the_node_does_not_have_are_told() -> None:
    text = FOREIGN.replace("nvidia.com/gpu", "nvidia.com/mig-1g.10gb").replace(
        "surprise: 1", "flags: {migStrategy: mixed}"
    )
    fitted = fit(accept(ConfigText("c", text), NOTHING, ""), make_hardware(1).build(), Listing())
    assert fitted.unknown_resources == ("nvidia.com/mig-1g.10gb",)
    assert [each.name for each in fitted.resources] == ["nvidia.com/gpu"]


def test_an_invalid_mig_state_is_a_refused_config() -> None:
    accepted = accept(ConfigText("c", "version: v1\nflags: {migStrategy: single}\n"), NOTHING, "")
    with pytest.raises(InvalidInput):
        fit(accepted, make_hardware(2).mig(0, "1g.10gb").build(), Listing())


@pytest.mark.obligation("P7")
def test_with_the_ids_that_would_retire_a_list_must_not_be_too_long_either() -> None:
    hardware = make_hardware(16).build()
    before = accept(ConfigText("c", FOREIGN.replace("4", "3750")), NOTHING, "")
    served = fit(before, hardware, Listing())
    listing = advance(Listing(), served.resources, served.served, sick={}, held={}, calls_open=frozenset(), now=0.0)
    fit(accept(ConfigText("d", "version: v1\n"), NOTHING, ""), hardware, listing)
    others = make_hardware(16)
    for index in range(16):
        others = others.change(index, uuid=f"GPU-other-{index:026}")
    with pytest.raises(InvalidInput, match="takes at most"):
        fit(before, others.build(), listing)
