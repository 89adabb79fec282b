"""The comparison as a picture: one SVG that needs nothing else, for light and dark pages."""

from collections.abc import Iterable, Iterator
from html import escape

from gpusharing.api.scenarioreport import PolicyResult, ScenarioReport, SeedValues

WIDTH = 880
_MARGIN = 24
_LEFT, _TRACK = _MARGIN, 430
_HEAD, _ROW, _FOOT = 108, 62, 92
_BAR = 16
_COLUMNS = (("FREE OF IDEAL", 590), ("SPLIT", 664), ("STRANDED", 762), ("LARGEST", 856))
_STYLE = """
  .page { fill: #ffffff } .text { fill: #1f2328 } .quiet { fill: #59636e } .track { fill: #eaeef2 }
  .ideal { fill: #eedca6 } .free { fill: #1a7f37 } .reference { fill: #6e7781 } .range { stroke: #1f2328 }
  .grid { stroke: #d1d9e0 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .text { fill: #f0f6fc } .quiet { fill: #9198a1 } .track { fill: #21262d }
    .ideal { fill: #5f4a17 } .free { fill: #3fb950 } .reference { fill: #9198a1 } .range { stroke: #f0f6fc }
    .grid { stroke: #3d444d }
  }
  text { font-family: -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif; font-size: 13px }
  .title { font-size: 18px; font-weight: 600 } .name { font-weight: 600 } .small { font-size: 11px }
  .figure { text-anchor: end; font-variant-numeric: tabular-nums }
"""


def picture(report: ScenarioReport) -> str:
    """Return the SVG: a bar for each policy, how far the seeds are apart on it, and the other figures beside it."""
    height = _HEAD + _ROW * len(report.policies) + _FOOT
    title = f"{report.scenario}: whole GPUs free, by allocation policy"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            ' role="img" aria-labelledby="title description">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="description">{escape("; ".join(map(_sentence, report.policies)))}</desc>',
            f"<style>{_STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}" rx="8"/>',
            *_head(report),
            *(line for at, each in enumerate(report.policies) for line in _row(each, report, _HEAD + _ROW * at)),
            *_axis(report, height - _FOOT),
            *_foot(report, height - _FOOT + 44),
            "</svg>",
            "",
        ]
    )


def _sentence(result: PolicyResult) -> str:
    return f"{result.policy}: {result.free_gpus.median:.2f} of ideally {result.ideal_free_gpus.median:.2f}"


def _text(x: float, y: float, text: str, style: str = "text") -> str:
    return f'<text class="{style}" x="{x:g}" y="{y:g}">{escape(text)}</text>'


def _head(report: ScenarioReport) -> Iterator[str]:
    ids = ", ".join(f"{count:,} × {name}" for name, count in report.resources.items())
    yield _text(_LEFT, 38, report.scenario, "text title")
    yield _text(_LEFT, 60, f"{report.gpus} GPUs, {ids}; seeds: {len(report.seeds)}", "quiet")
    yield _text(_LEFT, 92, "WHOLE GPUS FREE", "quiet small")
    for name, x in _COLUMNS:
        yield _text(x, 92, name, "quiet small figure")


def _ticks(report: ScenarioReport) -> range:
    """Return the numbers of GPUs to mark: each, or every few of many."""
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000) if report.gpus <= 16 * step)
    return range(0, report.gpus + 1, step)


def _axis(report: ScenarioReport, y: float) -> Iterator[str]:
    for gpus in _ticks(report):
        yield f'<text class="quiet small" x="{_at(gpus, report):g}" y="{y:g}" text-anchor="middle">{gpus}</text>'


def _at(gpus: float, report: ScenarioReport) -> float:
    return round(_LEFT + _TRACK * gpus / max(report.gpus, 1), 1)


def _row(result: PolicyResult, report: ScenarioReport, top: float) -> Iterator[str]:
    free, ideal, y = result.free_gpus, result.ideal_free_gpus, top + 24
    kind = "reference" if result.reference else "free"
    yield _text(_LEFT, top + 16, result.policy, "text name")
    ticks = "".join(f"M{_at(gpus, report):g} {y - 3:g}v{_BAR + 6}" for gpus in _ticks(report))
    yield f'<path class="grid" d="{ticks}"/>'
    yield _rect("track", _LEFT, y, _TRACK)
    yield _rect("ideal", _LEFT, y, _at(ideal.median, report) - _LEFT)
    yield _rect(kind, _LEFT, y, _at(free.median, report) - _LEFT)
    if free.lowest < free.highest:
        low, high, middle = _at(free.lowest, report), _at(free.highest, report), y + _BAR / 2
        yield f'<path class="range" fill="none" d="M{low:g} {y + 4}v8M{low:g} {middle:g}H{high:g}M{high:g} {y + 4}v8"/>'
    for (_, x), figure in zip(_COLUMNS, (_beside(result), *_left(result)), strict=True):
        yield _text(x, y + 13, figure, "text figure")


def _rect(style: str, x: float, y: float, width: float) -> str:
    return f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{round(width, 1):g}" height="{_BAR}" rx="2"/>'


def _beside(result: PolicyResult) -> str:
    text = f"{result.free_gpus.median:.2f} of {result.ideal_free_gpus.median:.2f}"
    return f"{text}, {100 * result.of_ideal.median:.0f} %" if result.of_ideal else text


def _left(result: PolicyResult) -> tuple[str, str, str]:
    split = "–" if result.split_part is None else f"{100 * result.split_part:.0f} %"
    return (
        split,
        _joined(each.stranded for each in result.resources),
        _joined(each.largest for each in result.resources),
    )


def _joined(values: Iterable[SeedValues]) -> str:
    return " / ".join(f"{each.median:.1f}" for each in values)


def _foot(report: ScenarioReport, y: float) -> Iterator[str]:
    yield _rect("free", _LEFT, y - 12, 16)
    yield _text(_LEFT + 22, y + 1, "free", "quiet small")
    yield _rect("ideal", _LEFT + 62, y - 12, 16)
    yield _text(_LEFT + 84, y + 1, "free if all pods were packed anew", "quiet small")
    if any(result.reference for result in report.policies):
        yield _rect("reference", _LEFT + 282, y - 12, 16)
        yield _text(_LEFT + 304, y + 1, "NVIDIA's way, for comparison", "quiet small")
    seeds = f"median of {len(report.seeds)} seeds and their range" if len(report.seeds) > 1 else "one seed"
    text = f"Means over time; {seeds}. SPLIT: of pods that one GPU could have held. STRANDED: free ids on GPUs in use."
    yield _text(_LEFT, y + 26, text, "quiet small")
