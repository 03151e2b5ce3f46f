"""Pictures of a comparison: the seeds of every method; of a sweep, a bar per point and one for each method beside."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import count, cycle
from typing import TYPE_CHECKING

import numpy as np

from suture.comparison.results import OVERALL, Board, Group, Row, mean_and_deviation
from suture.evaluation.titles import SETS, TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SWEPT, BESIDE = "#0072b2", "#9aa6b1"
LABELLINGS = (("#d55e00", "s"), ("#009e73", "^"), ("#0072b2", "o"))
"""Colour and shape; more labellings than that begin anew."""
ALL_LABELS = ("#5b6770", "D")


@dataclass(frozen=True)
class Picture:
    """A PNG with a name for its file and what it shows."""

    name: str
    caption: str
    png: bytes


def pictures(board: Board) -> Iterator[Picture]:
    """A picture for each labelling in which something is swept; one of all methods where nothing is."""
    swept = [group for group in board.groups if any(row.place.point and _scored(board, [row]) for row in group.rows)]
    for group in swept:
        yield Picture(
            _file_name("sweep", board.dataset, group.labelling),
            f"{board.title}, {group.title}: mean, standard deviation and each seed of the points of the sweep "
            "(blue) and of methods that are not swept (grey). The axes do not begin at zero.",
            _sweep(board, group),
        )
    if not swept and (sets := _scored(board, board.rows)):
        yield Picture(
            _file_name("scores", board.dataset),
            f"{board.title}: each seed of every method, and a line at the mean of several. The axes do not begin at "
            "zero.",
            _scores(board, sets),
        )


def told_apart(drawn: Sequence[Picture]) -> list[Picture]:
    """The pictures under names that differ, also where small and capital letters do not: a later one has a number."""
    named: dict[str, Picture] = {}
    for one in drawn:
        names = (one.name if number == 1 else f"{one.name}-{number}" for number in count(1))
        name = next(name for name in names if name.casefold() not in named)
        named[name.casefold()] = replace(one, name=name)
    return list(named.values())


def _file_name(*parts: str) -> str:
    """Of a picture, without its ending; a dataset may have any name.

    >>> _file_name("scores", "Nähte, 2. Serie")
    'scores-Nähte-2.-Serie'
    """
    return re.sub(r"[^\w.+-]+", "-", "-".join(parts))


def _scored(board: Board, rows: Sequence[Row]) -> list[str]:
    """The sets of which one of the rows has scores."""
    return [which for which in board.sets if any(row.values(which, OVERALL, board.primary) for row in rows)]


def _scores(board: Board, sets: Sequence[str]) -> bytes:
    methods = list(dict.fromkeys(row.place.method for row in board.rows))
    size = (1.8 + 3.6 * len(sets), 1.1 + len(methods) * (0.14 + 0.1 * len(board.groups)))
    figure = _panels(sets, size, lambda axes, which: _dots(axes, board, methods, which), sharey=True)
    first = figure.axes[0]
    for label in first.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() == board.proposed else "normal")
    figure.legend(*first.get_legend_handles_labels(), loc="outside lower right", ncols=4, fontsize=8, frameon=False)
    return _png(figure)


def _dots(axes: "Axes", board: Board, methods: Sequence[str], which: str) -> None:
    step = 0.75 / len(board.groups)
    rows = {name: [row for row in board.rows if row.place.method == name] for name in methods}
    styles = cycle(LABELLINGS)
    for group in board.groups:
        color, shape = ALL_LABELS if group.labelling == "all" else next(styles)
        axes.plot([], [], shape, color=color, markersize=4, label=f"{group.title} ({group.rows[0].labelled})")
        for row in group.rows:
            of_seeds = {seed: 100 * value for seed, value in row.values(which, OVERALL, board.primary).items()}
            if values := list(of_seeds.values()):
                beside = rows[row.place.method]
                at = methods.index(row.place.method) + step * (beside.index(row) - (len(beside) - 1) / 2)
                axes.plot(values, [at] * len(values), shape, color=color, markersize=3.5, alpha=0.55, markeredgewidth=0)
                marked = [value for seed, value in of_seeds.items() if seed in row.marked]
                # One mark for a whole row, at its end; else one for each seed that it is of.
                for value in [max(values)] if len(marked) == len(values) else marked:
                    axes.annotate(row.mark, (value, at), (3, -1), textcoords="offset points", fontsize=8)
                mean, deviation = mean_and_deviation(values)
                if deviation is not None:
                    axes.vlines(mean, at - 0.45 * step, at + 0.45 * step, color=color, linewidth=2)
    axes.set_yticks(range(len(methods)), methods, fontsize=8)
    axes.set_ylim(len(methods) - 0.5, -0.5)  # in the order of the tables
    axes.set_xlabel(f"{TITLES[board.primary]} (%)", fontsize=8)
    axes.grid(axis="x", color="#e3e7ea", linewidth=0.8)
    axes.hlines(np.arange(len(methods) - 1) + 0.5, 0, 1, "#eef1f3", linewidth=0.8, transform=axes.get_yaxis_transform())
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _sweep(board: Board, group: Group) -> bytes:
    sets = _scored(board, group.rows)
    width = len(sets) * (1.5 + 0.55 * len(group.rows))
    return _png(
        _panels(sets, (max(4.5, width), 3.4), lambda axes, which: _bars(axes, group.rows, which, board.primary))
    )


def _panels(
    sets: Sequence[str], size: tuple[float, float], draw: Callable[["Axes", str], None], *, sharey: bool = False
) -> "Figure":
    """A panel for each set of frames, side by side."""
    from matplotlib.figure import Figure  # loading it takes a second, and most commands draw nothing

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    for axes, which in zip(np.atleast_1d(figure.subplots(1, len(sets), sharey=sharey)), sets, strict=True):
        draw(axes, which)
        axes.tick_params(labelsize=8)
        axes.set_title(SETS[which].title, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _png(figure: "Figure") -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _bars(axes: "Axes", rows: Sequence[Row], which: str, key: str) -> None:
    values = [[100 * value for value in row.values(which, OVERALL, key).values()] for row in rows]
    several = len({row.place.method for row in rows if row.place.point}) > 1
    known = [value for of_row in values for value in of_row]
    low, high = min(known), max(known)
    # Differences are small: the axis does not begin at zero, and says so.
    bottom = np.floor(low - max(1.0, 0.5 * (high - low)))
    for place, (row, of_row) in enumerate(zip(rows, values, strict=True)):
        if not of_row:
            continue
        mean, deviation = mean_and_deviation(of_row)
        top = max(mean + (deviation or 0), *of_row)
        high = max(high, top)
        color = SWEPT if row.place.point else BESIDE
        axes.bar(place, mean - bottom, 0.7, bottom, color=color, yerr=deviation, capsize=3, ecolor="#222")
        axes.plot([place + 0.15] * len(of_row), of_row, ".", color="#222", markersize=3)
        axes.annotate(
            f"{mean:.1f}{row.mark}", (place, top), (0, 4), textcoords="offset points", ha="center", fontsize=8
        )
    names = [row.title if several or not row.place.point else row.place.point for row in rows]
    axes.set_xticks(range(len(rows)), names, rotation=35, ha="right", fontsize=8)
    axes.set_ylim(bottom, high + 0.15 * (high - bottom))
    axes.set_ylabel(f"{TITLES[key]} (%), from {bottom:g}", fontsize=8)
