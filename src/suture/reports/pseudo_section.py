"""Quality of pseudo labels over the distance to the nearest labelled frame, and pictures of unlabelled frames."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from suture.core.errors import UserError
from suture.core.text import number
from suture.data.classes import IGNORE
from suture.data.labelling import Labelling
from suture.data.read_scenes import resize_into_frame
from suture.data.sampling.frames import TrainingFrames
from suture.evaluation.metrics import mean
from suture.methods.pseudo_labels import PseudoLabels, load_pseudo_labels
from suture.reports.charts import Series, line_chart, run_label
from suture.reports.frame_choice import EVENLY, FrameKey, by_video, evenly, pick, sample
from suture.reports.frame_scorer import FrameScorer
from suture.reports.gallery import Gallery
from suture.reports.predictions_section import frame_scores
from suture.reports.report_context import ReportContext
from suture.reports.scores_section import percent
from suture.web.table import Table

MAX_JUDGED_LABELS = 240
"""Pseudo labels of a run that are judged."""
MAX_DISTANCE_GROUPS = 12
"""Points of the curves over the distance to a labelled frame."""
EVENLY_CHOSEN_FRAMES = 6
"""Pictures where no frame has a score."""
TITLES = {"iou": "IoU of a frame", "confidence": "confidence"}
"""Titles of the charts over the distance."""


@dataclass(frozen=True)
class PseudoFrame:
    """Scores of the pseudo label of one unlabelled frame."""

    distance: int
    """Frames to the nearest labelled one of the same video; 0 if there is none."""
    confidence: float
    """Mean over the view."""
    iou: float
    """IoU with the truth; NaN without a valid mask."""


@dataclass(frozen=True)
class PseudoQuality:
    """Pseudo labels of a run, with the scores of a sample."""

    read: Callable[[FrameKey], np.ndarray]
    """Reads the class ids of a frame at native resolution."""
    frames: Mapping[FrameKey, PseudoFrame]
    miou: float | None
    pa: float | None


def pseudo_qualities(context: ReportContext) -> dict[int, PseudoQuality]:
    """Score the pseudo labels of the runs that keep them, by the runs' numbers."""
    qualities = {}
    for place, run in enumerate(context.runs):
        if run.pseudo_stage is None or run.labelled_share == 1 or (judge := context.judge_of(run)) is None:
            continue
        try:
            qualities[place] = judge_pseudo_labels(run.pseudo_stage, run.folder, judge, Labelling(run.labelled))
        except UserError as error:
            remark = f"The pseudo labels of {run.title} do not fit the training frames and are left out."
            context.warn(f"The pseudo labels of {run.title} are left out", error, remark)
    return qualities


def judge_pseudo_labels(stage: PseudoLabels, folder: Path, judge: FrameScorer, labelling: Labelling) -> PseudoQuality:
    """Score pseudo labels of a run folder: of frames with masks, or of any frames if none has one."""
    dataset = judge.dataset
    frames = TrainingFrames(dataset, labelling, pixels=None)
    load_pseudo_labels(stage.folder(folder), frames)
    numbers = {(frames.places[n][0].id, frames.places[n][1]): n for n in frames.unlabelled.tolist()}

    def read(key: FrameKey) -> np.ndarray:
        return resize_into_frame(np.asarray(frames.pseudo[numbers[key]]), dataset[key[0]])

    masked = [key for key in numbers if dataset[key[0]].frames[key[1]].mask is not None]
    total = judge.scorer()
    results = {}
    for name, indices in sample(by_video(masked or numbers), MAX_JUDGED_LABELS).items():
        for key in ((name, index) for index in indices):
            scorer = judge.score(key, read(key), judge.truth(key))
            total += scorer
            confidence = stage.confidence(frames.confidence[numbers[key]])
            inside = np.asarray(frames.pseudo[numbers[key]]) != IGNORE
            iou = judge.overall(scorer, "miou_frames")
            results[key] = PseudoFrame(
                _distance(key, labelling),
                float(mean(np.where(inside, confidence, np.nan))),
                np.nan if iou is None else iou,
            )
    return PseudoQuality(read, results, judge.overall(total, "miou"), judge.overall(total, "pa"))


def pseudo_section(context: ReportContext, qualities: Mapping[int, PseudoQuality]) -> dict[str, Any] | None:
    """Return scores and charts; None without pseudo labels."""
    if not qualities:
        return None
    rows = [
        [run_label(context.runs[n].title, n), str(len(one.frames)), percent(one.miou), percent(one.pa)]
        for n, one in qualities.items()
    ]
    charts = [(title, _distance_chart(context, qualities, name)) for name, title in TITLES.items()]
    return {
        "table": Table.of_text(["run", "judged frames", "mIoU", "pixel accuracy"], rows),
        "charts": [(title, chart) for title, chart in charts if chart],
        "runs": len(qualities),
    }


def pseudo_pictures(context: ReportContext, qualities: Mapping[int, PseudoQuality]) -> Gallery | None:
    """Return unlabelled training frames with truth, pseudo labels and final predictions."""
    runs = [model.run for model in context.models.values() if model.run.labelled_share < 1]
    if not runs or (judge := context.judge_of(runs[0])) is None:
        return None
    shared = [name for name in runs[0].labelled if all(name in run.labelled for run in runs)]
    labelled = Labelling({name: [index for run in runs for index in run.labelled[name]] for name in shared})
    videos = {name: judge.dataset[name] for name in shared}
    frames = {name: sorted({*video.usable} - {*labelled[name]}) for name, video in videos.items()}
    masked = {name: [index for index in indices if index in videos[name].masks] for name, indices in frames.items()}
    scores = frame_scores(context, judge, videos, masked)
    keys = [(name, index) for name, indices in frames.items() for index in indices]
    chosen = pick(scores, each=2) or {keys[i]: [EVENLY] for i in evenly(len(keys), EVENLY_CHOSEN_FRAMES)}
    if not chosen:
        return None
    drafts = {
        f"pseudo label of {model.run.title}": qualities[place].read
        for place, model in context.models.items()
        if place in qualities
    }
    notes = {key: f"{number(_distance(key, labelled), 'frame')} from a labelled one" for key in chosen}
    return context.pictures(videos, chosen, judge, drafts, notes=notes, candidates=len(scores))


def over_distance(distances: Sequence[int], values: Sequence[float]) -> list[tuple[float, float]]:
    """Return mean distance and mean value of groups of frames about equally far from a labelled one, nearest first.

    >>> over_distance([2, 1, 1], [0.25, 0.5, 1.0])
    [(1.0, 0.75), (2.0, 0.25)]
    """
    groups = np.array_split(np.argsort(distances, kind="stable"), min(MAX_DISTANCE_GROUPS, len({*distances})))
    return [(float(np.take(distances, g).mean()), float(np.take(values, g).mean())) for g in groups]


def _distance(key: FrameKey, labelling: Labelling) -> int:
    """Return the number of frames to the nearest labelled one; 0 if there is none."""
    return min((abs(key[1] - one) for one in labelling[key[0]]), default=0)


def _distance_chart(context: ReportContext, qualities: Mapping[int, PseudoQuality], name: str) -> Markup:
    series = []
    for place, quality in qualities.items():
        frames = [frame for frame in quality.frames.values() if frame.distance and np.isfinite(getattr(frame, name))]
        if frames:
            distances, values = [frame.distance for frame in frames], [100 * getattr(frame, name) for frame in frames]
            x, y = zip(*over_distance(distances, values), strict=True)
            series.append(Series(context.runs[place].title, place, x, y, (distances, values)))
    return line_chart("pseudo labels", series, "frames to the nearest labelled one", TITLES[name])
