"""Charts as SVG inside the page, in the theme's colours for light and dark."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

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
    y_range: tuple[float, float] | None = None,
    *,
    x_range: tuple[float, float] | None = None,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    cuts: Sequence[int] = (),
) -> Markup:
    """Draw lines over a common x; each point shows its values on hover, and missing values leave gaps."""
    xs = np.concatenate([np.asarray([*one.x, *one.dots[0]], float) for one in series])
    ys = np.concatenate([np.asarray([*one.y, *one.dots[1]], float) for one in series])
    ys = ys[np.isfinite(ys)]
    if not len(xs) or not len(ys):
        return Markup("")
    margin = 0.5 if any(len(one.dots[0]) for one in series) else 0.0
    x_range = x_range or (float(xs.min()) - margin, float(xs.max()) + margin)
    axes = _Axes(x_range, y_range or (float(ys.min()), float(ys.max())), *size)
    if y_range is None:
        axes.y = axes.y_ticks[0], axes.y_ticks[-1]
    parts = axes.grid(x_label, cuts)
    for one in series:
        for x, y in zip(*one.dots, strict=True):
            parts.append(_element("circle", f"dot run{one.run % RUN_STYLES}", cx=axes.at_x(x), cy=axes.at_y(y), r=2))
    for one in series:
        style = f"run{one.run % RUN_STYLES}"
        points = list(zip(*_downsample(one.x, one.y), strict=True))
        parts.append(_element("path", f"line {style}", d=axes.path(points)))
        finite = [(x, y) for x, y in points if np.isfinite(y)]
        kind = "point" if len(finite) > 1 else "point lone"
        for x, y in finite:
            text = f"{one.name}, {x_label} {x:g}: {y:.3g}"
            parts.append(_element("circle", f"{kind} {style}", text, cx=axes.at_x(x), cy=axes.at_y(y), r=5))
    return _svg(*size, f"{title}: {y_label} over {x_label}", parts)


def area_chart(
    title: str,
    x: Sequence[float],
    shares: np.ndarray,
    names: Sequence[str],
    *,
    x_range: tuple[float, float],
    cuts: Sequence[int] = (),
) -> Markup:
    """Stack the shares of the classes (N × classes, sum 1) in percent over frames, the first class at the bottom."""
    axes = _Axes(x_range, (0, 100), WIDE, AREA_HEIGHT)
    percents = 100 * np.stack([_downsample(x, column)[1] for column in shares.T], axis=1)
    places = _downsample(x, x)[0]
    tops = np.cumsum(percents, axis=1)
    parts = []
    for number, name in enumerate(names):
        if percents[:, number].any():
            upper, lower = tops[:, number], tops[:, number] - percents[:, number]
            outline = [*zip(places, upper, strict=True), *reversed(list(zip(places, lower, strict=True)))]
            text = f"{name}: {percents[:, number].mean():.1f}% on average"
            parts.append(
                _element("path", "area", text, style=f"fill: var(--class{number})", d=axes.path(outline) + "Z")
            )
    parts += axes.grid("frame", cuts)
    return _svg(WIDE, AREA_HEIGHT, f"{title}: share of the view over frames", parts)


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
    return _svg(side, side, title, parts, "scatter")


class _Axes:
    """Coordinates of a chart, with its grid and labels."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], width: int, height: int) -> None:
        self.width, self.height = width, height
        self.x_ticks, self.y_ticks = _ticks(*x, whole=True, most=width // 90), _ticks(*y, most=max(2, height // 44))
        self.x, self.y = x if x[1] > x[0] else (x[0], x[0] + 1), y

    def at_x(self, value: float) -> float:
        low, high = self.x
        return float(LEFT + (value - low) / (high - low) * (self.width - LEFT - RIGHT))

    def at_y(self, value: float) -> float:
        low, high = self.y
        return float(self.height - BOTTOM - (value - low) / ((high - low) or 1) * (self.height - TOP - BOTTOM))

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        """Join points by lines, with a gap at missing ones."""
        parts, is_drawing = [], False
        for x, y in points:
            if np.isfinite(y):
                parts.append(f"{'L' if is_drawing else 'M'}{self.at_x(x):.1f} {self.at_y(y):.1f}")
            is_drawing = bool(np.isfinite(y))
        return "".join(parts)

    def grid(self, x_label: str, cuts: Sequence[int]) -> list[str]:
        """Draw ticks and labels, and a line where each shot begins."""
        below, right = self.height - BOTTOM, self.width - RIGHT
        parts = []
        for tick in self.y_ticks:
            if self.y[0] <= tick <= self.y[1]:
                at = self.at_y(tick)
                parts += [
                    _element("path", "grid", d=f"M{LEFT} {at:.1f}H{right}"),
                    _label(tick, LEFT - 6, at + 4, "end"),
                ]
        for tick in self.x_ticks:
            if self.x[0] <= tick <= self.x[1]:
                parts.append(_label(tick, self.at_x(tick), below + 16, "middle"))
        for cut in cuts:
            line = f"M{self.at_x(cut - 0.5):.1f} {TOP}V{below}"
            parts.append(_element("path", "cut", f"cut: frame {cut} begins a shot", d=line))
        axis = _element("path", "axis", d=f"M{LEFT} {below}H{right}")
        return [*parts, axis, _label(x_label, right, self.height - 3, "end")]


def _element(tag: str, kind: str = "", title: str = "", **attributes: Any) -> str:
    """Write an SVG element with its class and its text on hover."""
    values = {"class": kind, **attributes} if kind else attributes
    text = "".join(
        f' {key}="{value:.1f}"' if isinstance(value, float) else f' {key}="{value}"' for key, value in values.items()
    )
    return f"<{tag}{text}>{f'<title>{escape(title)}</title>' if title else ''}</{tag}>"


def _label(text: str | float, x: float, y: float, anchor: str) -> str:
    text = escape(text) if isinstance(text, str) else f"{text:g}"
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _svg(width: int, height: int, label: str, parts: Sequence[str], kind: str = "chart") -> Markup:
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _ticks(low: float, high: float, whole: bool = False, most: int = 5) -> list[float]:
    locator = MaxNLocator(most, integer=whole, steps=[1, 2, 2.5, 5, 10])
    return [float(value) for value in locator.tick_values(low, high if high > low else low + 1)]


def _downsample(x: Sequence[float], y: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Average neighbouring points of a long curve; NaN where all of them are missing."""
    groups = np.array_split(np.arange(len(x)), min(len(x), MAX_CURVE_POINTS)) if len(x) else []
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    finite = [ys[group][np.isfinite(ys[group])] for group in groups]
    return (
        np.array([xs[group].mean() for group in groups]),
        np.array([values.mean() if len(values) else np.nan for values in finite]),
    )
