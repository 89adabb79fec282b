"""MIG profiles: which ones a GPU model can make, where they fit, and how they are named.

Source: NVIDIA's MIG user guide; memory in GiB as `nvidia-smi mig -lgip` prints it, placements as `-lgipp` does. Drivers
differ by a little, so with real hardware only NVML counts: these tables are for simulated GPUs and for advice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One GPU instance profile of a board. Starts and size are in the board's placement units."""

    name: str
    slices: int
    size: int
    starts: tuple[int, ...]
    # instances on an otherwise empty board
    most: int
    # None = not known
    memory_gib: float | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """A GPU model by all its names in NVML, and the profiles that it can make."""

    models: tuple[str, ...]
    # placement units
    units: int
    profiles: tuple[MigProfile, ...]

    def profile(self, name: str) -> MigProfile | None:
        """Return the profile of that name."""
        return next((profile for profile in self.profiles if profile.name == name), None)

    def memory_mib(self, profile: MigProfile, board_mib: int) -> int:
        """Return the memory of an instance on a board of this size; where no figure is known, its part of the board."""
        known = profile.memory_gib
        return board_mib * profile.size // self.units if known is None else round(known * 1024)


def _shape(slices: int, size: int, starts: Sequence[int], most: int) -> MigProfile:
    return MigProfile("", slices, size, tuple(starts), most)


_SEVEN_SLICES = (
    _shape(1, 1, range(7), 7),
    _shape(1, 1, range(7), 1),
    _shape(1, 2, (0, 2, 4, 6), 4),
    _shape(2, 2, (0, 2, 4), 3),
    _shape(3, 4, (0, 4), 2),
    _shape(4, 4, (0,), 1),
    _shape(7, 8, (0,), 1),
)
_A30_SLICES = (
    _shape(1, 1, range(4), 4),
    _shape(1, 1, range(4), 1),
    _shape(2, 2, (0, 2), 2),
    _shape(2, 2, (0, 2), 1),
    _shape(4, 4, (0,), 1),
)
# twelve placement units for four slices
_RTX_QUARTER, _RTX_HALF, _RTX_WHOLE = _shape(1, 3, (0, 3, 6, 9), 4), _shape(2, 6, (0, 6), 2), _shape(4, 12, (0,), 1)
_RTX_SLICES = (
    *(replace(_RTX_QUARTER, most=most) for most in (4, 1, 4, 1, 4)),
    *(replace(_RTX_HALF, most=most) for most in (2, 2, 1, 2)),
    *(_RTX_WHOLE, _RTX_WHOLE),
)


def _board(models: tuple[str, ...], shapes: tuple[MigProfile, ...], profiles: dict[str, float | None]) -> Board:
    """Return the board; its profiles are named in the order of the shapes."""
    named = zip(shapes, profiles.items(), strict=True)
    made = tuple(replace(shape, name=name, memory_gib=memory) for shape, (name, memory) in named)
    return Board(models, max(profile.size for profile in made), made)


_BOARDS: dict[str, Board] = {
    "A30-24GB": _board(
        ("NVIDIA A30",),
        _A30_SLICES,
        {"1g.6gb": 5.81, "1g.6gb+me": 5.81, "2g.12gb": 11.69, "2g.12gb+me": 11.69, "4g.24gb": 23.44},
    ),
    "A100-40GB": _board(
        (
            "NVIDIA A100-SXM4-40GB",
            "NVIDIA A100-PCIE-40GB",
            "A100-SXM4-40GB",
        ),
        _SEVEN_SLICES,
        {
            "1g.5gb": 4.75,
            "1g.5gb+me": 4.75,
            "1g.10gb": 9.62,
            "2g.10gb": 9.62,
            "3g.20gb": 19.5,
            "4g.20gb": 19.5,
            "7g.40gb": 39.25,
        },
    ),
    "A100-80GB": _board(
        (
            "NVIDIA A100-SXM4-80GB",
            "NVIDIA A100 80GB PCIe",
            "NVIDIA A800-SXM4-80GB",
            "NVIDIA A800 80GB PCIe",
        ),
        _SEVEN_SLICES,
        {
            "1g.10gb": 9.5,
            "1g.10gb+me": 9.5,
            "1g.20gb": 19.5,
            "2g.20gb": 19.5,
            "3g.40gb": 39.25,
            "4g.40gb": 39.25,
            "7g.80gb": 79.0,
        },
    ),
    "H100-80GB": _board(
        (
            "NVIDIA H100 80GB HBM3",
            "NVIDIA H100 PCIe",
            "NVIDIA H800",
        ),
        _SEVEN_SLICES,
        {
            "1g.10gb": 9.75,
            "1g.10gb+me": 9.75,
            "1g.20gb": 19.62,
            "2g.20gb": 19.62,
            "3g.40gb": 39.5,
            "4g.40gb": 39.5,
            "7g.80gb": 79.25,
        },
    ),
    "H100-94GB": _board(
        (
            "NVIDIA H100 NVL",
            "NVIDIA H800 NVL",
        ),
        _SEVEN_SLICES,
        {
            "1g.12gb": 10.75,
            "1g.12gb+me": 10.75,
            "1g.24gb": 21.62,
            "2g.24gb": 21.62,
            "3g.47gb": 46.38,
            "4g.47gb": 46.38,
            "7g.94gb": 93.12,
        },
    ),
    "H100-96GB": _board(
        (
            "NVIDIA H100 96GB HBM3",
            "NVIDIA GH200 480GB",
            "NVIDIA H20",
        ),
        _SEVEN_SLICES,
        {
            "1g.12gb": 11.0,
            "1g.12gb+me": 11.0,
            "1g.24gb": 23.0,
            "2g.24gb": 23.0,
            "3g.48gb": 46.5,
            "4g.48gb": 46.5,
            "7g.96gb": 93.0,
        },
    ),
    "H200-141GB": _board(
        (
            "NVIDIA H200",
            "NVIDIA H200 NVL",
            "NVIDIA H20-3e",
        ),
        _SEVEN_SLICES,
        {
            "1g.18gb": 16.0,
            "1g.18gb+me": 16.0,
            "1g.35gb": 32.25,
            "2g.35gb": 32.25,
            "3g.71gb": 69.5,
            "4g.71gb": 69.5,
            "7g.141gb": 140.0,
        },
    ),
    "GH200-144GB": _board(
        ("NVIDIA GH200 144G HBM3e",),
        _SEVEN_SLICES,
        {
            "1g.18gb": 17.5,
            "1g.18gb+me": 17.5,
            "1g.36gb": 35.25,
            "2g.36gb": 35.25,
            "3g.72gb": None,
            "4g.72gb": None,
            "7g.144gb": None,
        },
    ),
    "B200-180GB": _board(
        ("NVIDIA B200",),
        _SEVEN_SLICES,
        {
            "1g.23gb": 22.0,
            "1g.23gb+me": 22.0,
            "1g.45gb": 44.25,
            "2g.45gb": 44.25,
            "3g.90gb": None,
            "4g.90gb": None,
            "7g.180gb": None,
        },
    ),
    "GB200-186GB": _board(
        ("NVIDIA GB200",),
        _SEVEN_SLICES,
        {
            "1g.23gb": 22.0,
            "1g.23gb+me": 22.0,
            "1g.47gb": 45.5,
            "2g.47gb": 45.5,
            "3g.93gb": None,
            "4g.93gb": None,
            "7g.186gb": None,
        },
    ),
    "RTX-PRO-6000-96GB": _board(
        (
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        ),
        _RTX_SLICES,
        {
            "1g.24gb": 23.62,
            "1g.24gb+me": 23.62,
            "1g.24gb+gfx": 23.62,
            "1g.24gb+me.all": 23.62,
            "1g.24gb-me": 23.62,
            "2g.48gb": 47.38,
            "2g.48gb+gfx": 47.38,
            "2g.48gb+me.all": 47.38,
            "2g.48gb-me": 47.38,
            "4g.96gb": 95.0,
            "4g.96gb+gfx": 95.0,
        },
    ),
}

# Labels hold a model with hyphens for blanks (contract, section 9.1).
_BY_MODEL = {model.replace(" ", "-"): board for board in _BOARDS.values() for model in board.models}


def board_of(model: str) -> Board | None:
    """Return what is known of the model, as NVML (`NVIDIA A100-SXM4-40GB`) or a label writes it; None = nothing."""
    return _BY_MODEL.get(model.replace(" ", "-"))


def resource_profiles(model: str) -> frozenset[str] | None:
    """Return the profiles that the model can make, as resource names spell them; None = a model we do not know."""
    board = board_of(model)
    return frozenset(profile.name.replace("+", ".") for profile in board.profiles) if board else None


def profile_name(slices: int, compute_slices: int, memory_mib: int, board_mib: int) -> str:
    """Return NVIDIA's name of an instance without its suffix for engines: `1g.10gb`, `1c.3g.20gb` (contract 3.3).

    The instance's part of the board, rounded up to eighths, times the board's whole GiB; halves round away from zero.
    """
    eighths = -(-8 * memory_mib // board_mib)
    gib = -(-board_mib // 1024)
    name = f"{slices}g.{(2 * eighths * gib + 8) // 16}gb"
    return name if compute_slices == slices else f"{compute_slices}c.{name}"
