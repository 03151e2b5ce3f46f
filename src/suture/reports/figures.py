"""The figures of a paper as files: comparison grids, pseudo labels beside the truth, embeddings, the video."""

import re
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from suture.core.io import replacing
from suture.reports.context import Context
from suture.reports.embeddings_section import Embeddings, RunEmbeddings
from suture.reports.inference_cache import Place
from suture.reports.overlays import Gallery, scene
from suture.reports.side_by_side import SideBySide, painted

_DPI = 200
_CELL = 1.7
"""Inches."""
_TITLE = 24
"""Characters that stand over a cell."""


def write_figures(
    folder: Path,
    context: Context,
    predictions: Gallery | None,
    pseudo: Gallery | None,
    embedded: Embeddings | None,
    video: SideBySide | None,
) -> list[Path]:
    """Write every figure there is something for into a new folder; give their paths."""
    drawn: dict[str, Figure] = {}
    if predictions is not None:
        for group in predictions.groups:
            drawn[f"comparison-{group}.png".replace(" ", "-")] = grid(context, predictions, predictions.group(group))
    if pseudo is not None:
        drawn["pseudo-labels.png"] = grid(context, pseudo, list(pseudo.chosen))
    if embedded is not None:
        for one in embedded.runs:
            name = re.sub(r"[^\w.,+=-]+", "-", context.runs[one.number].name)
            drawn[f"embeddings-{name}.png"] = _embeddings(context, one, embedded.pixels.classes)
    written = []
    for name, figure in drawn.items():
        written.append(folder / name)
        with replacing(written[-1]) as temporary:
            figure.savefig(temporary, dpi=_DPI)
    if video is not None:
        written.append(folder / "side-by-side.mp4")
        with replacing(written[-1]) as temporary:
            temporary.write_bytes(video.content)
    return written


def grid(context: Context, gallery: Gallery, places: Sequence[Place]) -> Figure:
    """A row per frame: the frame, its truth, and every run; the classes below."""
    columns = 1 + len(gallery.panels)
    figure = Figure(figsize=(columns * _CELL, len(places) * _CELL + 0.8), layout="constrained")
    cells = figure.subplots(len(places), columns, squeeze=False)
    for row, place in zip(cells, places, strict=True):
        photo = scene(gallery.videos[place[0]], place[1], 640)
        masks = [gallery.mask(panel, place, photo) for panel in gallery.panels]
        pictures = [photo, *(photo if ids is None else painted(photo, ids, context.colors) for ids in masks)]
        for axes, picture in zip(row, pictures, strict=True):
            axes.imshow(picture)
            axes.set(xticks=[], yticks=[])
        row[0].set_ylabel(f"{place[0]}, {place[1]}", fontsize=6)
    for axes, title in zip(cells[0], ["frame", *(panel.title for panel in gallery.panels)], strict=True):
        axes.set_title(fill(title, _TITLE), fontsize=8)
    _legend(figure, context, range(len(context.classes)))
    return figure


def _embeddings(context: Context, one: RunEmbeddings, classes: np.ndarray) -> Figure:
    colors = context.colors / 255
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    for axes, side in zip(figure.subplots(1, 2), (one.before, one.after), strict=True):
        axes.scatter(*side.points.T, c=colors[classes], s=7, linewidths=0.15, edgecolors="0.3")
        axes.set(xticks=[], yticks=[], box_aspect=1)
        axes.set_aspect("equal", adjustable="datalim")
        separation = "" if side.separation is None else f"\nseparation of the classes {side.separation:.2f}"
        axes.set_title(side.title + separation, fontsize=8)
    figure.suptitle(context.runs[one.number].name, fontsize=9)
    _legend(figure, context, np.unique(classes).tolist())
    return figure


def _legend(figure: Figure, context: Context, shown: Sequence[int]) -> None:
    colors = context.colors / 255
    patches = [Patch(facecolor=colors[n], edgecolor="0.3", linewidth=0.4, label=context.classes[n]) for n in shown]
    figure.legend(handles=patches, loc="outside lower center", ncols=min(5, len(patches)), fontsize=6, frameon=False)
