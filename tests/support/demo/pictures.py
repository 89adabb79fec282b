"""What the demo draws from the plugins' reports (`GpuNode.status`), in plain text of less than 80 columns."""

from collections.abc import Mapping, Sequence

from gpusharing.api.node import GpuNodeStatus, ResourceReport


def shares(status: GpuNodeStatus) -> str:
    """A bar for each GPU: `█` is a share that a pod holds, `░` a free one."""
    index = {gpu.uuid: gpu.index for gpu in status.gpus}
    return "\n".join(
        f"  GPU {index[row.gpu]}  {'█' * row.in_use}{'░' * (row.shares - row.in_use)}  {row.in_use} of {row.shares}"
        for row in sorted(status.occupancy, key=lambda row: index[row.gpu])
    )


def served(reports: Mapping[str, GpuNodeStatus]) -> str:
    """For each node the config that it should serve, the one that it serves, and what the kubelet confirms."""
    rows = [
        (
            name,
            status.config.desired or "-",
            status.config.served or "-",
            ", ".join(_confirmed(row) for row in status.resources if row.advertised) or "-",
        )
        for name, status in reports.items()
    ]
    return table([("NODE", "DESIRED", "SERVED", "ADVERTISED"), *rows])


def reservations(status: GpuNodeStatus) -> str:
    """For each name that a placement has on the node: the GPUs behind it, and how far it is."""
    index = {gpu.uuid: str(gpu.index) for gpu in status.gpus}
    rows = [
        (row.resource, ",".join(sorted(index[gpu] for gpu in row.gpus)), row.state, str(row.in_use))
        for row in status.reservations
    ]
    return table([("RESOURCE", "GPUS", "STATE", "IN USE"), *rows])


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in columns, as kubectl prints them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("   ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


def _confirmed(row: ResourceReport) -> str:
    return f"{row.advertised} {row.name.removeprefix('nvidia.com/')}"
