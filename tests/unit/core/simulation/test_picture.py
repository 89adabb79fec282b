"""The picture of a comparison: one SVG, true to the figures."""

from xml.etree import ElementTree

import pytest
from tests.unit.core.simulation.making import make_scenario

from gpusharing.api.scenarioreport import PolicyResult, ResourceResult, ScenarioReport, SeedValues
from gpusharing.core.simulation.comparison import simulate
from gpusharing.core.simulation.picture import picture

SVG = "{http://www.w3.org/2000/svg}"


def values(median: float, lowest: float = 0.0, highest: float = 0.0) -> SeedValues:
    return SeedValues(median=median, lowest=lowest or median, highest=highest or median)


def report(*policies: PolicyResult, scenario: str = "test", gpus: int = 8) -> ScenarioReport:
    return ScenarioReport(
        scenario=scenario,
        gpus=gpus,
        resources={"nvidia.com/gpu": 32},
        duration=10,
        measured_from=2,
        seeds=[0, 1],
        policies=list(policies),
    )


def result(policy: str, free: SeedValues, ideal: float, *, reference: bool = False) -> PolicyResult:
    resources = [ResourceResult(resource="nvidia.com/gpu", stranded=values(1.5), largest=values(4))]
    return PolicyResult(
        policy=policy,
        reference=reference,
        free_gpus=free,
        ideal_free_gpus=values(ideal),
        of_ideal=values(free.median / ideal),
        could_stay_together=50,
        split_needlessly=20,
        resources=resources,
        pods=100,
        waited=0,
        refused=0,
    )


def drawn(svg: str, style: str) -> float:
    """The width of the first bar of a style."""
    bars = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    return next(float(bar.attrib["width"]) for bar in bars if bar.get("class") == style)


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_bars_are_as_long_as_the_figures_say() -> None:
    svg = picture(report(result("packed", values(3), 4), result("nvidia-packed", values(1), 4, reference=True)))
    parts = {style: drawn(svg, style) / drawn(svg, "track") for style in ("free", "ideal", "reference")}
    assert parts == pytest.approx({"free": 3 / 8, "ideal": 4 / 8, "reference": 1 / 8}, abs=1e-3)


def test_the_figures_stand_beside_the_bars() -> None:
    found = texts(picture(report(result("packed", values(3, 2.5, 3.5), 4))))
    assert {"packed", "3.00 of 4.00, 75 %", "40 %", "1.5", "4.0"} <= set(found)
    assert "median of 2 seeds" in found[-1]


def test_where_the_seeds_are_apart_a_line_shows_how_far() -> None:
    apart, alike = (picture(report(result("packed", each, 4))) for each in (values(3, 2, 4), values(3)))
    assert apart.count('class="range"') == 1
    assert 'class="range"' not in alike


def test_it_needs_nothing_else_and_has_a_title_for_those_who_do_not_see_it() -> None:
    svg = picture(report(result("packed", values(3), 4)))
    assert svg.count("http") == 1
    root = ElementTree.fromstring(svg)
    assert root.findtext(f"{SVG}title") == "test: whole GPUs free, by allocation policy"
    assert root.findtext(f"{SVG}desc") == "packed: 3.00 of ideally 4.00"


def test_a_name_cannot_break_out_of_it() -> None:
    svg = picture(report(result("packed", values(3), 4), scenario='</text><script>"&'))
    assert '</text><script>"&' in texts(svg)
    assert "<script>" not in svg


def test_of_many_gpus_every_few_are_marked() -> None:
    svg = picture(report(result("packed", values(300), 400), gpus=800))
    assert [text for text in texts(svg) if text.isdigit()] == [str(gpus) for gpus in range(0, 801, 50)]


def test_a_scenario_in_which_nothing_happens_has_one_too() -> None:
    assert ElementTree.fromstring(picture(simulate(make_scenario(events=[])))).tag == f"{SVG}svg"
