"""Videos without truth: predicted areas, confidence, entropy and consistency over time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from suture.data.dataset import Video
from suture.evaluation.scoring import Frames
from suture.reports.charts import WIDE, Series, area_chart, line_chart, run_label, shown_classes
from suture.reports.finished_model import FrameStatistics
from suture.reports.frame_choice import evenly
from suture.reports.report_context import ReportContext
from suture.reports.scores_section import percent
from suture.web.table import Table

MAX_PREDICTED_FRAMES = 900
"""Maximum number of frames that each run predicts, over all videos."""
MIN_PREDICTED_FRAMES = 40
"""Minimum number of predicted frames per video."""
CURVES = {
    "confidence": "confidence: the probability of the predicted class, mean over the view",
    "entropy": "entropy of the class probabilities: 100 is completely unsure",
    "consistency": "consistency: mean IoU of neighbouring frames' predictions",
}


Statistics = Mapping[str, Mapping[int, FrameStatistics]]
"""Statistics of predictions by video and number of the run."""


def predict_footage(context: ReportContext) -> Statistics:
    """Predict the videos without truth by every finished run."""
    videos = {video.id: video for video in context.footage}
    most = max(MIN_PREDICTED_FRAMES, MAX_PREDICTED_FRAMES // max(1, len(videos)))
    return predict_statistics(
        context, videos, {name: frames_in_pairs(one.usable, most) for name, one in videos.items()}
    )


def predict_statistics(context: ReportContext, videos: Mapping[str, Video], frames: Frames) -> Statistics:
    """Predict frames by every finished run."""
    statistics: dict[str, dict[int, FrameStatistics]] = {}
    for number, model in context.models.items():
        with context.progress(f"predict with {model.run.title}", sum(map(len, frames.values()))) as progress:
            for name, indices in frames.items():
                of_run = model.statistics(videos[name], indices, progress)
                statistics.setdefault(name, {})[number] = of_run
    return statistics


def frames_in_pairs(usable: Sequence[int], most: int) -> list[int]:
    """Choose all frames, or pairs of neighbours spread evenly, as consistency needs two frames in a row.

    >>> frames_in_pairs(range(10), 4)
    [0, 1, 5, 6]
    """
    if len(usable) <= most:
        return list(usable)
    return [index for start in evenly(len(usable), most // 2) for index in usable[start : start + 2]]


def footage_section(context: ReportContext, footage: Statistics) -> dict[str, Any] | None:
    """Return numbers and charts for the template."""
    titles = [run.title for run in context.runs]
    groups = [
        [
            [name, run_label(titles[n], n), str(len(one.indices)), *(percent(one.mean(key)) for key in CURVES)]
            for n, one in statistics.items()
        ]
        for name, statistics in footage.items()
    ]
    return (
        {
            "table": Table.of_text(["video", "run", "predicted frames", *CURVES], *groups),
            "videos": [_video(context, name, statistics) for name, statistics in footage.items()],
        }
        if footage
        else None
    )


def _video(context: ReportContext, name: str, statistics: Mapping[int, FrameStatistics]) -> dict[str, Any]:
    titles, names = [run.title for run in context.runs], context.class_table.names
    curves = []
    for key, title in CURVES.items():
        series = []
        for number, one in statistics.items():
            values = 100 * getattr(one, key)
            known = np.flatnonzero(np.isfinite(values))
            series.append(Series(titles[number], number, [one.indices[i] for i in known], values[known]))
        if chart := line_chart("without truth", series, "frame", key, size=(WIDE, 130)):
            curves.append((title, chart))
    return {
        "name": name,
        "classes": shown_classes(np.concatenate([one.areas for one in statistics.values()]), names),
        "runs": [
            (number, area_chart(f"{name}, {titles[number]}", one.indices, one.areas, names))
            for number, one in statistics.items()
        ],
        "curves": curves,
    }
