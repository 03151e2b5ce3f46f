"""Pictures of new videos with masks: frames on which the runs are worst and best, and on which they differ."""

from collections.abc import Mapping

from suture.data.dataset import Video
from suture.evaluation.scoring import Frames
from suture.reports.frame_choice import FrameKey, pick, sample
from suture.reports.frame_scorer import FrameScorer
from suture.reports.gallery import Gallery, Panel
from suture.reports.report_context import ReportContext

MAX_JUDGED_FRAMES = 60
"""Frames among which the worst and best are chosen."""
EVENLY_CHOSEN_FRAMES = 4


def prediction_pictures(context: ReportContext) -> Gallery | None:
    """Return the chosen frames; None without models or masks."""
    if not context.models or (judge := context.judge) is None:
        return None
    videos = {video.id: video for video in context.judged_videos}
    frames = sample({name: video.with_mask for name, video in videos.items()}, MAX_JUDGED_FRAMES)
    chosen = pick(frame_scores(context, judge, videos, frames), spread=EVENLY_CHOSEN_FRAMES)
    if not chosen:
        return None
    truths = judge.truths(chosen)
    # Predicted again: the masks of all judged frames at native resolution would need too much memory.
    panels = [Panel("truth", "truth", truths), *context.predicted_panels(videos, chosen, judge, truths)]
    return Gallery(videos, chosen, panels, candidates=sum(map(len, frames.values())))


def frame_scores(
    context: ReportContext, judge: FrameScorer, videos: Mapping[str, Video], frames: Frames
) -> dict[FrameKey, list[float]]:
    """Return the IoU of frames in every finished run, without frames that have nothing that counts."""
    scores: dict[FrameKey, list[float]] = {}
    for model in context.models.values():
        with context.progress(f"predict with {model.run.title}", sum(map(len, frames.values()))) as progress:
            for key, ids in model.masks(videos, frames, progress):
                if (score := judge.iou(key, ids, judge.truth(key))) is not None:
                    scores.setdefault(key, []).append(score)
    return scores
