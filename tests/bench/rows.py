"""One row = one figure with its goal; the table that is printed, and the JSON that is kept."""

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.support.cluster.binaries import kubernetes_version

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Row:
    """A figure. `goal` is the most that it may be; None = it is there for comparison only."""

    name: str
    measured: float
    unit: str
    goal: float | None = None
    # what it was compared with, in words
    reference: str = ""
    samples: tuple[float, ...] = field(default=())

    @property
    def ok(self) -> bool:
        return self.goal is None or self.measured <= self.goal


def median_ratio(measured: Sequence[float], reference: Sequence[float]) -> float:
    """The median of the ratios of neighbours: both of a pair ran in the same minute."""
    return statistics.median(ours / bare for ours, bare in zip(measured, reference, strict=True))


def print_table(rows: Sequence[Row], title: str) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("what", "measured", "goal", "compared with", ""):
        table.add_column(column, justify="right" if column in {"measured", "goal"} else "left")
    for row in rows:
        goal = f"≤ {_figure(row.goal)} {row.unit}" if row.goal is not None else ""
        verdict = "" if row.goal is None else "ok" if row.ok else "MISSED"
        table.add_row(row.name, f"{_figure(row.measured)} {row.unit}", goal, row.reference, verdict)
    Console(width=None if os.isatty(1) else 140).print(table)


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "python": platform.python_version(),
        "kubernetes": kubernetes_version(),
        "kernel": platform.release(),
        "load_before": round(os.getloadavg()[0], 2),
        "commit": commit.stdout.strip(),
    }


def keep(rows: Sequence[Row], about: dict[str, Any]) -> Path:
    """Write `bench-results/<moment>.json`. Returns its path."""
    moment = datetime.now(UTC)
    folder = ROOT / "bench-results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{moment:%Y-%m-%dT%H%M%S}.json"
    content = {
        **about,
        "ended": f"{moment:%Y-%m-%dT%H:%M:%SZ}",
        "rows": [{**asdict(row), "ok": row.ok} for row in rows],
    }
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    return path
