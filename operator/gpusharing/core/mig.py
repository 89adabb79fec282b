"""Which MIG profiles a GPU model can make (NVIDIA's MIG user guide; memory figures of `nvidia-smi mig -lgip`)."""

# board: (models as NVML names them, profiles)
_BOARDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "A30-24GB": (
        ("NVIDIA A30",),
        ("1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"),
    ),
    "A100-40GB": (
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB", "A100-SXM4-40GB"),
        ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    ),
    "A100-80GB": (
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA A800-SXM4-80GB", "NVIDIA A800 80GB PCIe"),
        ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    ),
    "H100-80GB": (
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H800"),
        ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    ),
    "H100-94GB": (
        ("NVIDIA H100 NVL", "NVIDIA H800 NVL"),
        ("1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"),
    ),
    "H100-96GB": (
        ("NVIDIA H100 96GB HBM3", "NVIDIA GH200 480GB", "NVIDIA H20"),
        ("1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"),
    ),
    "H200-141GB": (
        ("NVIDIA H200", "NVIDIA H200 NVL", "NVIDIA H20-3e"),
        ("1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
    ),
    "GH200-144GB": (
        ("NVIDIA GH200 144G HBM3e",),
        ("1g.18gb", "1g.18gb+me", "1g.36gb", "2g.36gb", "3g.72gb", "4g.72gb", "7g.144gb"),
    ),
    "B200-180GB": (
        ("NVIDIA B200",),
        ("1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
    ),
    "GB200-186GB": (
        ("NVIDIA GB200",),
        ("1g.23gb", "1g.23gb+me", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"),
    ),
    "RTX-PRO-6000-96GB": (
        (
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        ),
        (
            "1g.24gb",
            "1g.24gb+me",
            "1g.24gb+gfx",
            "1g.24gb+me.all",
            "1g.24gb-me",
            "2g.48gb",
            "2g.48gb+gfx",
            "2g.48gb+me.all",
            "2g.48gb-me",
            "4g.96gb",
            "4g.96gb+gfx",
        ),
    ),
}

# Labels hold a model with hyphens for blanks (contract, section 9.1).
_BY_MODEL = {
    model.replace(" ", "-"): frozenset(profile.replace("+", ".") for profile in profiles)
    for models, profiles in _BOARDS.values()
    for model in models
}


def resource_profiles(model: str) -> frozenset[str] | None:
    """Return the profiles that the model can make, as resource names spell them; None = a model we do not know.

    The model may be NVML's (`NVIDIA A100-SXM4-40GB`) or a label's (`NVIDIA-A100-SXM4-40GB`).
    """
    return _BY_MODEL.get(model.replace(" ", "-"))
