"""The report: one HTML file about one run, or about several side by side, that opens offline."""

import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console

import suture
from suture.checks.view_pictures import require_free_folder
from suture.core.errors import UserError
from suture.core.io import write_text
from suture.data.classes import default_colors
from suture.reports.charts import STYLES
from suture.reports.context import Context, read_footage
from suture.reports.embeddings_section import embeddings, embeddings_section
from suture.reports.figures import write_figures
from suture.reports.overlays import Gallery, data_uri, embedded
from suture.reports.place import report_path
from suture.reports.predictions_section import judged_frames
from suture.reports.pseudo_section import pseudo_labels, pseudo_pictures, pseudo_section
from suture.reports.run_facts import read_runs
from suture.reports.scores_section import columns, percent, scored_sets, sets
from suture.reports.shots_section import shots_section
from suture.reports.side_by_side import side_by_side_video
from suture.reports.summary_section import (
    cautions,
    facts_of,
    findings,
    scored_otherwise,
    seconds,
    title,
    unfinished,
    unmeasured,
)
from suture.reports.training_section import training_section
from suture.reports.videos_section import footage_pictures, footage_section, watch_footage
from suture.training.budget import images_of_a_step
from suture.web.page import templates


def write_report(
    runs: Sequence[Path],
    out: Path | None = None,
    frames: bool = True,
    console: Console | None = None,
    *,
    videos: Sequence[Path] = (),
    figures: Path | None = None,
) -> Path:
    """Write the report of runs and give its path; without `frames` it holds no picture of a patient.

    Without `out` it is where `report_path` says. `videos` are files and folders of video without truth that the runs
    look at; into the folder `figures` go the figures of a paper.

    >>> write_report([Path("runs/supervised"), Path("runs/pgvcl")])  # doctest: +SKIP
    PosixPath('runs/report.html')
    """
    facts = read_runs(runs)
    path = report_path(runs, out)
    path.parent.mkdir(parents=True, exist_ok=True)  # a slip is told before the models look at anything
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{path} cannot be written: name a file with -o in a folder that you may write to.")
    if figures is not None:
        require_free_folder(figures)
    context = Context(facts, frames, console or Console(stderr=True), read_footage(videos))
    if videos and not context.models:
        raise UserError(
            f"--videos needs a finished model, and {facts[0].run.folder} has none yet: train it to the end."
        )
    environment = templates("suture.reports")
    environment.filters |= {"percent": percent, "seconds": seconds, "gigabytes": lambda n: f"{n / 2**30:.2f} GiB"}
    environment.filters |= {"images_of_a_step": images_of_a_step}
    write_text(path, environment.get_template("page.html").render(_content(context, figures)))
    for sentence in (*scored_otherwise(facts), unfinished(facts)):
        if sentence:
            context.console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    return path


def _content(context: Context, figures: Path | None) -> dict[str, Any]:
    """Everything the templates show; the figures on the way."""
    pseudo = pseudo_labels(context)
    footage = watch_footage(context)
    found = embeddings(context)
    video = side_by_side_video(context) if context.frames else None
    galleries: dict[str, Gallery | None] = {}
    if context.frames:
        galleries = {
            "predictions": judged_frames(context),
            "pseudo": pseudo_pictures(context, pseudo),
            "footage": footage_pictures(context, footage),
        }
    shown = {name: gallery for name, gallery in galleries.items() if gallery}
    if figures is not None:
        write_figures(figures, context, shown.get("predictions"), shown.get("pseudo"), found, video)
    scored = scored_sets(context.runs)
    content = {
        "title": title(context.runs),
        "written": date.today().isoformat(),
        "version": suture.__version__,
        "runs": context.runs,
        "styles": STYLES,
        "frames": context.frames,
        "classes": context.classes,
        "palettes": {"dataset": context.colors.tolist(), "safe": default_colors(context.classes)},
        "findings": findings(context, sets(context.runs)),
        "facts": facts_of(context.runs),
        "sets": scored,
        "set_titles": [(one["key"], one["title"]) for one in scored],
        "columns": columns(scored),
        "unmeasured": unmeasured(context.runs, sets(context.runs), footage is not None),
        "galleries": shown,
        "viewers": {name: gallery.content() for name, gallery in shown.items()},
        "video": video
        and {
            "about": video,
            "uri": embedded(video.content, "video/mp4"),
            "poster": data_uri(video.poster),
        },
        "pseudo": pseudo_section(context, pseudo, "pseudo" in shown),
        "embeddings": embeddings_section(context, found),
        "footage": footage_section(context, footage),
        "training": training_section(context),
        "shots": shots_section(context),
    }
    # Last, when every section has said what it could not show.
    return content | {"remarks": [*context.remarks, *cautions(context.runs)]}
