"""Report: one HTML file about one run, or several side by side, that opens offline."""

import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console

import suture
from suture.checks.write_pictures import require_free_folder
from suture.core.errors import UserError
from suture.core.io import write_text
from suture.data.classes import default_colors
from suture.evaluation.titles import SCORES
from suture.reports.charts import RUN_STYLES, run_label, scatter
from suture.reports.clips_section import clips_section
from suture.reports.embeddings_section import compute_embeddings
from suture.reports.gallery import Gallery, file_uri
from suture.reports.labels_section import doubtful_pictures, suggest_labels, suggestion_pictures
from suture.reports.paper_figures import write_figures
from suture.reports.predictions_section import prediction_pictures
from suture.reports.pseudo_section import pseudo_pictures, pseudo_qualities, pseudo_section
from suture.reports.report_context import ReportContext, read_footage
from suture.reports.report_path import report_path
from suture.reports.reported_run import read_runs
from suture.reports.scores_section import percent, scores_section
from suture.reports.shots_section import shots_section
from suture.reports.summary_section import (
    cautions,
    page_title,
    primary_scores,
    run_facts,
    terminal_cautions,
    unmeasured,
)
from suture.reports.training_section import training_section
from suture.reports.videos_section import footage_section, predict_footage
from suture.web.page import render_page


def write_report(
    runs: Sequence[Path],
    out: Path | None = None,
    frames: bool = True,
    console: Console | None = None,
    *,
    videos: Sequence[Path] = (),
    figures: Path | None = None,
) -> Path:
    """Write the report of runs.

    Args:
        runs: Run folders.
        out: HTML file; by default `report.html` in the run folder, or in the folder above several runs.
        frames: Include pictures of frames, which show a patient.
        console: Where progress and warnings go.
        videos: Files and folders of video without truth that the runs predict.
        figures: New folder for the figures of a paper.

    Returns:
        The path of the page.

    Raises:
        UserError: The runs do not fit each other, or the page cannot be written.

    >>> write_report([Path("runs/supervised"), Path("runs/pgvcl")])  # doctest: +SKIP
    PosixPath('runs/report.html')
    """
    read = read_runs(runs)
    path = report_path(runs, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{path} cannot be written: name a file with -o in a folder that you may write to.")
    if figures is not None:
        require_free_folder(figures)
    context = ReportContext(read, frames, console or Console(stderr=True), read_footage(videos))
    if videos and not context.models:
        raise UserError(f"--videos needs a finished model, and {read[0].folder} has none: train it to the end.")
    content = _content(context, figures)
    write_text(path, render_page("page.html", "suture.reports", scripts=["script.js"], **content))
    for sentence in terminal_cautions(read):
        context.console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    return path


def _content(context: ReportContext, figures: Path | None) -> dict[str, Any]:
    """Return the values of the templates, and write the figures from the same results."""
    pseudo = pseudo_qualities(context)
    footage = predict_footage(context)
    suggestions = suggest_labels(context, footage)
    embeddings = compute_embeddings(context)
    clips = clips_section(context) if context.frames else []
    galleries: dict[str, Gallery | None] = {}
    if context.frames:
        galleries = {
            "predictions": prediction_pictures(context),
            "pseudo": pseudo_pictures(context, pseudo),
            "next": suggestion_pictures(context, suggestions),
            "doubtful": doubtful_pictures(context),
        }
    shown = {name: gallery for name, gallery in galleries.items() if gallery}
    if figures is not None:
        write_figures(figures, context, shown, embeddings, clips)
    sets = scores_section(context.runs)
    scored = [one["key"] for one in sets]
    content = {
        "percent": percent,
        "run_label": run_label,
        "scatter": scatter,
        "file_uri": file_uri,
        "title": page_title(context.runs),
        "written": date.today().isoformat(),
        "version": suture.__version__,
        "runs": context.runs,
        "styles": RUN_STYLES,
        "frames": context.frames,
        "classes": context.class_table.names,
        "palettes": {"dataset": context.class_table.colors, "safe": default_colors(context.class_table.names)},
        "primary_scores": primary_scores(context.runs, scored),
        "facts": run_facts(context.runs),
        "sets": sets,
        "set_titles": [(one["key"], one["title"]) for one in sets],
        "columns": SCORES,
        "unmeasured": unmeasured(scored),
        "galleries": shown,
        "viewers": {name: gallery.content() for name, gallery in shown.items()},
        "clips": clips,
        "pseudo": pseudo_section(context, pseudo),
        "embeddings": embeddings,
        "footage": footage_section(context, footage),
        "suggestions": suggestions,
        "training": training_section(context),
        "shots": shots_section(context.first),
    }
    # Read last, since every section may add a remark.
    return content | {"remarks": [*context.remarks, *cautions(context.runs)]}
