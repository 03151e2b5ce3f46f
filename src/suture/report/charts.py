"""Small charts as SVG inside the page: their colours are the page's own, so they follow its light and dark."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

WIDTH, HEIGHT = 460, 220
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
    title: str, series: Sequence[Series], x_label: str, y_label: str, y_range: tuple[float, float] | None = None
) -> Markup:
    """Lines over a common x; every point says its values when pointed at."""
    xs = np.concatenate([np.asarray([*s.x, *s.dots[0]], float) for s in series])
    ys = np.concatenate([np.asarray([*s.y, *s.dots[1]], float) for s in series])
    ys = ys[np.isfinite(ys)]
    if not len(xs) or not len(ys):
        return Markup("")
    x_ticks = _ticks(float(xs.min()), float(xs.max()), whole=True)
    y_ticks = _ticks(*(y_range or (float(ys.min()), float(ys.max()))))
    x0, x1 = min(x_ticks[0], float(xs.min())), max(x_ticks[-1], float(xs.max()))
    y0, y1 = y_range or (y_ticks[0], y_ticks[-1])

    def at_x(value: float) -> float:
        return _LEFT + (value - x0) / ((x1 - x0) or 1) * (WIDTH - _LEFT - _RIGHT)

    def at_y(value: float) -> float:
        return HEIGHT - _BOTTOM - (value - y0) / ((y1 - y0) or 1) * (HEIGHT - _TOP - _BOTTOM)

    parts = []
    for tick in y_ticks:
        if y0 <= tick <= y1:
            parts.append(f'<path class="grid" d="M{_LEFT} {at_y(tick):.1f}H{WIDTH - _RIGHT}"/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{at_y(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in x_ticks:
        if x0 <= tick <= x1:
            parts.append(f'<text x="{at_x(tick):.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{tick:g}</text>')
    parts.append(f'<path class="axis" d="M{_LEFT} {HEIGHT - _BOTTOM}H{WIDTH - _RIGHT}"/>')
    parts.append(f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 3}" text-anchor="end">{escape(x_label)}</text>')
    for one in series:
        for x, y in zip(*one.dots, strict=True):
            parts.append(f'<circle class="dot run{one.run % STYLES}" cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="2"/>')
    for one in series:
        x_mean, y_mean = _thinned(one.x, one.y)
        points = [(x, y, at_x(x), at_y(y)) for x, y in zip(x_mean, y_mean, strict=True) if np.isfinite(y)]
        path = "L".join(f"{left:.1f} {top:.1f}" for _, _, left, top in points)
        parts.append(f'<path class="line run{one.run % STYLES}" d="M{path}"/>' if points else "")
        kind = "point" if len(points) > 1 else "point lone"
        for x, y, left, top in points:
            said = f"{escape(one.name)}, {escape(x_label)} {x:g}: {y:.3g}"
            circle = f'<circle class="{kind} run{one.run % STYLES}" cx="{left:.1f}" cy="{top:.1f}" r="5">'
            parts.append(f"{circle}<title>{said}</title></circle>")
    return _svg(WIDTH, HEIGHT, f"{title}: {y_label} over {x_label}", parts)


def timeline(
    name: str,
    length: int,
    starts: Sequence[int],
    labelled: Sequence[int],
    excluded: Sequence[int],
    curve: tuple[Sequence[int], np.ndarray, np.ndarray] | None = None,
) -> Markup:
    """A video from left to right: its shots, labelled and excluded frames, and above them the curve the cuts are from.

    `curve` is frame indices, the change to the frame before each, and what it has to exceed to be a cut.
    """
    width, top, height = 960, 64 if curve else 4, 16
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
        indices, change, threshold = curve
        highest = max(float(np.max(threshold, initial=0)), float(np.max(change, initial=0)), 1e-6)
        for kind, values in (("threshold", threshold), ("change", change)):
            path = "L".join(
                f"{at(index):.1f} {top - 4 - value / highest * (top - 8):.1f}"
                for index, value in zip(indices, values, strict=True)
            )
            parts.append(f'<path class="{kind}" d="M{path}"/>' if path else "")
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


def _ticks(low: float, high: float, whole: bool = False) -> list[float]:
    values = MaxNLocator(5, integer=whole, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high if high > low else low + 1)
    return [float(value) for value in values]


def _thinned(x: Sequence[float], y: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Means of neighbours, so that a long curve stays small and can be read."""
    groups = np.array_split(np.arange(len(x)), min(len(x), _POINTS)) if len(x) else []
    xs, ys = np.asarray(x, float), np.asarray(y, float)
    return np.array([xs[group].mean() for group in groups]), np.array([ys[group].mean() for group in groups])
