from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import PolicyBuilder, make_policy, make_report
from tests.support.strategies import specs

from gpusharing.api.node import Gpu
from gpusharing.core.advertise import implied, predicted, predicted_from_labels, resource_of_profile
from gpusharing.core.gfd import read_labels

GPU = "nvidia.com/gpu"
PLAIN = make_report().gpus(4)
PARTLY_MIG = make_report().gpus(3).mig(1, "1g.10gb", "1g.10gb", "3g.40gb").mig(2, "1g.10gb+me")

IMPLIED: dict[str, tuple[PolicyBuilder, Any, dict[str, int]]] = {
    "whole GPUs": (make_policy(), PLAIN, {GPU: 4}),
    "shares of whole GPUs": (make_policy().sharing(10), PLAIN, {GPU: 40}),
    "MPS shares": (make_policy().sharing(4, "mps"), PLAIN, {GPU: 16}),
    "renamed shares": (make_policy().sharing(2, renameByDefault=True), PLAIN, {f"{GPU}.shared": 8}),
    "none ignores MIG": (make_policy(), PARTLY_MIG, {GPU: 3}),
    "single shows MIG devices as GPUs": (make_policy().mig("single"), PARTLY_MIG, {GPU: 5}),
    "single, shared": (make_policy().mig("single").sharing(2), PARTLY_MIG, {GPU: 10}),
    "mixed shows each profile": (
        make_policy().mig("mixed"),
        PARTLY_MIG,
        {GPU: 1, "nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-1g.10gb.me": 1, "nvidia.com/mig-3g.40gb": 1},
    ),
    "mixed, one profile shared and renamed": (
        make_policy().mig("mixed").sharing({"nvidia.com/mig-1g.10gb": 3}, renameByDefault=True),
        PARTLY_MIG,
        {GPU: 1, "nvidia.com/mig-1g.10gb.shared": 6, "nvidia.com/mig-1g.10gb.me": 1, "nvidia.com/mig-3g.40gb": 1},
    ),
    "a resource that no GPU has": (
        make_policy().mig("mixed").sharing({"nvidia.com/mig-7g.80gb": 3}),
        PLAIN,
        {GPU: 4},
    ),
    "no GPU": (make_policy().sharing(4), make_report().gpus(0), {}),
    "a GPU in MIG mode without devices": (make_policy().mig("mixed"), make_report().gpus(2).mig(0), {GPU: 1}),
}


@pytest.mark.parametrize(("policy", "report", "want"), IMPLIED.values(), ids=IMPLIED.keys())
def test_a_config_implies_so_many_ids(policy: PolicyBuilder, report: Any, want: dict[str, int]) -> None:
    assert implied(policy.rendered().config, report.inventory) == want


def test_a_profile_with_an_engine_is_spelled_with_a_dot() -> None:
    assert resource_of_profile("1g.24gb+me.all") == "nvidia.com/mig-1g.24gb.me.all"
    assert resource_of_profile("1g.24gb-me") == "nvidia.com/mig-1g.24gb-me"


gpus = st.lists(
    st.builds(
        lambda mig, profiles, healthy: {"mig_mode": mig, "healthy": healthy, "profiles": profiles if mig else []},
        st.booleans(),
        st.lists(st.sampled_from(["1g.10gb", "1g.10gb+me", "3g.40gb"]), max_size=3),
        st.booleans(),
    ),
    max_size=4,
).map(
    lambda drawn: [
        Gpu.model_validate(
            {
                "index": index,
                "uuid": f"GPU-{index}",
                "model": "m",
                "healthy": gpu["healthy"],
                "migMode": gpu["mig_mode"],
                "migDevices": [{"uuid": f"MIG-{index}-{n}", "profile": p} for n, p in enumerate(gpu["profiles"])],
            }
        )
        for index, gpu in enumerate(drawn)
    ]
)


@given(specs, gpus)
def test_each_gpu_adds_its_own_ids_whatever_the_others_are(spec: dict[str, Any], inventory: list[Gpu]) -> None:
    config = make_policy().with_spec(**spec).rendered().config
    apart: dict[str, int] = {}
    for gpu in inventory:
        for name, count in implied(config, [gpu]).items():
            apart[name] = apart.get(name, 0) + count
    assert implied(config, inventory) == dict(sorted(apart.items()))


@given(specs, gpus)
def test_without_a_report_exactly_the_sick_gpus_are_missing(spec: dict[str, Any], inventory: list[Gpu]) -> None:
    config = make_policy().with_spec(**spec).rendered().config
    healthy = implied(config, [gpu for gpu in inventory if gpu.healthy])
    assert predicted(config, inventory, {}) == {name: healthy.get(name, 0) for name in implied(config, inventory)}


class TestPredictedWithWhatThePluginSays:
    POLICY = make_policy().sharing(4)

    def predict(self, report: Any) -> int:
        rows = {row.name: row for row in report.rows}
        return predicted(self.POLICY.rendered().config, report.inventory, rows)[GPU]

    def serving(self) -> Any:
        return make_report().gpus(2).serving(self.POLICY.rendered())

    def test_all_healthy(self) -> None:
        assert self.predict(self.serving()) == 8

    def test_a_sick_gpu_takes_all_its_shares(self) -> None:
        assert self.predict(make_report().gpus(2).sick(0).serving(self.POLICY.rendered())) == 4

    def test_a_sick_gpu_counts_before_the_plugin_s_list_says_so(self) -> None:
        assert self.predict(self.serving().sick(0)) == 4

    def test_a_single_sick_share_counts_on_the_plugin_s_word(self) -> None:
        assert self.predict(self.serving().row(GPU, healthy=7)) == 7

    def test_withheld_ids_are_not_handed_out(self) -> None:
        assert self.predict(self.serving().row(GPU, healthy=4, withheld=4)) == 4

    def test_an_id_that_is_sick_and_withheld_is_missing_once(self) -> None:
        assert self.predict(self.serving().sick(0).row(GPU, healthy=4, withheld=4)) == 4

    def test_retiring_ids_are_none_of_the_config(self) -> None:
        assert self.predict(self.serving().row(GPU, devices=10, healthy=8, retiring=2)) == 8

    def test_it_never_falls_below_nothing(self) -> None:
        assert self.predict(self.serving().row(GPU, devices=99, healthy=0)) == 0


# --- by the labels of GPU Feature Discovery

LABELS: dict[str, tuple[PolicyBuilder, dict[str, str], dict[str, int] | None]] = {
    "whole GPUs": (make_policy(), {"gpu.count": "8"}, {GPU: 8}),
    "shares": (make_policy().sharing(4), {"gpu.count": "8"}, {GPU: 32}),
    "renamed shares": (make_policy().sharing(4, renameByDefault=True), {"gpu.count": "2"}, {f"{GPU}.shared": 8}),
    "no count": (make_policy(), {}, None),
    "a count of none": (make_policy(), {"gpu.count": "0"}, None),
    "a count that is no number": (make_policy(), {"gpu.count": "eight"}, None),
    "single, counted as MIG devices": (
        make_policy().mig("single").sharing(2),
        {"gpu.count": "7", "mig.strategy": "single", "gpu.product": "X-MIG-1g.5gb"},
        {GPU: 14},
    ),
    "single, not yet relabelled": (make_policy().mig("single"), {"gpu.count": "1"}, None),
    "none, while the count is still one of MIG devices": (
        make_policy(),
        {"gpu.count": "7", "mig.strategy": "single", "gpu.product": "X-MIG-1g.5gb"},
        None,
    ),
    "none on a board without MIG whose labels say single": (
        make_policy(),
        {"gpu.count": "2", "mig.strategy": "single", "gpu.product": "X"},
        {GPU: 2},
    ),
    "mixed": (
        make_policy().mig("mixed").sharing({"nvidia.com/mig-1g.5gb": 2}),
        {"gpu.count": "2", "mig.strategy": "mixed", "mig-1g.5gb.count": "7", "mig-2g.10gb.count": "3"},
        {"nvidia.com/mig-1g.5gb": 14, "nvidia.com/mig-2g.10gb": 3},
    ),
    "mixed without a MIG device": (
        make_policy().mig("mixed"),
        {"gpu.count": "2", "mig.strategy": "mixed"},
        {GPU: 2},
    ),
    "mixed with two models": (
        make_policy().mig("mixed"),
        {
            "gpu.count": "2",
            "mig.strategy": "mixed",
            "gpu.product": "X",
            "mig-1g.5gb.count": "7",
            "mig-1g.5gb.product": "Y",
        },
        None,
    ),
    "an invalid MIG state": (
        make_policy().mig("single"),
        {"gpu.count": "0", "mig.strategy": "single", "gpu.product": "X-MIG-INVALID"},
        None,
    ),
}


@pytest.mark.parametrize(("policy", "labels", "want"), LABELS.values(), ids=LABELS.keys())
def test_labels_imply_so_many_devices_or_do_not_tell(
    policy: PolicyBuilder, labels: dict[str, str], want: dict[str, int] | None
) -> None:
    read = read_labels({f"nvidia.com/{key}": value for key, value in labels.items()})
    assert predicted_from_labels(policy.rendered("shared").config, read) == want
