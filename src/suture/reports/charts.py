"""Small charts as SVG inside the page: their colours are the page's own, so they follow its light and dark."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

WIDTH, HEIGHT = 460, 220
WIDE = 960
"""The width of what goes over a whole video."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 10, 34
STYLES = 6
"""Colours and dashes that tell runs apart; more runs than that begin anew."""
_POINTS = 300
"""Longer curves are averaged to so many points."""


@dataclass(frozen=True)
class Series:
    """A line of the chart; `run` gives its colour and dashes."""

    name: str
    run: int
    x: Sequence[float]
    y: Sequence[float]
    dots: tuple[Sequence[float], Sequence[float]] = ((), ())
    """Single measurements behind the line."""


def line_chart(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    y_range: tuple[float, float] | None = None,
    *,
    x_range: tuple[float, float] | None = None,
    width: int = WIDTH,
    height: int = HEIGHT,
    cuts: Sequence[int] = (),
) -> Markup:
    """Lines over a common x; every point says its values when pointed at. A line breaks where a value is missing."""
    xs = np.concatenate([np.asarray([*s.x, *s.dots[0]], float) for s in series])
    ys = np.concatenate([np.asarray([*s.y, *s.dots[1]], float) for s in series])
    ys = ys[np.isfinite(ys)]
    if not len(xs) or not len(ys):
        return Markup("")
    room = 0.5 if any(len(s.dots[0]) for s in series) else 0.0
    x_range = x_range or (float(xs.min()) - room, float(xs.max()) + room)
    axes = _Axes(x_range, y_range or (float(ys.min()), float(ys.max())), width, height)
    if y_range is None:
        axes.y = axes.y_ticks[0], axes.y_ticks[-1]
    parts = axes.grid(x_label) + axes.cuts(cuts)
    for one in series:
        for x, y in zip(*one.dots, strict=True):
            parts.append(
                f'<circle class="dot run{one.run % STYLES}" cx="{axes.at_x(x):.1f}" cy="{axes.at_y(y):.1f}" r="2"/>'
            )
    for one in series:
        points = list(zip(*_thinned(one.x, one.y), strict=True))
        parts.append(f'<path class="line run{one.run % STYLES}" d="{axes.path(points)}"/>')
        known = [(x, y) for x, y in points if np.isfinite(y)]
        kind = "point" if len(known) > 1 else "point lone"
        for x, y in known:
            said = f"{escape(one.name)}, {escape(x_label)} {x:g}: {y:.3g}"
            at = f'cx="{axes.at_x(x):.1f}" cy="{axes.at_y(y):.1f}"'
            parts.append(f'<circle class="{kind} run{one.run % STYLES}" {at} r="5"><title>{said}</title></circle>')
    return _svg(width, height, f"{title}: {y_label} over {x_label}", parts)


def area_chart(
    title: str,
    x: Sequence[float],
    shares: np.ndarray,
    names: Sequence[str],
    x_label: str,
    *,
    x_range: tuple[float, float] | None = None,
    width: int = WIDE,
    height: int = HEIGHT,
    cuts: Sequence[int] = (),
) -> Markup:
    """Shares of the classes (N × classes, adding up to 1) stacked in percent over x, the first class at the bottom."""
    axes = _Axes(x_range or (min(x), max(x)), (0, 100), width, height)
    over_time = 100 * np.stack([_thinned(x, column)[1] for column in shares.T], axis=1)
    places = _thinned(x, x)[0]
    tops = np.cumsum(over_time, axis=1)
    parts = []
    for number, name in enumerate(names):
        upper = tops[:, number]
        lower = upper - over_time[:, number]
        if not over_time[:, number].any():
            continue
        outline = [*zip(places, upper, strict=True), *reversed(list(zip(places, lower, strict=True)))]
        said = f"{escape(name)}: {over_time[:, number].mean():.1f}% on average"
        style = f"fill: var(--class{number})"
        parts.append(f'<path class="area" style="{style}" d="{axes.path(outline)}Z"><title>{said}</title></path>')
    return _svg(
        width, height, f"{title}: share of the view over {x_label}", parts + axes.grid(x_label) + axes.cuts(cuts)
    )


def scatter(title: str, points: np.ndarray, classes: np.ndarray, side: int = 400) -> Markup:
    """Points (N × 2) in the colours of their classes; a class is one path, so that the page can show and hide it."""
    middle = (points.max(0) + points.min(0)) / 2
    extent = max(float(np.ptp(points, axis=0).max()), 1e-9)
    at = (points - middle) / extent * (side - 24) + side / 2
    parts = []
    for number in np.unique(classes):
        dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in at[classes == number])
        parts.append(
            f'<g class="cloud" data-class="{number}"><path class="rim" d="{dots}"/>'
            f'<path style="stroke: var(--class{number})" d="{dots}"/></g>'
        )
    return _svg(side, side, title, parts, "scatter")


class _Axes:
    """Where values lie in a chart, and the lines and numbers around them."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], width: int, height: int) -> None:
        self.width, self.height = width, height
        self.x_ticks, self.y_ticks = _ticks(*x, whole=True, most=width // 90), _ticks(*y, most=max(2, height // 44))
        self.x, self.y = x if x[1] > x[0] else (x[0], x[0] + 1), y

    def at_x(self, value: float) -> float:
        low, high = self.x
        return _LEFT + (value - low) / (high - low) * (self.width - _LEFT - _RIGHT)

    def at_y(self, value: float) -> float:
        low, high = self.y
        return self.height - _BOTTOM - (value - low) / ((high - low) or 1) * (self.height - _TOP - _BOTTOM)

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        """A line through the points, lifted where one is missing."""
        parts, begun = [], False
        for x, y in points:
            if np.isfinite(y):
                parts.append(f"{'L' if begun else 'M'}{self.at_x(x):.1f} {self.at_y(y):.1f}")
            begun = bool(np.isfinite(y))
        return "".join(parts)

    def grid(self, x_label: str) -> list[str]:
        parts = []
        for tick in self.y_ticks:
            if self.y[0] <= tick <= self.y[1]:
                at = self.at_y(tick)
                parts.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{self.width - _RIGHT}"/>')
                parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{tick:g}</text>')
        below = self.height - _BOTTOM
        for tick in self.x_ticks:
            if self.x[0] <= tick <= self.x[1]:
                parts.append(f'<text x="{self.at_x(tick):.1f}" y="{below + 16}" text-anchor="middle">{tick:g}</text>')
        parts.append(f'<path class="axis" d="M{_LEFT} {below}H{self.width - _RIGHT}"/>')
        label = f'<text x="{self.width - _RIGHT}" y="{self.height - 3}" text-anchor="end">{escape(x_label)}</text>'
        return [*parts, label]

    def cuts(self, cuts: Sequence[int]) -> list[str]:
        """Lines where a shot begins."""
        return [
            f'<path class="cut thin" d="M{self.at_x(cut - 0.5):.1f} {_TOP}V{self.height - _BOTTOM}">'
            f"<title>cut: frame {cut} begins a shot</title></path>"
            for cut in cuts
        ]


def timeline(
    name: str,
    length: int,
    starts: Sequence[int],
    labelled: Sequence[int],
    excluded: Sequence[int],
    curve: tuple[Sequence[int], np.ndarray, np.ndarray, np.ndarray] | None = None,
) -> Markup:
    """A video from left to right: its shots, labelled and excluded frames, and above them the curve the cuts are from.

    `curve` is frame indices, the change to the frame before each, what it has to exceed to be a cut, and whether
    excluded frames lie between the two.
    """
    width, top, height = WIDE, 64 if curve else 4, 16
    bottom = top + height

    def at(index: float) -> float:
        return index / max(1, length) * width

    parts = []
    ends = [*starts[1:], length]
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        said = f"shot {number + 1}: frames {start} to {end - 1}"
        parts.append(
            f'<rect class="shot{number % 2}" x="{at(start):.1f}" y="{top}" width="{at(end) - at(start):.1f}" '
            f'height="{height}"><title>{said}</title></rect>'
        )
    for index in excluded:
        parts.append(
            f'<rect class="excluded" x="{at(index):.1f}" y="{top}" width="{at(1):.1f}" height="{height}">'
            f"<title>frame {index}: excluded</title></rect>"
        )
    if curve is not None:
        indices, change, threshold, torn = curve
        highest = max(float(np.max(threshold, initial=0)), float(np.max(change, initial=0)), 1e-6)
        for kind, values in (("threshold", threshold), ("change", change)):
            path = "".join(
                # The lines do not run across excluded frames.
                f"{'M' if place == 0 or apart else 'L'}{at(index):.1f} {top - 4 - value / highest * (top - 8):.1f}"
                for place, (index, value, apart) in enumerate(zip(indices, values, torn, strict=True))
            )
            parts.append(f'<path class="{kind}" d="{path}"/>' if path else "")
    for start in starts[1:]:
        parts.append(
            f'<path class="cut" d="M{at(start):.1f} 0V{bottom}"><title>cut: frame {start} begins a shot</title></path>'
        )
    for index in labelled:
        x = at(index + 0.5)
        parts.append(
            f'<path class="labelled" d="M{x:.1f} {bottom + 1}l5 9h-10z"><title>frame {index}: labelled</title></path>'
        )
    said = f"{name}: {length} frames, {len(starts)} shots, {len(labelled)} labelled"
    return _svg(width, bottom + 12, said, parts, "timeline")


def _svg(width: int, height: int, label: str, parts: Sequence[str], kind: str = "chart") -> Markup:
    return Markup(
        f'<svg class="{kind}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _ticks(low: float, high: float, whole: bool = False, most: int = 5) -> list[float]:
    locator = MaxNLocator(most, integer=whole, steps=[1, 2, 2.5, 5, 10])
    return [float(value) for value in locator.tick_values(low, high if high > low else low + 1)]


def _thinned(x: Sequence[float], y: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Means of neighbours, so that a long curve stays small and can be read; NaN where all of them are."""
    groups = np.array_split(np.arange(len(x)), min(len(x), _POINTS)) if len(x) else []
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    known = [ys[group][np.isfinite(ys[group])] for group in groups]
    return (
        np.array([xs[group].mean() for group in groups]),
        np.array([values.mean() if len(values) else np.nan for values in known]),
    )
