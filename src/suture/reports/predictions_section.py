"""Pictures with a truth: frames on which the runs are worst and best, and on which they differ."""

from collections.abc import Mapping
from typing import Any

from suture.data.dataset import Video
from suture.evaluation.scoring import Frames
from suture.reports.frame_choice import FrameKey, pick, sample
from suture.reports.frame_scorer import FrameScorer
from suture.reports.gallery import Gallery
from suture.reports.report_context import ReportContext

MAX_JUDGED_FRAMES = 60
"""Frames among which the worst and best are chosen."""
EVENLY_CHOSEN_FRAMES = 4


def prediction_pictures(context: ReportContext) -> Gallery | None:
    """Return frames of new videos; None without models or masks."""
    if not context.models or (judge := context.judge) is None:
        return None
    videos = {video.id: video for video in context.judged_videos}
    scores = frame_scores(context, judge, videos, {name: video.with_mask for name, video in videos.items()})
    return scored_pictures(context, judge, videos, scores, spread=EVENLY_CHOSEN_FRAMES)


def scored_pictures(
    context: ReportContext,
    judge: FrameScorer,
    videos: Mapping[str, Video],
    scores: Mapping[FrameKey, list[float]],
    **options: Any,
) -> Gallery | None:
    """Return the frames that `pick` chooses by their scores; None without scores."""
    chosen = pick(scores, **options)
    # Predicted again: the masks of all judged frames at native resolution would need too much memory.
    return context.pictures(videos, chosen, judge, candidates=len(scores)) if chosen else None


def frame_scores(
    context: ReportContext, judge: FrameScorer, videos: Mapping[str, Video], frames: Frames
) -> dict[FrameKey, list[float]]:
    """Return the IoU of a sample of frames in every finished run, without frames that have nothing that counts."""
    frames = sample(frames, MAX_JUDGED_FRAMES)
    scores: dict[FrameKey, list[float]] = {}
    for model in context.models.values():
        with context.progress(f"predict with {model.run.title}", sum(map(len, frames.values()))) as progress:
            for key, ids in model.masks(videos, frames, progress):
                if (score := judge.iou(key, ids, judge.truth(key))) is not None:
                    scores.setdefault(key, []).append(score)
    return scores
