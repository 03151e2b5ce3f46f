"""How good pseudo labels are, over the distance to the nearest labelled frame; and what is said of unlabelled frames.

Runs that keep no pseudo labels have pictures alone: what the finished model says of unlabelled training frames.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from markupsafe import Markup

from suture.core.text import listed
from suture.core.text import number as counted
from suture.data.classes import IGNORE
from suture.data.dataset import Video
from suture.data.labelling import Labelling
from suture.data.read_scenes import paste_in_frame
from suture.data.sampling.frames import TrainingFrames
from suture.evaluation.metrics import mean
from suture.methods.pseudo_labels import PseudoLabels, load_pseudo_labels
from suture.reports.charts import Series, line_chart
from suture.reports.context import Context
from suture.reports.inference_cache import Place
from suture.reports.overlays import EVENLY, Gallery, Judge, Panel, by_video, evenly, pick, sample
from suture.reports.predictions_section import JUDGED, frame_scores
from suture.reports.run_facts import RunFacts
from suture.reports.scores_section import percent
from suture.training.callbacks import bar


@dataclass(frozen=True)
class PseudoFrame:
    """The pseudo label of one unlabelled frame."""

    ids: np.ndarray
    """Of the view, at training size."""
    confidence: float
    """Mean over the view."""
    distance: int
    """Frames to the nearest labelled one of the same video; 0 where there is none."""
    iou: float | None
    """Against the truth, where the frame has a mask that can be used."""


@dataclass(frozen=True)
class PseudoQuality:
    """A sample of a run's pseudo labels, and what they are worth together."""

    frames: Mapping[Place, PseudoFrame]
    judged: int
    """How many of them have a truth."""
    miou: float | None
    pa: float | None


def pseudo_labels(context: Context) -> dict[int, PseudoQuality]:
    """The quality of the runs' pseudo labels, by the runs' numbers."""
    found = {}
    for number, run in enumerate(context.runs):
        if run.pseudo is None or run.all_labelled:
            continue
        if (judge := context.judge_of_training(run)) is not None:
            trained = {
                name: (video["excluded"], video.get("take_every", 1), video.get("masked", []))
                for name, video in run.videos("train").items()
            }
            today = {v.id: (sorted(v.excluded), v.take_every, v.masked) for v in judge.dataset.split("train")}
            if trained != today:
                context.remarks.append(
                    "The training videos, or the frames that take part, are others now than when "
                    f"{run.name} was trained: its pseudo labels are left out."
                )
                continue
            labelling = Labelling({video: run.labelled(video) for video in run.data["videos"]})
            found[number] = pseudo_quality(run.pseudo, run.run.folder, judge, labelling)
    return found


def pseudo_section(context: Context, found: Mapping[int, PseudoQuality], pictures: bool) -> dict[str, Any] | None:
    """The numbers and charts of the page's section, and what its pictures show, where it has any."""
    if not found and not pictures:
        return None
    said: dict[str, list[str]] = {}
    for number, run in enumerate(context.runs):
        if number in found or (pictures and number in context.models):
            said.setdefault(_about(run, found.get(number)), []).append(run.name)
    return {
        "said": [f"{listed(names)}: {sentence}" for sentence, names in said.items()],
        "runs": len(found),
        "iou": _distance_chart(context, found, "IoU of a frame", lambda frame: frame.iou),
        "confidence": _distance_chart(context, found, "confidence", lambda frame: frame.confidence),
    }


def pseudo_pictures(context: Context, found: Mapping[int, PseudoQuality]) -> Gallery | None:
    """Unlabelled training frames: truth, pseudo labels where runs keep them, and what the finished runs say."""
    if not (found or context.models) or (judge := context.judge_of_training(context.first)) is None:
        return None
    videos = {video.id: video for video in judge.dataset}
    shown = [run for number, run in enumerate(context.runs) if number in found or number in context.models]
    runs = [run for run in shown if not run.all_labelled]
    unlabelled = _unlabelled(runs, videos)
    scores = _kept_scores(unlabelled, found) if found else _final_scores(context, judge, videos, unlabelled)
    known = {place: values for place, values in scores.items() if values}
    places = list(scores)
    chosen = pick(known, each=2) if known else {places[i]: [EVENLY] for i in evenly(len(places), 6)}
    if not chosen:
        return None
    truths = judge.truths(chosen)
    panels = [Panel("truth", "truth", truths)] if truths else []
    for number, of_run in found.items():
        labels = {place: native(of_run.frames[place].ids, videos[place[0]]) for place in chosen}
        panels.append(judge.panel(f"pseudo label of {context.runs[number].name}", labels, truths))
    frames = by_video(sorted(chosen))
    with bar("predict training frames", len(chosen) * len(context.models), context.console) as (progress, task):
        for model in context.models.values():
            masks = dict(model.masks(videos, frames, lambda done: progress.advance(task, done)))
            panels.append(judge.panel(f"{_speaker(model.run)}, final", masks, truths))
    quality = next(iter(found.values()), None)
    notes = {}
    for name, index in chosen:
        one = quality.frames[name, index] if quality else None
        distance = one.distance if one else _distance(index, runs[0].labelled(name))
        far = f"{counted(distance, 'frame')} from a labelled one" if distance else ""
        sure = f"mean confidence {percent(one.confidence)} %" if one else ""
        notes[name, index] = ", ".join(part for part in (far, sure) if part)
    return Gallery(videos, chosen, panels, notes, among=len(known))


def pseudo_quality(
    stage: PseudoLabels, folder: Path, judge: Judge, labelling: Labelling, most: int = 240
) -> PseudoQuality:
    """Judge at most so many pseudo labels of a run folder: of frames with masks, or of any where none has one."""
    dataset = judge.dataset
    frames = TrainingFrames(dataset, labelling, pixels=None)
    load_pseudo_labels(stage.folder(folder), frames)
    places = {(frames.places[n][0].id, frames.places[n][1]): n for n in frames.unlabelled.tolist()}
    judged = {place: number for place, number in places.items() if dataset[place[0]].frames[place[1]].mask is not None}
    found: dict[Place, PseudoFrame] = {}
    everything, truths = judge.scorer(), 0
    for name, indices in sample(by_video(judged or places), most).items():
        video, known = dataset[name], labelling[name]
        for index in indices:
            number = places[name, index]
            ids = np.asarray(frames.pseudo[number])
            truth = judge.truth((name, index))
            truths += truth is not None
            scored = judge.scored((name, index), native(ids, video), truth)
            everything += scored
            found[name, index] = PseudoFrame(
                ids,
                float(mean(np.where(ids == IGNORE, np.nan, stage.confidence(frames.confidence[number])))),
                _distance(index, known),
                judge.overall(scored, "miou_frames"),
            )
    return PseudoQuality(found, truths, judge.overall(everything, "miou"), judge.overall(everything, "pa"))


def native(ids: np.ndarray, video: Video) -> np.ndarray:
    """Class ids of the view at some size, as those of the whole frame."""
    size = (video.view.width, video.view.height)
    return paste_in_frame(cv2.resize(ids, size, interpolation=cv2.INTER_NEAREST_EXACT), video)


def over_distance(distances: Sequence[int], values: Sequence[float], most: int = 12) -> list[tuple[float, float, int]]:
    """Mean distance, mean value and count of frames that are about equally far from a labelled one, nearest first.

    >>> over_distance([1, 1, 2], [0.5, 1.0, 0.25])
    [(1.0, 0.75, 2), (2.0, 0.25, 1)]
    """
    order = np.array(distances, float)
    measured = np.array(values, float)
    unique = np.unique(order)
    edges = unique if len(unique) <= most else np.unique(np.quantile(unique, np.arange(most) / most))
    group = np.searchsorted(edges, order, side="right")
    return [
        (float(order[group == g].mean()), float(measured[group == g].mean()), int((group == g).sum()))
        for g in np.unique(group)
    ]


def _about(run: RunFacts, quality: PseudoQuality | None) -> str:
    """What is known of a run's pseudo labels, or what the pictures show instead."""
    if quality is not None:
        if quality.miou is None:
            return "its pseudo labels have no masks to be judged by, so only their confidence is known."
        return (
            f"its pseudo labels have {percent(quality.miou)} mIoU and {percent(quality.pa)} pixel accuracy, on "
            f"{quality.judged} unlabelled training frames with masks (taken evenly where there are more). These masks "
            "were not used in training."
        )
    if run.all_labelled:
        return (
            "no training frame was without a label; "
            "shown is what the final model says of frames that had none in the other runs."
        )
    if run.taught is not None:
        speaker = "the teacher" if run.taught.hands_on_teacher else "the student, which followed it,"
        return (
            "a teacher said the pseudo labels anew in every step, and none were kept; "
            f"shown is what {speaker} says at the end of training."
        )
    if any(isinstance(stage.stage, PseudoLabels) for stage in run.stages):
        return "the pseudo labels are not there to be shown; shown is what the final model says."
    return "no pseudo labels were learnt from; shown is what the final model says of unlabelled training frames."


def _speaker(run: RunFacts) -> str:
    """Whose predictions the final ones of a run are."""
    return f"teacher of {run.name}" if run.taught is not None and run.taught.hands_on_teacher else run.name


def _unlabelled(runs: Sequence[RunFacts], videos: Mapping[str, Video]) -> list[Place]:
    """The training frames that had no label in any of these runs."""
    trained = [run.videos("train") for run in runs]
    return [
        (name, index)
        for name, video in videos.items()
        if trained and all(name in of_run for of_run in trained)
        for index in sorted(set(video.usable).difference(*(run.labelled(name) for run in runs)))
    ]


def _kept_scores(unlabelled: Sequence[Place], found: Mapping[int, PseudoQuality]) -> dict[Place, list[float]]:
    """The IoU of pseudo labels of the unlabelled frames that all runs with pseudo labels have."""
    shown = set(unlabelled)
    first, *others = (quality.frames for quality in found.values())
    common = [place for place in first if place in shown and all(place in frames for frames in others)]
    return {
        place: [score for frames in (first, *others) if (score := frames[place].iou) is not None] for place in common
    }


def _final_scores(
    context: Context, judge: Judge, videos: Mapping[str, Video], unlabelled: Sequence[Place]
) -> dict[Place, list[float]]:
    """The unlabelled frames, with the IoU in every finished run of some that have a mask."""
    masked = [(name, index) for name, index in unlabelled if index in videos[name].masks]
    scores = frame_scores(context, judge, videos, sample(by_video(masked), JUDGED)) if masked else {}
    return {place: scores.get(place, []) for place in unlabelled}


def _distance(index: int, labelled: Sequence[int]) -> int:
    """Frames to the nearest labelled one; 0 where there is none."""
    return min((abs(index - one) for one in labelled), default=0)


def _distance_chart(
    context: Context,
    found: Mapping[int, PseudoQuality],
    label: str,
    value: Callable[[PseudoFrame], float | None],
) -> Markup | None:
    series = []
    for number, quality in found.items():
        measured = [(frame.distance, value(frame)) for frame in quality.frames.values() if frame.distance]
        known = [(distance, 100 * at) for distance, at in measured if at is not None and np.isfinite(at)]
        if known:
            distances, values = zip(*known, strict=True)
            means = over_distance(distances, values)
            series.append(
                Series(
                    context.runs[number].name,
                    number,
                    [point[0] for point in means],
                    [point[1] for point in means],
                    (list(distances), list(values)),
                )
            )
    return (
        line_chart("pseudo labels", series, "frames to the nearest labelled one", label, (0, 100)) if series else None
    )
