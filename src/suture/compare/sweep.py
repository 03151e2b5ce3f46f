"""The picture of a sweep: a bar per point, and one for each method that is not swept beside them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from suture.compare.results import OVERALL, SETS, Board, Group, Row, mean_and_deviation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SWEPT, BESIDE = "#0072b2", "#9aa6b1"


@dataclass(frozen=True)
class Picture:
    """A PNG with a name for its file and what it shows."""

    name: str
    caption: str
    png: bytes


def sweep_pictures(board: Board) -> Iterator[Picture]:
    """A picture for each labelling in which something is swept."""
    for group in board.groups:
        if any(row.place.point for row in group.rows):
            yield Picture(
                f"sweep-{board.dataset}-{group.labelling}",
                f"{board.title}, {group.labelling}: mean, standard deviation and each seed of the points of the sweep "
                "(blue) and of methods that are not swept (grey). The axes do not begin at zero.",
                _picture(board, group),
            )


def _picture(board: Board, group: Group) -> bytes:
    from matplotlib.figure import Figure  # which takes a second, and most comparisons sweep nothing

    sets = [which for which in board.sets if any(row.values(which, OVERALL, board.primary) for row in group.rows)]
    width = len(sets) * (1.5 + 0.55 * len(group.rows))
    figure = Figure(figsize=(max(4.5, width), 3.4), dpi=150, layout="constrained")
    for axes, which in zip(np.atleast_1d(figure.subplots(1, len(sets))), sets, strict=True):
        _bars(axes, group.rows, which, board.primary)
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
    axes.set_ylabel(f"mIoU (%), from {bottom:g}", fontsize=8)
    axes.tick_params(axis="y", labelsize=8)
    axes.set_title(SETS[which], fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
