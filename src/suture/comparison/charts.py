"""Charts of a comparison: the seeds of every method, or a bar per point of a sweep."""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from suture.comparison.board import Board, LabellingGroup, MethodRow
from suture.comparison.tables import ScoreColumn, mean_and_deviation
from suture.evaluation.titles import SETS, TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SWEPT_COLOR, OTHER_COLOR = "#0072b2", "#9aa6b1"
LABELLING_STYLES = (("#d55e00", "s"), ("#009e73", "^"), ("#0072b2", "o"))
ALL_LABELS_STYLE = ("#5b6770", "D")


@dataclass(frozen=True)
class Chart:
    """A PNG, its file name without ending, and its caption."""

    name: str
    caption: str
    png: bytes

    @property
    def base64(self) -> str:
        return b64encode(self.png).decode()


def charts(board: Board) -> Iterator[Chart]:
    """Draw a chart for each labelling in which something is swept; else one of all methods."""
    sets = [which for which in board.sets if any(ScoreColumn(which, board.primary).values(row) for row in board.rows)]
    swept = [group for group in board.groups if any(row.point for row in group.rows)]
    for group in swept if sets else ():
        yield Chart(
            _file_name("sweep", board.dataset, group.labelling),
            f"{board.title}, {group.title}: mean, standard deviation and seeds of the sweep's points (blue) and of "
            "other methods (grey). The axes do not begin at zero.",
            _png(sets, (len(sets) * max(4.5, 1.5 + 0.55 * len(group.rows)), 3.4), _bars(group, board.primary)),
        )
    if sets and not swept:
        height = 1.1 + len({row.method for row in board.rows}) * (0.14 + 0.1 * len(board.groups))
        yield Chart(
            _file_name("scores", board.dataset),
            f"{board.title}: seeds of every method, and their mean. The axes do not begin at zero.",
            _png(sets, (1.8 + 3.6 * len(sets), height), _dots(board), sharey=True),
        )


def _file_name(*parts: str) -> str:
    """Make a file name of any dataset name.

    >>> _file_name("scores", "Nähte, 2. Serie")
    'scores-Nähte-2.-Serie'
    """
    return re.sub(r"[^\w.+-]+", "-", "-".join(parts))


def _png(
    sets: Sequence[str],
    size: tuple[float, float],
    draw: "Callable[[Figure, Axes, str], None]",
    sharey: bool = False,
) -> bytes:
    """Draw one panel per set of frames."""
    from matplotlib.figure import Figure  # its import takes a second

    figure = Figure(figsize=size, dpi=150, layout="constrained")
    for axes, which in zip(np.atleast_1d(figure.subplots(1, len(sets), sharey=sharey)), sets, strict=True):
        draw(figure, axes, which)
        axes.tick_params(labelsize=8)
        axes.set_title(SETS[which].title, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _dots(board: Board) -> "Callable[[Figure, Axes, str], None]":
    """Draw each seed, in the order of the tables, with a colour per labelling."""
    methods = list(dict.fromkeys(row.method for row in board.rows))
    step = 0.75 / len(board.groups)

    def draw(figure: "Figure", axes: "Axes", which: str) -> None:
        styles = cycle(LABELLING_STYLES)
        for place, group in enumerate(board.groups):
            color, shape = ALL_LABELS_STYLE if group.labelling == "all" else next(styles)
            axes.plot([], [], shape, color=color, markersize=4, label=f"{group.title} ({group.rows[0].labelled})")
            for row in group.rows:
                seeds = row.values(which, board.primary)
                y = methods.index(row.method) + step * (place - (len(board.groups) - 1) / 2)
                values = [100 * value for value in seeds.values()]
                axes.plot(values, [y] * len(values), shape, color=color, markersize=3.5, alpha=0.55, markeredgewidth=0)
                marked = [100 * value for seed, value in seeds.items() if seed in row.marked_seeds]
                for value in marked[:1] if len(marked) == len(values) else marked:
                    axes.annotate(row.mark, (value, y), (3, -1), textcoords="offset points", fontsize=8)
                if len(values) > 1:
                    axes.vlines(np.mean(values), y - 0.45 * step, y + 0.45 * step, color=color, linewidth=2)
        axes.set_yticks(range(len(methods)), methods, fontsize=8)
        axes.set_ylim(len(methods) - 0.5, -0.5)
        axes.set_xlabel(f"{TITLES[board.primary]} (%)", fontsize=8)
        axes.grid(axis="x", color="#e3e7ea", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines["left"].set_visible(False)
        if not figure.legends:
            handles = axes.get_legend_handles_labels()
            figure.legend(*handles, loc="outside lower right", ncols=4, fontsize=8, frameon=False)

    return draw


def _bars(group: LabellingGroup, key: str) -> "Callable[[Figure, Axes, str], None]":
    """Draw a bar per row; the axis begins below the lowest value, because differences are small."""

    def draw(figure: "Figure", axes: "Axes", which: str) -> None:
        values = [ScoreColumn(which, key).values(row) for row in group.rows]
        known = [value for of_row in values for value in of_row] or [0.0]
        low, high = min(known), max(known)
        bottom = np.floor(low - max(1.0, 0.5 * (high - low)))
        for place, (row, of_row) in enumerate(zip(group.rows, values, strict=True)):
            if of_row:
                mean, deviation = mean_and_deviation(of_row)
                color = SWEPT_COLOR if row.point else OTHER_COLOR
                axes.bar(place, mean - bottom, 0.7, bottom, color=color, yerr=deviation, capsize=3, ecolor="#222")
                axes.plot([place + 0.15] * len(of_row), of_row, ".", color="#222", markersize=3)
                axes.bar_label(axes.containers[-1], [f"{mean:.1f}{row.mark}"], fontsize=8, padding=2)
        axes.set_xticks(range(len(group.rows)), _names(group.rows), rotation=35, ha="right", fontsize=8)
        axes.set_ylim(bottom, high + 0.15 * (high - bottom))
        axes.set_ylabel(f"{TITLES[key]} (%), from {bottom:g}", fontsize=8)

    return draw


def _names(rows: Sequence[MethodRow]) -> list[str]:
    several = len({row.method for row in rows if row.point}) > 1
    return [row.title if several or not row.point else row.point for row in rows]
