"""Frames of new videos that have masks: where the runs are worst and best, and where they differ."""

from collections.abc import Mapping

from suture.data.dataset import Video
from suture.reports.context import Context
from suture.reports.inference_cache import Place
from suture.reports.overlays import Frames, Gallery, Judge, Panel, by_video, pick, sample
from suture.training.callbacks import bar

JUDGED = 60
"""Frames among which the worst and best are sought."""
_EVENLY = 4


def judged_frames(context: Context) -> Gallery | None:
    """The chosen frames; None where there is nothing to judge."""
    if not context.models or (judge := context.judge) is None:
        return None
    videos = {video.id: video for video in context.judged_videos}
    frames = sample({name: video.with_mask for name, video in videos.items()}, JUDGED)
    chosen = pick(frame_scores(context, judge, videos, frames), spread=_EVENLY)
    if not chosen:
        return None
    truths = judge.truths(chosen)
    panels = [Panel("truth", "truth", truths)]
    for model in context.models.values():
        # Once more: all masks at native resolution would be too much to keep.
        panels.append(judge.panel(model.run.name, dict(model.masks(videos, by_video(sorted(chosen)))), truths))
    return Gallery(videos, chosen, panels, among=sum(map(len, frames.values())))


def frame_scores(
    context: Context, judge: Judge, videos: Mapping[str, Video], frames: Frames
) -> dict[Place, list[float]]:
    """The IoU of frames in every finished run; without those that have nothing that counts."""
    scores: dict[Place, list[float]] = {}
    count = sum(map(len, frames.values()))
    for model in context.models.values():
        with bar(f"predict with {model.run.name}", count, context.console) as (progress, task):
            for place, ids in model.masks(videos, frames, lambda done: progress.advance(task, done)):
                if (score := judge.iou(place, ids, judge.truth(place))) is not None:
                    scores.setdefault(place, []).append(score)
    return scores
