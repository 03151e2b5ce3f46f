"""Videos without truth: predicted areas, confidence, entropy and consistency, and frames to label next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from suture.data.dataset import Video
from suture.data.shots import find_shots
from suture.reports.charts import WIDE, Series, area_chart, line_chart, run_label
from suture.reports.finished_model import FrameStatistics
from suture.reports.frame_choice import EVENLY, NEXT, FrameKey, evenly, far_apart
from suture.reports.gallery import Gallery
from suture.reports.report_context import ReportContext
from suture.reports.scores_section import percent
from suture.web.table import Table

MAX_PREDICTED_FRAMES = 900
"""Maximum number of frames that each run predicts, over all videos."""
MIN_PREDICTED_FRAMES = 40
"""Minimum number of predicted frames per video."""
MAX_SHOT_FRAMES = 3000
"""Longest video (frames) for which shots are detected, because that reads every frame."""
SUGGESTED_FRAMES = 8
EVENLY_SHOWN_FRAMES = 6
CURVES = {
    "confidence": "confidence: the probability of the predicted class, mean over the view",
    "entropy": "entropy of the class probabilities: 100 is completely unsure",
    "consistency": "consistency: mean IoU of neighbouring frames' predictions",
}


@dataclass(frozen=True)
class Footage:
    """Videos without truth, with statistics of each run's predictions."""

    videos: dict[str, Video]
    statistics: dict[str, dict[int, FrameStatistics]]
    """Statistics by video and number of the run."""
    shots: dict[str, tuple[int, ...]]
    """First frames of the shots, of videos that are not too long."""
    suggested: dict[FrameKey, float]
    """Frames to label next with their mean confidence, the least confident first."""


def predict_footage(context: ReportContext) -> Footage | None:
    """Predict the videos by every finished run; None without videos or models."""
    if not context.footage or not context.models:
        return None
    videos = {video.id: video for video in context.footage}
    most = max(MIN_PREDICTED_FRAMES, MAX_PREDICTED_FRAMES // len(videos))
    indices = {name: frames_in_pairs(video.usable, most) for name, video in videos.items()}
    statistics: dict[str, dict[int, FrameStatistics]] = {name: {} for name in videos}
    for number, model in context.models.items():
        with context.progress(f"predict with {model.run.title}", sum(map(len, indices.values()))) as progress:
            for name, video in videos.items():
                statistics[name][number] = model.statistics(video, indices[name], progress)
    short = {name: video for name, video in videos.items() if len(video.usable) <= MAX_SHOT_FRAMES}
    with context.progress("find shots", sum(len(video.usable) for video in short.values())) as progress:
        settings = context.first.config.data.shots
        shots = {name: find_shots(video, settings, progress).starts for name, video in short.items()}
    confidence = {
        (name, index): float(np.mean([one.confidence[place] for one in statistics[name].values()]))
        for name in videos
        for place, index in enumerate(indices[name])
    }
    return Footage(videos, statistics, shots, suggest_frames(confidence, {n: len(v) for n, v in videos.items()}))


def frames_in_pairs(usable: Sequence[int], most: int) -> list[int]:
    """Choose all frames, or pairs of neighbours spread evenly, as consistency needs two frames in a row.

    >>> frames_in_pairs(range(10), 4)
    [0, 1, 5, 6]
    """
    if len(usable) <= most:
        return list(usable)
    return [index for start in evenly(len(usable), most // 2) for index in usable[start : start + 2]]


def suggest_frames(
    confidence: Mapping[FrameKey, float], lengths: Mapping[str, int], count: int = SUGGESTED_FRAMES
) -> dict[FrameKey, float]:
    """Choose the frames with the least confidence that lie far apart.

    >>> suggest_frames({("a", 0): 0.9, ("a", 1): 0.5, ("a", 2): 0.6, ("a", 30): 0.7}, {"a": 31}, 2)
    {('a', 1): 0.5, ('a', 30): 0.7}
    """
    order = sorted(confidence, key=lambda key: (confidence[key], key))
    distance = {name: max(5, length // 25) for name, length in lengths.items()}
    return {key: confidence[key] for key in far_apart(order, distance, count)}


def footage_section(context: ReportContext, footage: Footage | None) -> dict[str, Any] | None:
    """Return numbers, charts and suggestions for the template."""
    if footage is None:
        return None
    titles = [run.title for run in context.runs]
    groups = [
        [
            [name, run_label(titles[n], n), str(len(one.indices)), *(percent(one.mean(key)) for key in CURVES)]
            for n, one in statistics.items()
        ]
        for name, statistics in footage.statistics.items()
    ]
    suggested = [
        [name, str(index), _time(footage.videos[name], index), percent(confidence)]
        for (name, index), confidence in footage.suggested.items()
    ]
    return {
        "table": Table.of_text(["video", "run", "predicted frames", *CURVES], *groups),
        "videos": [_video(context, footage, name) for name in footage.videos],
        "suggested": Table.of_text(["video", "frame", "time", "confidence"], suggested),
    }


def footage_pictures(context: ReportContext, footage: Footage | None) -> Gallery | None:
    """Return the suggested frames, and some evenly from all videos."""
    if footage is None:
        return None
    chosen: dict[FrameKey, list[str]] = {key: [NEXT] for key in footage.suggested}
    each = max(1, EVENLY_SHOWN_FRAMES // len(footage.videos))
    for name, video in list(footage.videos.items())[: 2 * EVENLY_SHOWN_FRAMES]:
        for place in evenly(len(video.usable), each):
            chosen.setdefault((name, video.usable[place]), []).append(EVENLY)
    panels = context.predicted_panels(footage.videos, chosen, None, {})
    notes = {key: f"mean confidence {percent(confidence)} %" for key, confidence in footage.suggested.items()}
    return Gallery(footage.videos, chosen, panels, notes)


def _video(context: ReportContext, footage: Footage, name: str) -> dict[str, Any]:
    video, statistics, starts = footage.videos[name], footage.statistics[name], footage.shots.get(name, ())
    titles = [run.title for run in context.runs]
    options: dict[str, Any] = {"x_range": (0, len(video) - 1), "cuts": starts[1:]}
    names = context.class_table.names
    curves = []
    for key, title in CURVES.items():
        series = []
        for number, one in statistics.items():
            values = 100 * getattr(one, key)
            known = np.flatnonzero(np.isfinite(values))
            series.append(Series(titles[number], number, [one.indices[i] for i in known], values[known]))
        chart = line_chart("without truth", series, "frame", key, (0, 100), size=(WIDE, 130), **options)
        curves += [(title, chart)] if chart else []
    return {
        "name": name,
        "has_shots": bool(starts),
        "classes": np.flatnonzero(sum(one.areas.sum(0) for one in statistics.values())).tolist(),
        "runs": [
            (number, area_chart(f"{name}, {titles[number]}", one.indices, one.areas, names, **options))
            for number, one in statistics.items()
        ],
        "curves": curves,
    }


def _time(video: Video, index: int) -> str:
    """Return the time of a frame in a video file."""
    if video.file is None:
        return "–"
    minutes, rest = divmod(float(video.file.times[index]), 60)
    return f"{int(minutes)}:{rest:04.1f}"
