"""How good pseudo labels are, over the distance to the nearest labelled frame."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from suture.data.classes import IGNORE
from suture.data.dataset import Dataset, Video
from suture.data.labelling import Labelling
from suture.data.scene import in_frame
from suture.data.store import DecodedFrames
from suture.data.training import TrainingFrames
from suture.evaluation.metrics import iou, mean, pixel_accuracy
from suture.methods.pseudo import PseudoLabels, load_pseudo_labels
from suture.report.pictures import Judge, Place, frame_iou, sample


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
    """Against the truth, where the frame has a mask."""


@dataclass(frozen=True)
class PseudoQuality:
    """A sample of a run's pseudo labels, and what they are worth together."""

    frames: Mapping[Place, PseudoFrame]
    miou: float | None
    pa: float | None


def pseudo_quality(
    stage: PseudoLabels, folder: Path, dataset: Dataset, labelling: Labelling, most: int = 240
) -> PseudoQuality:
    """Judge at most so many pseudo labels of a run folder: of frames with masks, or of any where none has one."""
    # No frame's pixels are asked for, so their size does not matter.
    frames = TrainingFrames(dataset, labelling, DecodedFrames(dataset, labelling.frames, size=1))
    load_pseudo_labels(stage.folder(folder), frames)
    places = {(frames.places[n][0].id, frames.places[n][1]): n for n in frames.unlabelled.tolist()}
    judged = {place: number for place, number in places.items() if dataset[place[0]].frames[place[1]].mask is not None}
    by_video: dict[str, list[int]] = {}
    for name, index in judged or places:
        by_video.setdefault(name, []).append(index)
    judge = Judge(dataset)
    found: dict[Place, PseudoFrame] = {}
    matrices = []
    for name, indices in sample(by_video, most).items():
        video, known = dataset[name], labelling[name]
        for index in indices:
            number = places[name, index]
            ids = np.asarray(frames.pseudo[number])
            truth = judge.truth((name, index))
            matrix = None if truth is None else judge.matrix(native(ids, video), truth)
            found[name, index] = PseudoFrame(
                ids,
                float(mean(np.where(ids == IGNORE, np.nan, stage.confidence(frames.confidence[number])))),
                min((abs(index - one) for one in known), default=0),
                None if matrix is None else frame_iou(matrix),
            )
            if matrix is not None:
                matrices.append(matrix)
    total = np.sum(matrices, axis=0) if matrices else None
    return PseudoQuality(
        found,
        None if total is None else float(mean(iou(total))),
        None if total is None else float(pixel_accuracy(total)),
    )


def native(ids: np.ndarray, video: Video) -> np.ndarray:
    """Class ids of the view at some size, as those of the whole frame."""
    size = (video.view.width, video.view.height)
    return in_frame(cv2.resize(ids, size, interpolation=cv2.INTER_NEAREST_EXACT), video)


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
