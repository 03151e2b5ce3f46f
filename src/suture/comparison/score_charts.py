"""Charts of a comparison: every seed of every row, and the means."""

import re
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from itertools import cycle

import numpy as np

from suture.comparison.board import Board
from suture.comparison.results import distinct
from suture.evaluation.titles import SETS, TITLES

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


def score_charts(boards: Iterable[Board]) -> list[Chart]:
    """Draw a chart for each dataset that has scores."""
    return [
        Chart(
            re.sub(r"[^\w.+-]+", "-", f"scores-{board.dataset}"),
            f"{board.title}: seeds of every method, and their mean. The axes do not begin at zero.",
            draw_scores(board),
        )
        for board in boards
        if board.sets
    ]


def draw_scores(board: Board) -> bytes:
    """Draw a panel per set of frames: seeds as dots, in the order of the tables, with a colour per labelling."""
    from matplotlib.figure import Figure  # its import takes a second

    sets = board.sets
    titles = distinct(row.title for row in board.rows)
    size = 1.8 + 3.6 * len(sets), 1.1 + len(titles) * (0.14 + 0.1 * len(board.groups))
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    step = 0.75 / len(board.groups)
    for axes, which in zip(np.atleast_1d(figure.subplots(1, len(sets), sharey=True)), sets, strict=True):
        styles = cycle(LABELLING_STYLES)
        for place, group in enumerate(board.groups):
            color, shape = ALL_LABELS_STYLE if group.labelling == "all" else next(styles)
            axes.plot([], [], shape, color=color, markersize=4, label=f"{group.labelling} ({group.rows[0].labelled})")
            for row in group.rows:
                y = titles.index(row.title) + step * (place - (len(board.groups) - 1) / 2)
                values = [100 * value for value in row.values(which, board.primary).values()]
                axes.plot(values, [y] * len(values), shape, color=color, markersize=3.5, alpha=0.55, markeredgewidth=0)
                if row.mark and values:
                    axes.annotate(row.mark, (max(values), y), (3, -1), textcoords="offset points", fontsize=8)
                if len(values) > 1:
                    axes.vlines(np.mean(values), y - 0.45 * step, y + 0.45 * step, color=color, linewidth=2)
        axes.set_yticks(range(len(titles)), titles)
        axes.set_ylim(len(titles) - 0.5, -0.5)
        axes.set_title(SETS[which].title, fontsize=9)
        axes.set_xlabel(f"{TITLES[board.primary]} (%)", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(axis="x", color="#e3e7ea", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower right", ncols=4, fontsize=8, frameon=False)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
