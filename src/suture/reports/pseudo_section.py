"""Quality of pseudo labels over the distance to the nearest labelled frame, and pictures of unlabelled frames."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from suture.core.text import listed, number
from suture.data.classes import IGNORE
from suture.data.dataset import Video
from suture.data.labelling import Labelling
from suture.data.read_scenes import resize_into_frame
from suture.data.sampling.frames import TrainingFrames
from suture.evaluation.metrics import mean
from suture.methods.pseudo_labels import PseudoLabels, load_pseudo_labels
from suture.reports.charts import Series, line_chart
from suture.reports.frame_choice import EVENLY, FrameKey, by_video, evenly, pick, sample
from suture.reports.frame_scorer import FrameScorer
from suture.reports.gallery import Gallery, Panel
from suture.reports.predictions_section import MAX_JUDGED_FRAMES, frame_scores
from suture.reports.report_context import ReportContext
from suture.reports.reported_run import ReportedRun
from suture.reports.scores_section import percent

MAX_JUDGED_LABELS = 240
"""Pseudo labels of a run that are judged."""
MAX_DISTANCE_GROUPS = 12
"""Points of the curves over the distance to a labelled frame."""
EVENLY_CHOSEN_FRAMES = 6
"""Pictures where no frame has a score."""


@dataclass(frozen=True)
class PseudoFrame:
    """The pseudo label of one unlabelled frame."""

    ids: np.ndarray
    """Class ids of the view, at training size."""
    confidence: float
    """Mean over the view."""
    distance: int
    """Frames to the nearest labelled one of the same video; 0 if there is none."""
    iou: float | None
    """IoU with the truth, if the frame has a valid mask."""


@dataclass(frozen=True)
class PseudoQuality:
    """A sample of a run's pseudo labels with their scores."""

    frames: Mapping[FrameKey, PseudoFrame]
    judged: int
    """Number of frames with a truth."""
    miou: float | None
    pa: float | None


def pseudo_qualities(context: ReportContext) -> dict[int, PseudoQuality]:
    """FrameScorer the pseudo labels of the runs that keep them, by the runs' numbers."""
    qualities = {}
    for place, run in enumerate(context.runs):
        if run.pseudo_stage is None or run.labelled_share == 1 or (judge := context.judge_for(run)) is None:
            continue
        recorded = {
            name: (video["excluded"], video.get("take_every", 1), video.get("masked", []))
            for name, video in run.videos("train").items()
        }
        if recorded != {v.id: (sorted(v.excluded), v.take_every, v.masked) for v in judge.dataset.split("train")}:
            context.remarks.append(
                f"The training frames have changed since {run.title} was trained: its pseudo labels are left out."
            )
            continue
        qualities[place] = judge_pseudo_labels(run.pseudo_stage, run.folder, judge, Labelling(run.labelled))
    return qualities


def judge_pseudo_labels(stage: PseudoLabels, folder: Path, judge: FrameScorer, labelling: Labelling) -> PseudoQuality:
    """FrameScorer pseudo labels of a run folder: of frames with masks, or of any frames if none has one."""
    dataset = judge.dataset
    frames = TrainingFrames(dataset, labelling, pixels=None)
    load_pseudo_labels(stage.folder(folder), frames)
    numbers = {(frames.places[n][0].id, frames.places[n][1]): n for n in frames.unlabelled.tolist()}
    masked = [key for key in numbers if dataset[key[0]].frames[key[1]].mask is not None]
    results: dict[FrameKey, PseudoFrame] = {}
    total, truths = judge.scorer(), 0
    for name, indices in sample(by_video(masked or numbers), MAX_JUDGED_LABELS).items():
        for index in indices:
            key = (name, index)
            ids = np.asarray(frames.pseudo[numbers[key]])
            truth = judge.truth(key)
            truths += truth is not None
            scorer = judge.score(key, resize_into_frame(ids, dataset[name]), truth)
            total += scorer
            confidence = stage.confidence(frames.confidence[numbers[key]])
            results[key] = PseudoFrame(
                ids,
                float(mean(np.where(ids == IGNORE, np.nan, confidence))),
                _distance(index, labelling[name]),
                judge.overall(scorer, "miou_frames"),
            )
    return PseudoQuality(results, truths, judge.overall(total, "miou"), judge.overall(total, "pa"))


def pseudo_section(
    context: ReportContext, qualities: Mapping[int, PseudoQuality], has_pictures: bool
) -> dict[str, Any] | None:
    """Return sentences and charts; None without pseudo labels and pictures."""
    if not qualities and not has_pictures:
        return None
    runs: dict[str, list[str]] = {}
    for place, run in enumerate(context.runs):
        if place in qualities or (has_pictures and place in context.models):
            runs.setdefault(_description(run, qualities.get(place)), []).append(run.title)
    return {
        "descriptions": [f"{listed(titles)}: {text}" for text, titles in runs.items()],
        "runs": len(qualities),
        "iou": _distance_chart(context, qualities, "IoU of a frame", lambda frame: frame.iou),
        "confidence": _distance_chart(context, qualities, "confidence", lambda frame: frame.confidence),
    }


def pseudo_pictures(context: ReportContext, qualities: Mapping[int, PseudoQuality]) -> Gallery | None:
    """Return unlabelled training frames with truth, pseudo labels and final predictions."""
    if not (qualities or context.models) or (judge := context.judge_for(context.first)) is None:
        return None
    videos = {video.id: video for video in judge.dataset}
    runs = [run for n, run in enumerate(context.runs) if n in qualities or n in context.models]
    runs = [run for run in runs if run.labelled_share < 1]
    unlabelled = _unlabelled_frames(runs, videos)
    if qualities:
        scores = _pseudo_scores(unlabelled, qualities)
    else:
        masked = [(name, index) for name, index in unlabelled if index in videos[name].masks]
        judged = frame_scores(context, judge, videos, sample(by_video(masked), MAX_JUDGED_FRAMES)) if masked else {}
        scores = {key: judged.get(key, []) for key in unlabelled}
    scored = {key: values for key, values in scores.items() if values}
    keys = list(scores)
    chosen = pick(scored, each=2) if scored else {keys[i]: [EVENLY] for i in evenly(len(keys), EVENLY_CHOSEN_FRAMES)}
    if not chosen:
        return None
    truths = judge.truths(chosen)
    panels = [Panel("truth", "truth", truths)] if truths else []
    for place, quality in qualities.items():
        labels = {key: resize_into_frame(quality.frames[key].ids, videos[key[0]]) for key in chosen}
        panels.append(Panel.of_predictions(f"pseudo label of {context.runs[place].title}", labels, judge, truths))
    predicted = context.predicted_panels(videos, chosen, judge, truths)
    for panel, model in zip(predicted, context.models.values(), strict=True):
        panel.title = f"{'teacher of ' if model.run.has_teacher else ''}{panel.title}, final"
    first = next(iter(qualities.values()), None)
    notes = {key: _note(key, first.frames[key] if first else None, runs[0]) for key in chosen}
    return Gallery(videos, chosen, panels + predicted, notes, candidates=len(scored))


def over_distance(distances: Sequence[int], values: Sequence[float]) -> list[tuple[float, float, int]]:
    """Return mean distance, mean value and count of frames about equally far from a labelled one, nearest first.

    >>> over_distance([1, 1, 2], [0.5, 1.0, 0.25])
    [(1.0, 0.75, 2), (2.0, 0.25, 1)]
    """
    order, measured = np.array(distances, float), np.array(values, float)
    edges = np.unique(order)
    if len(edges) > MAX_DISTANCE_GROUPS:
        edges = np.unique(np.quantile(edges, np.arange(MAX_DISTANCE_GROUPS) / MAX_DISTANCE_GROUPS))
    group = np.searchsorted(edges, order, side="right")
    return [
        (float(order[group == g].mean()), float(measured[group == g].mean()), int((group == g).sum()))
        for g in np.unique(group)
    ]


def _description(run: ReportedRun, quality: PseudoQuality | None) -> str:
    if quality is None:
        model = "the teacher" if run.has_teacher else "the model"
        return f"no pseudo labels are kept; the pictures show the predictions of {model} at the end of training."
    if quality.miou is None:
        return "its pseudo labels have no masks to be judged by, so only their confidence is known."
    return (
        f"its pseudo labels have {percent(quality.miou)} mIoU and {percent(quality.pa)} pixel accuracy, on "
        f"{quality.judged} unlabelled training frames with masks (chosen evenly if there are more). These masks "
        "were not used in training."
    )


def _unlabelled_frames(runs: Sequence[ReportedRun], videos: Mapping[str, Video]) -> list[FrameKey]:
    """Return the training frames that none of the runs has a label of."""
    shared = set.intersection(*(set(run.videos("train")) for run in runs)) if runs else set()
    return [
        (name, index)
        for name, video in videos.items()
        if name in shared
        for index in sorted(set(video.usable).difference(*(run.labelled[name] for run in runs)))
    ]


def _pseudo_scores(
    unlabelled: Sequence[FrameKey], qualities: Mapping[int, PseudoQuality]
) -> dict[FrameKey, list[float]]:
    """Return the IoUs of the unlabelled frames that all runs have pseudo labels of."""
    keys, samples = set(unlabelled), [quality.frames for quality in qualities.values()]
    common = [key for key in samples[0] if key in keys and all(key in frames for frames in samples)]
    return {key: [iou for frames in samples if (iou := frames[key].iou) is not None] for key in common}


def _note(key: FrameKey, frame: PseudoFrame | None, run: ReportedRun) -> str:
    distance = frame.distance if frame else _distance(key[1], run.labelled[key[0]])
    parts = [f"{number(distance, 'frame')} from a labelled one"] if distance else []
    if frame:
        parts.append(f"mean confidence {percent(frame.confidence)} %")
    return ", ".join(parts)


def _distance(index: int, labelled: Sequence[int]) -> int:
    """Return the number of frames to the nearest labelled one; 0 if there is none."""
    return min((abs(index - one) for one in labelled), default=0)


def _distance_chart(
    context: ReportContext,
    qualities: Mapping[int, PseudoQuality],
    label: str,
    value: Callable[[PseudoFrame], float | None],
) -> Markup | None:
    series = []
    for place, quality in qualities.items():
        measured = [(frame.distance, value(frame)) for frame in quality.frames.values() if frame.distance]
        known = [(distance, 100 * at) for distance, at in measured if at is not None and np.isfinite(at)]
        if known:
            distances, values = zip(*known, strict=True)
            x, y, _ = zip(*over_distance(distances, values), strict=True)
            series.append(Series(context.runs[place].title, place, x, y, (distances, values)))
    if not series:
        return None
    return line_chart("pseudo labels", series, "frames to the nearest labelled one", label, (0, 100))
