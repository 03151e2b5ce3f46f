"""Scores of predicted masks against true ones, all from counts.

The confusion matrix of a frame is (C+1)×(C+1): a row per true class and a last one for ignored pixels, a column per
predicted class and a last one for pixels without a prediction. Scores leave out the last row. A pixel of a true class
without a prediction is an error. Pixels outside the view are not counted. Functions take any leading dimensions.

An undefined score (the IoU of a class that is neither true nor predicted) is NaN, and means leave NaN out.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from scipy.spatial import cKDTree

from suture.data.classes import IGNORE

FALSE_PRESENCE_AREA = 0.001
"""Smallest share of the view on which the prediction of an absent class counts as false presence."""
CLASS_DISTANCE = 100_000
"""Distance in pixels put between the boundaries of different classes; larger than any frame."""


def confusion(prediction: np.ndarray, truth: np.ndarray, classes: int) -> np.ndarray:
    """Count the pixels of each pair of true and predicted class: (C+1)×(C+1), int64.

    Masks hold class ids, and `IGNORE` where there is none.

    >>> confusion(np.array([[0, 1, 1, 255]]), np.array([[0, 1, 0, 255]]), classes=2).tolist()
    [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    """
    if prediction.shape != truth.shape:
        raise ValueError(f"prediction of shape {tuple(prediction.shape)}, truth of {tuple(truth.shape)}")
    # Counting all 256 × 256 pairs is faster than masking pixels, and finds unknown ids.
    pairs = truth.astype(np.uint16) << 8 | prediction
    counts = np.bincount(pairs.ravel(), minlength=65536).reshape(256, 256)
    kept = np.r_[:classes, IGNORE]
    matrix = counts[np.ix_(kept, kept)]
    if matrix.sum() != counts.sum():
        unknown = sorted({int(i) for pair in np.argwhere(counts) for i in pair} - set(kept.tolist()))
        raise ValueError(f"masks hold the ids {unknown}, expected 0 to {classes - 1} and {IGNORE}")
    return matrix.astype(np.int64)


def iou(matrix: np.ndarray) -> np.ndarray:
    """Intersection over union of each class."""
    hits, true, predicted = _counts(matrix)
    return _ratio(hits, true + predicted - hits)


def dice(matrix: np.ndarray) -> np.ndarray:
    """Dice coefficient (F1) of each class."""
    hits, true, predicted = _counts(matrix)
    return _ratio(2 * hits, true + predicted)


def class_accuracy(matrix: np.ndarray) -> np.ndarray:
    """Share of each class's true pixels that are predicted as such; PAC is its mean."""
    hits, true, _ = _counts(matrix)
    return _ratio(hits, true)


def pixel_accuracy(matrix: np.ndarray) -> np.ndarray:
    """PA: share of all pixels that are predicted right."""
    hits, true, _ = _counts(matrix)
    return _ratio(hits.sum(-1), true.sum(-1))


def present(matrix: np.ndarray) -> np.ndarray:
    """True for each class in the truth."""
    return _counts(matrix)[1] > 0


def falsely_present(matrix: np.ndarray) -> np.ndarray:
    """1 where an absent class is predicted on more than 0.1 % of the view, else 0; NaN for classes in the truth.

    Ignored pixels belong to the view but count as no prediction.
    """
    _, true, predicted = _counts(matrix)
    view = matrix.sum((-1, -2), keepdims=True)[..., 0]
    return np.where(true > 0, np.nan, predicted > FALSE_PRESENCE_AREA * view)


def mean(values: np.ndarray, axis: int | None = None) -> np.ndarray:
    """Mean of all but NaN; NaN of nothing."""
    values = np.asarray(values, np.float64)
    known = ~np.isnan(values)
    return _ratio(np.where(known, values, 0).sum(axis), known.sum(axis))


def _counts(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correct, true and predicted pixels of each class, where the truth is not ignore."""
    matrix = matrix[..., :-1, :]
    square = matrix[..., :-1]
    return np.diagonal(square, axis1=-2, axis2=-1), matrix.sum(-1), square.sum(-2)


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=np.asarray(whole) > 0)


def boundary_counts(prediction: np.ndarray, truth: np.ndarray, classes: int, tolerance: float) -> np.ndarray:
    """Count each class's boundary pixels (C×4): near and all of the prediction's, near and all of the truth's.

    Near is within `tolerance` pixels (Euclidean) of the other mask's boundary of the same class. A boundary pixel has a
    neighbour (of 4) of another class; the image's edge is no boundary. Boundary pixels with an ignored pixel as close
    (in a square, at least next to them) are left out: the true boundary is not known there.
    """
    reach = 2 * max(1, math.ceil(tolerance)) + 1
    decided = cv2.dilate((truth == IGNORE).astype(np.uint8), np.ones((reach, reach), np.uint8)) == 0
    predicted, true = _boundary(prediction, decided), _boundary(truth, decided)
    predicted_class, true_class = predicted[:, 2] // CLASS_DISTANCE, true[:, 2] // CLASS_DISTANCE
    return np.stack(
        [
            np.bincount(predicted_class[_near(predicted, true, tolerance)], minlength=classes),
            np.bincount(predicted_class, minlength=classes),
            np.bincount(true_class[_near(true, predicted, tolerance)], minlength=classes),
            np.bincount(true_class, minlength=classes),
        ],
        axis=-1,
    )


def _boundary(mask: np.ndarray, decided: np.ndarray) -> np.ndarray:
    """Boundary pixels of all classes as points (y, x, class × `CLASS_DISTANCE`): only pixels of one class are near."""
    edge = np.zeros(mask.shape, bool)
    for one, next_one in ((np.s_[:-1], np.s_[1:]), (np.s_[:, :-1], np.s_[:, 1:])):
        differ = mask[one] != mask[next_one]
        edge[one] |= differ
        edge[next_one] |= differ
    y, x = np.nonzero(edge & decided & (mask != IGNORE))
    return np.stack([y, x, mask[y, x].astype(np.int64) * CLASS_DISTANCE], axis=-1)


def _near(points: np.ndarray, others: np.ndarray, tolerance: float) -> np.ndarray:
    """True for points within the tolerance of one of the others."""
    if not len(points) or not len(others):
        return np.zeros(len(points), bool)
    tree = cKDTree(others, balanced_tree=False, compact_nodes=False)
    distance, _ = tree.query(points, distance_upper_bound=tolerance + 1e-6)
    return np.isfinite(distance)


def surface_dice(counts: np.ndarray) -> np.ndarray:
    """NSD, normalised surface Dice: share of both boundaries' pixels that are within the tolerance of the other."""
    near_p, all_p, near_t, all_t = np.moveaxis(counts, -1, 0)
    return _ratio(near_p + near_t, all_p + all_t)


def agreement(first: np.ndarray, second: np.ndarray, classes: int) -> float:
    """Mean IoU of two masks over the classes in either, where neither is ignore."""
    first = np.where(second == IGNORE, IGNORE, first)
    second = np.where(first == IGNORE, IGNORE, second)
    return float(mean(iou(confusion(first, second, classes))))


@dataclass(frozen=True, slots=True)
class FrameScore:
    """Counts of one frame, from which every score is computed."""

    matrix: np.ndarray
    boundary: np.ndarray
    consistency: tuple[float, float] | None
    """Agreement with the previous frame of the prediction, and of the truth; None if that frame was not scored."""


class Scorer:
    """Counts of every frame scored so far, the input of `suture.evaluation.protocols.score`.

    Add the frames of a video in order, one video after the other. `+` adds the scorers of several processes; a frame
    that two of them scored counts once.

    Args:
        left_out: Classes whose true pixels are ignored.
        boundary_tolerance: In pixels; None leaves out boundaries, which are most of the work.

    >>> scorer = Scorer(("tissue", "tool"))
    >>> mask = np.array([[0, 0, 1, 1]], np.uint8)
    >>> scorer.add("video-1", 0, prediction=mask, truth=mask)
    >>> iou(scorer.matrix()).tolist()
    [1.0, 1.0]
    """

    def __init__(
        self, names: Sequence[str], *, left_out: Iterable[str] = (), boundary_tolerance: float | None = 5
    ) -> None:
        self.names = tuple(names)
        self.left_out = frozenset(left_out)
        self.boundary_tolerance = boundary_tolerance
        self.frames: dict[tuple[str, int], FrameScore] = {}
        self._previous: tuple[str, int, np.ndarray, np.ndarray] | None = None
        self._truth_ids = np.arange(256, dtype=np.uint8)
        self._truth_ids[[self.names.index(name) for name in self.left_out]] = IGNORE

    def add(
        self, video: str, index: int, prediction: np.ndarray, truth: np.ndarray, view: np.ndarray | None = None
    ) -> None:
        """Score one frame at the truth's resolution, inside `view` (H W bool)."""
        classes = len(self.names)
        truth = self.counted(truth)
        if view is None:
            matrix = confusion(prediction, truth, classes)
        else:
            matrix = confusion(prediction[view], truth[view], classes)
            truth = np.where(view, truth, np.uint8(IGNORE))
        prediction = np.where(truth == IGNORE, truth, prediction)
        if self.boundary_tolerance is None:
            boundary = np.zeros((classes, 4), np.int64)
        else:
            boundary = boundary_counts(prediction, truth, classes, self.boundary_tolerance)
        self.frames[video, index] = FrameScore(matrix, boundary, self._consistency(video, index, prediction, truth))
        self._previous = video, index, prediction, truth

    def counted(self, truth: np.ndarray) -> np.ndarray:
        """Set the classes that are left out to ignore in a true mask."""
        return self._truth_ids[truth]

    def _consistency(
        self, video: str, index: int, prediction: np.ndarray, truth: np.ndarray
    ) -> tuple[float, float] | None:
        if self._previous is None or self._previous[:2] != (video, index - 1):
            return None
        _, _, last_prediction, last_truth = self._previous
        if last_truth.shape != truth.shape:
            return None
        classes = len(self.names)
        return agreement(prediction, last_prediction, classes), agreement(truth, last_truth, classes)

    def __add__(self, other: "Scorer") -> "Scorer":
        total = Scorer(self.names, left_out=self.left_out, boundary_tolerance=self.boundary_tolerance)
        total.frames = self.frames | other.frames
        return total

    def matrix(self) -> np.ndarray:
        """One confusion matrix of all frames."""
        return np.sum([frame.matrix for frame in self.frames.values()], axis=0)


def json_ready(value: Any) -> Any:
    """Convert to plain numbers, lists and dicts, with None for NaN."""
    if isinstance(value, dict):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return json_ready(value.tolist())
    return None if isinstance(value, float) and not np.isfinite(value) else value
