"""XIDs: the driver's error numbers, and what they mean for a GPU's health.

Source: NVIDIA's catalogue, docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html (Ampere and newer).
"""

# Errors of an application, not of the GPU: ignored unless the admin says otherwise (contract 7.5).
APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})

# The catalogue's immediate action is RESET_GPU, RESTART_BM or RESTART_VM, or (48) a workflow that resets the GPU: no
# good probe shows that such a GPU is well again.
RESET_XIDS: dict[int, str] = {
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    62: "internal micro-controller halt",
    64: "memory remapping failure",
    79: "GPU has fallen off the bus",
    95: "uncontained memory error",
    109: "context switch timeout",
    110: "security fault",
    119: "GSP RPC timeout",
    120: "GSP error",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "GPU initialisation error",
    151: "key rotation error",
    155: "NVLink software-defined error",
    156: "resource retirement",
    158: "GPU fatal timeout",
}


def describe(xid: int) -> str:
    """Return the XID as people read it: `XID 79 (GPU has fallen off the bus)`."""
    return f"XID {xid} ({RESET_XIDS[xid]})" if xid in RESET_XIDS else f"XID {xid}"
