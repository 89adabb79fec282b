"""The sentences of what goes wrong in a cluster only, word for word as the guide has them."""

from gpusharing.core.placement.incidents import gpu_unhealthy, node_lost, quota_exceeded, reservation_conflict


def test_what_went_wrong_is_said_with_names_and_numbers() -> None:
    said = [
        quota_exceeded("team-a", 2, 3, 0),
        reservation_conflict("GPU-1", "node-a", "policy"),
        node_lost("node-a", "gpu/0", ["judge", "policy"]),
        gpu_unhealthy(2, "GPU-2", "policy", "node-a"),
    ]
    assert [f"{each.code}: {each.message}" for each in said] == [
        "QuotaExceeded: namespace team-a may use 2 GPU(s), this placement needs 3 and others hold 0",
        "ReservationConflict: GPU GPU-1 on node-a was taken by another pod before service 'policy' could have it; "
        "planning again",
        "NodeLost: node-a of slot gpu/0 is gone or not ready; services judge, policy are affected",
        "GpuUnhealthy: GPU 2 (GPU-2) of service 'policy' on node-a is unhealthy; annotate gpusharing.io/rebalance to "
        "move the service",
    ]
