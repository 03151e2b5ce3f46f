"""Figures for a paper as files: comparison grids, pseudo labels, embeddings and clips."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from suture.core.io import replacing, write_bytes
from suture.reports.clips_section import Clip
from suture.reports.embeddings_section import Embedding, Embeddings
from suture.reports.frame_choice import FrameKey
from suture.reports.gallery import Gallery, paint_view, view_photo
from suture.reports.report_context import ReportContext

DPI = 200
CELL_INCHES = 1.7
CELL_PIXELS = 640
"""Longer side of a photo."""
MAX_TITLE_LINE = 24
"""Characters that fit above a cell."""


def write_figures(
    folder: Path,
    context: ReportContext,
    galleries: Mapping[str, Gallery],
    embeddings: Embeddings | None,
    clips: Sequence[Clip],
) -> None:
    """Write every figure that has content into a new folder."""
    figures: dict[str, Figure] = {}
    if predictions := galleries.get("predictions"):
        for group, keys in predictions.groups.items():
            figures[f"comparison-{group}".replace(" ", "-")] = _grid(context, predictions, keys)
    if pseudo := galleries.get("pseudo"):
        figures["pseudo-labels"] = _grid(context, pseudo, list(pseudo.chosen))
    if embeddings is not None:
        for number, sides in embeddings.runs.items():
            figures[f"embeddings-{_safe(context.runs[number].title)}"] = _scatter(context, sides, embeddings)
    for name, figure in figures.items():
        with replacing(folder / f"{name}.png") as temporary:
            figure.savefig(temporary, dpi=DPI)
    for clip in clips:
        write_bytes(folder / f"clip-{_safe(clip.video)}.mp4", clip.content)


def _safe(name: str) -> str:
    """Return a name as part of a file name."""
    return re.sub(r"[^\w.,+=-]+", "-", name)


def _grid(context: ReportContext, gallery: Gallery, keys: Sequence[FrameKey]) -> Figure:
    """Draw a row per frame: photo, truth and every run, with the classes below."""
    columns = 1 + len(gallery.panels)
    figure = Figure(figsize=(columns * CELL_INCHES, len(keys) * CELL_INCHES + 0.8), layout="constrained")
    cells = figure.subplots(len(keys), columns, squeeze=False)
    for row, key in zip(cells, keys, strict=True):
        photo = view_photo(gallery.videos[key[0]], key[1], CELL_PIXELS)
        row[0].imshow(photo)
        for axes, panel in zip(row[1:], gallery.panels, strict=True):
            palette = context.class_table.palette
            axes.imshow(paint_view(photo, panel.masks.get(key), gallery.videos[key[0]], palette))
        for axes in row:
            axes.set(xticks=[], yticks=[])
        row[0].set_ylabel(f"{key[0]}, {key[1]}", fontsize=6)
    for axes, title in zip(cells[0], ["frame", *(panel.title for panel in gallery.panels)], strict=True):
        axes.set_title(fill(title, MAX_TITLE_LINE), fontsize=8)
    _add_legend(figure, context, range(len(context.class_table)))
    return figure


def _scatter(context: ReportContext, sides: Sequence[Embedding], embeddings: Embeddings) -> Figure:
    colors = context.class_table.palette[embeddings.pixels.classes] / 255
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    for axes, side in zip(figure.subplots(1, 2), sides, strict=True):
        axes.scatter(*side.points.T, c=colors, s=7, linewidths=0.15, edgecolors="0.3")
        axes.set(xticks=[], yticks=[], box_aspect=1)
        axes.set_aspect("equal", adjustable="datalim")
        separation = "" if side.separation is None else f"\nseparation of the classes {side.separation:.2f}"
        axes.set_title(side.title + separation, fontsize=8)
    _add_legend(figure, context, embeddings.classes)
    return figure


def _add_legend(figure: Figure, context: ReportContext, shown: Sequence[int]) -> None:
    names, colors = context.class_table.names, context.class_table.palette / 255
    patches = [Patch(facecolor=colors[n], edgecolor="0.3", linewidth=0.4, label=names[n]) for n in shown]
    figure.legend(handles=patches, loc="outside lower center", ncols=min(5, len(patches)), fontsize=6, frameon=False)
