"""What `fragmentation` prints, from reports."""

import shlex

from hypothesis import given
from hypothesis import strategies as st
from tests.support.builders import make_report
from tests.support.scattered import scattered

from gpusharing.api.node import GpuNodeStatus, RestartSet
from gpusharing.core.restartset import delete_command, fragmentation_overview


def restart(*pods: str, more: int = 0) -> RestartSet:
    return RestartSet(gpu="GPU-a", pods=list(pods), more=more)


def test_all_pods_are_deleted_before_one_of_them_is_made_anew() -> None:
    assert delete_command(restart("b/x", "a/y", "a/z"), ("kubectl", "--context", "prod")) == (
        "kubectl --context prod delete pod --wait=false -n a y z && "
        "kubectl --context prod delete pod --wait=false -n b x"
    )


def test_a_part_of_the_pods_is_not_deleted() -> None:
    assert delete_command(restart("a/x", more=1)) == ""


@given(context=st.text(min_size=1))
def test_whatever_a_context_is_called_stays_a_word_of_the_command(context: str) -> None:
    words = shlex.split(delete_command(restart("a/x"), ("kubectl", "--context", context)))
    assert words == ["kubectl", "--context", context, "delete", "pod", "--wait=false", "-n", "a", "x"]


def test_nodes_are_in_order_of_their_names_and_added_up_as_far_as_they_are_known() -> None:
    reports = {
        "b": GpuNodeStatus.model_validate(scattered("b", (3, 1, 0), "x/y")["status"]),
        "a": make_report("a").gpus(2).build(),
    }
    got = fragmentation_overview(reports)
    assert [node.node for node in got.nodes] == ["a", "b"]
    assert (got.gpus, got.free_whole_gpus, got.possible_whole_gpus) == (5, 1, 2)
    unknown, known = got.nodes
    assert (unknown.fragmentation, unknown.command) == (None, "")
    assert [(gpu.shares, gpu.in_use) for gpu in known.gpus] == [(4, 3), (4, 1), (4, 0)]
    assert known.command == "kubectl delete pod --wait=false -n x y"
