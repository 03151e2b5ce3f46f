"""Charts as SVG inside the page, in the theme's colours for light and dark."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from suture.evaluation.metrics import mean

WIDTH, HEIGHT = 460, 220
WIDE, AREA_HEIGHT = 960, 190
"""Size of charts over a whole video."""
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 10, 34
"""Margins of the plotted area."""
RUN_STYLES = 6
"""Number of different colours and dashes for runs; further runs repeat them."""
MAX_CURVE_POINTS = 300
"""Longer curves are averaged down to this number of points."""


@dataclass(frozen=True)
class Series:
    """One line of a chart; `run` is the number that selects its colour and dashes."""

    name: str
    run: int
    x: Sequence[float]
    y: Sequence[float]
    dots: tuple[Sequence[float], Sequence[float]] = ((), ())
    """x and y of single measurements behind the line."""


def run_label(title: str, number: int) -> Markup:
    """Write a run's title behind a dot in its colour."""
    return Markup('<span class="run"><i class="key run{}"></i>{}</span>').format(number % RUN_STYLES, title)


def line_chart(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> Markup:
    """Draw lines over a common x; each point shows its values on hover, and missing values leave gaps.

    The axes fit the values.
    """
    places = [(x, y) for one in series for x, y in (*zip(one.x, one.y, strict=True), *zip(*one.dots, strict=True))]
    xs, ys = np.array([place for place in places if np.isfinite(place[1])], float).reshape(-1, 2).T
    if not len(xs):
        return Markup("")
    axes = _Axes((xs.min(), xs.max()), (ys.min(), ys.max()), size)
    parts = axes.grid(x_label)
    for one in series:
        style = f"run{one.run % RUN_STYLES}"
        parts += [axes.dot(f"dot {style}", x, y, radius=2) for x, y in zip(*one.dots, strict=True)]
        points = _downsample(one.x, one.y)
        parts.append(_element("path", f"line {style}", d=axes.path(points)))
        finite = [(x, y) for x, y in points if np.isfinite(y)]
        kind = f"point {style}" if len(finite) > 1 else f"point lone {style}"
        parts += [axes.dot(kind, x, y, f"{one.name}, {x_label} {x:g}: {y:.3g}", radius=5) for x, y in finite]
    return _svg(size, f"{title}: {y_label} over {x_label}", parts)


def area_chart(title: str, x: Sequence[float], shares: np.ndarray, names: Sequence[str]) -> Markup:
    """Stack the shares of the classes (N × classes) in percent over frames, the first class at the bottom.

    The background is left out: it would hide how the other classes change.
    """
    shown = shown_classes(shares, names)
    tops = [_downsample(x, column) for column in 100 * np.cumsum(shares[:, shown], axis=1).T]
    highest = max((y for top in tops for _, y in top), default=1.0)
    axes = _Axes((min(x), max(x)), (0, highest), (WIDE, AREA_HEIGHT))
    parts = []
    below = [(place, 0.0) for place, _ in _downsample(x, x)]
    for number, top in zip(shown, tops, strict=True):
        text = f"{names[number]}: {100 * shares[:, number].mean():.1f}% on average"
        outline = axes.path([*top, *reversed(below)]) + "Z"
        parts.append(_element("path", "area", text, style=f"fill: var(--class{number})", d=outline))
        below = top
    return _svg((WIDE, AREA_HEIGHT), f"{title}: share of the view over frames", parts + axes.grid("frame"))


def shown_classes(shares: np.ndarray, names: Sequence[str]) -> list[int]:
    """Return the classes of an area chart: those that cover something, without the background."""
    covering = np.flatnonzero(shares.any(axis=0)).tolist()
    return [number for number in covering if not names[number].startswith("background")]


def scatter(title: str, points: np.ndarray, classes: np.ndarray, side: int = 400) -> Markup:
    """Draw points (N × 2) in the colours of their classes; each class is a group that the page can hide."""
    middle = (points.max(0) + points.min(0)) / 2
    extent = max(float(np.ptp(points, axis=0).max()), 1e-9)
    at = (points - middle) / extent * (side - 24) + side / 2
    parts = []
    for number in np.unique(classes):
        dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in at[classes == number])
        rim, cloud = _element("path", "rim", d=dots), _element("path", style=f"stroke: var(--class{number})", d=dots)
        parts.append(f'<g class="cloud" data-class="{number}">{rim}{cloud}</g>')
    return _svg((side, side), title, parts, "scatter")


class _Axes:
    """Coordinates of a chart, with its grid and labels; y reaches to the next ticks."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], size: tuple[int, int]) -> None:
        self.right, self.below = size[0] - RIGHT, size[1] - BOTTOM
        self.x_ticks, self.y_ticks = _ticks(*x, whole=True, most=size[0] // 90), _ticks(*y, most=max(2, size[1] // 44))
        self.x = x if x[1] > x[0] else (x[0] - 0.5, x[0] + 0.5)
        self.y = self.y_ticks[0], self.y_ticks[-1]

    def at_x(self, value: float) -> float:
        low, high = self.x
        return float(LEFT + (value - low) / (high - low) * (self.right - LEFT))

    def at_y(self, value: float) -> float:
        low, high = self.y
        return float(self.below - (value - low) / (high - low) * (self.below - TOP))

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        """Join points by lines, with a gap at missing ones."""
        parts, is_drawing = [], False
        for x, y in points:
            if np.isfinite(y):
                parts.append(f"{'L' if is_drawing else 'M'}{self.at_x(x):.1f} {self.at_y(y):.1f}")
            is_drawing = bool(np.isfinite(y))
        return "".join(parts)

    def dot(self, kind: str, x: float, y: float, title: str = "", radius: int = 2) -> str:
        return _element("circle", kind, title, cx=self.at_x(x), cy=self.at_y(y), r=radius)

    def grid(self, x_label: str) -> list[str]:
        """Draw ticks and labels."""
        parts = []
        for tick in self.y_ticks:
            at = self.at_y(tick)
            parts.append(_element("path", "grid", d=f"M{LEFT} {at:.1f}H{self.right}"))
            parts.append(_label(f"{tick:g}", LEFT - 6, at + 4, "end"))
        for tick in self.x_ticks:
            if self.x[0] <= tick <= self.x[1]:
                parts.append(_label(f"{tick:g}", self.at_x(tick), self.below + 16, "middle"))
        axis = _element("path", "axis", d=f"M{LEFT} {self.below}H{self.right}")
        return [*parts, axis, _label(x_label, self.right, self.below + BOTTOM - 3, "end")]


def _element(tag: str, kind: str = "", title: str = "", **attributes: Any) -> str:
    """Write an SVG element with its class and its text on hover."""
    values = {"class": kind, **attributes} if kind else attributes
    text = "".join(
        f' {key}="{value:.1f}"' if isinstance(value, float) else f' {key}="{value}"' for key, value in values.items()
    )
    return f"<{tag}{text}>{f'<title>{escape(title)}</title>' if title else ''}</{tag}>"


def _label(text: str, x: float, y: float, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(size: tuple[int, int], label: str, parts: Sequence[str], kind: str = "chart") -> Markup:
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 {size[0]} {size[1]}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _ticks(low: float, high: float, whole: bool = False, most: int = 5) -> list[float]:
    locator = MaxNLocator(most, integer=whole, steps=[1, 2, 2.5, 5, 10])
    return [float(value) for value in locator.tick_values(low, high if high > low else low + 1)]


def _downsample(x: Sequence[float], y: Sequence[float]) -> list[tuple[float, float]]:
    """Average neighbouring points of a long curve; NaN where all of them are missing."""
    groups = np.array_split(np.arange(len(x)), min(max(1, len(x)), MAX_CURVE_POINTS))
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    return [(float(xs[group].mean()), float(mean(ys[group]))) for group in groups if len(group)]
