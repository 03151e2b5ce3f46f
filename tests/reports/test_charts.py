"""Charts: well-formed, inside their frame, and honest about what is missing."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from suture.reports.charts import Series, area_chart, line_chart, scatter


def numbers(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)]


def test_a_line_breaks_where_a_value_is_missing() -> None:
    chart = line_chart("title", [Series("run", 0, [0, 1, 2, 3], [1.0, np.nan, 2.0, 3.0])], "step", "loss")
    line = next(part for part in ElementTree.fromstring(chart) if part.get("class") == "line run0")
    assert line.get("d", "").count("M") == 2
    assert len(ElementTree.fromstring(chart).findall("circle")) == 3


def test_nothing_known_is_nothing_drawn() -> None:
    assert line_chart("title", [Series("run", 0, [0, 1], [np.nan, np.nan])], "step", "loss") == ""


@pytest.mark.parametrize("count", [1, 2, 900])
def test_areas_fill_the_chart(count: int) -> None:
    shares = np.tile([0.8, 0.15, 0.0, 0.05], (count, 1))
    names = ["background", "x", "y", "z & co"]
    chart = ElementTree.fromstring(area_chart("a <b>", range(count), shares, names))
    areas = [part for part in chart if part.get("class") == "area"]
    assert len(areas) == 2, "what covers nothing is not drawn, nor is the background"
    assert min(y for _, y in numbers(areas[-1].get("d", ""))) == pytest.approx(10), "the axis ends at 20 %"
    assert "20" in [text.text for text in chart.iter("text")], "in percent, as all scores of the page"
    assert max(y for _, y in numbers(areas[0].get("d", ""))) == pytest.approx(190 - 34)


def test_points_stay_inside() -> None:
    points = np.random.default_rng(0).normal(size=(50, 2)) * [100, 1]
    chart = ElementTree.fromstring(scatter("title", points, np.arange(50) % 3, side=400))
    assert [part.get("data-class") for part in chart] == ["0", "1", "2"]
    places = [place for path in chart.iter("path") for place in numbers(path.get("d", ""))]
    assert len(places) == 2 * 50, "each with its rim"
    assert all(0 < value < 400 for place in places for value in place)
    same = scatter("title", np.zeros((3, 2)), np.zeros(3, int))
    assert "nan" not in same
