"""Labels: frames to label next, and labelled frames on which label and predictions disagree."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from suture.data.dataset import Video
from suture.reports.frame_choice import DISAGREE, NEXT, PARTS_OF_VIDEO, FrameKey, far_apart, sample
from suture.reports.gallery import Gallery
from suture.reports.predictions_section import frame_scores
from suture.reports.report_context import ReportContext
from suture.reports.scores_section import percent
from suture.reports.videos_section import Statistics, predict_statistics
from suture.web.table import Table

MAX_CANDIDATES = 100
"""Unlabelled training frames that each run predicts."""
SUGGESTED_FRAMES = 8
DOUBTFUL_LABELS = 6


@dataclass(frozen=True)
class Suggestions:
    """Frames to label next with their mean confidence, the least confident first."""

    videos: dict[str, Video]
    confidence: dict[FrameKey, float]

    @property
    def table(self) -> Table:
        rows = [
            [name, str(index), _time(self.videos[name], index), percent(confidence)]
            for (name, index), confidence in self.confidence.items()
        ]
        return Table.of_text(["video", "frame", "time", "confidence"], rows)

    @property
    def lines(self) -> list[str]:
        """Lines of a list that `suture select --list` reads."""
        return [f"{name} {index}" for name, index in self.confidence]


def suggest_labels(context: ReportContext, footage: Statistics) -> Suggestions | None:
    """Choose unlabelled training frames and frames of videos without truth on which the runs are least confident."""
    training = {video.id: video for video in context.dataset.split("train")} if context.dataset else {}
    labelled = {(name, index) for run in context.runs for name, indices in run.labelled.items() for index in indices}
    frames = {name: [i for i in video.usable if (name, i) not in labelled] for name, video in training.items()}
    # Frames for scores that were chosen because they are hard would bias the scores.
    videos = training | {video.id: video for video in context.footage if video.split not in ("val", "test")}
    statistics = {**footage, **predict_statistics(context, training, sample(frames, MAX_CANDIDATES))}
    confidence = {
        (name, index): float(np.mean([one.confidence[place] for one in of_video.values()]))
        for name, of_video in statistics.items()
        if name in videos
        for place, index in enumerate(next(iter(of_video.values())).indices)
    }
    chosen = least_confident(confidence, {name: len(video) for name, video in videos.items()})
    return Suggestions(videos, chosen) if chosen else None


def least_confident(
    confidence: Mapping[FrameKey, float], lengths: Mapping[str, int], count: int = SUGGESTED_FRAMES
) -> dict[FrameKey, float]:
    """Choose the frames with the least confidence that lie far apart.

    >>> least_confident({("a", 0): 0.9, ("a", 1): 0.5, ("a", 2): 0.6, ("a", 30): 0.7}, {"a": 31}, 2)
    {('a', 1): 0.5, ('a', 30): 0.7}
    """
    order = sorted(confidence, key=lambda key: (confidence[key], key))
    distance = {name: length // PARTS_OF_VIDEO + 1 for name, length in lengths.items()}
    return {key: confidence[key] for key in far_apart(order, distance, count)}


def suggestion_pictures(context: ReportContext, suggestions: Suggestions | None) -> Gallery | None:
    """Return the frames to label next."""
    if suggestions is None:
        return None
    notes = {key: f"mean confidence {percent(value)} %" for key, value in suggestions.confidence.items()}
    return context.pictures(suggestions.videos, dict.fromkeys(suggestions.confidence, (NEXT,)), notes=notes)


def doubtful_pictures(context: ReportContext) -> Gallery | None:
    """Return the labelled frames with the lowest IoU, whose labels may be wrong."""
    if not context.models or (judge := context.judge_of(context.first)) is None:
        return None
    videos = {video.id: video for video in judge.dataset.split("train")}
    scores = frame_scores(context, judge, videos, context.first.labelled)
    means = {key: float(np.mean(values)) for key, values in scores.items()}
    worst = sorted(means, key=lambda key: (means[key], key))[:DOUBTFUL_LABELS]
    chosen = dict.fromkeys(worst, (DISAGREE,))
    return context.pictures(videos, chosen, judge, candidates=len(scores)) if chosen else None


def _time(video: Video, index: int) -> str:
    """Return the time of a frame in a video file."""
    if video.file is None:
        return "–"
    minutes, rest = divmod(float(video.file.times[index]), 60)
    return f"{int(minutes)}:{rest:04.1f}"
