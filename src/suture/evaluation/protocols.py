"""A dataset's protocol at work: what of the counts in a `Scorer` becomes the table.

Both ways to average are always computed, because they answer different questions: `miou` from one confusion matrix over
all frames (does it get the pixels right?), `miou_frames` per frame over the classes present in that frame's truth and
then over frames (does it get every frame right?). A protocol says which of them is the primary score.

The same protocol scores new videos and completion, the unlabelled frames of labelled training videos: the caller feeds
the frames.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from suture.data.scoring_rules import Protocol
from suture.evaluation.metrics import (
    FrameScore,
    Scorer,
    boundary_f,
    class_accuracy,
    dice,
    falsely_present,
    iou,
    json_ready,
    mean,
    pixel_accuracy,
    present,
    surface_dice,
)

NEW_VIDEOS = "new videos"
COMPLETION = "completion"

Case = TypeVar("Case")


def scorer_of(protocol: Protocol, names: Sequence[str]) -> Scorer:
    """A scorer for masks with these classes."""
    protocol.validate_classes(names)
    return Scorer(names, left_out=protocol.left_out, boundary_tolerance=protocol.boundary_tolerance)


def score(protocol: Protocol, scorer: Scorer, cases: Mapping[str, str] | None = None) -> dict[str, Any]:
    """All scores of the frames in `scorer`, as shares of 1, ready for JSON: None where a score has no meaning.

    `cases` gives the case of each video; without it every video is one. Overall, per case and per video there are

    - `miou`, `dice`, `pac`: means over the classes, and `pa`, from one confusion matrix of all frames;
    - `miou_frames`: mean over frames of the mean IoU of the classes present in the frame's truth;
    - `nsd`, `boundary_f`: means over the classes, see below;
    - `consistency`: mean IoU of the predictions of consecutive frames, and `consistency_truth` that of their true masks
      (things move: a prediction that is steadier than the truth lags behind, one that is less steady flickers);
    - per video also `class_iou`: the IoU of each class in it.

    Per class there are `iou`, `dice`, `accuracy`, the number of `frames` with it, and

    - `false_presence`: share of the frames without the class in which it is predicted on more than 0.1 % of the view;
    - `nsd`, `boundary_f`: mean over the frames in which it has a boundary, true or predicted; None where ignored pixels
      leave no boundary in any true mask.

    `left_out` are the classes without a score; `confusion` is the matrix of all frames as `metrics.confusion` lays it
    out.
    """
    if scorer.left_out != set(protocol.left_out):
        raise ValueError(f"the scorer was not made by scorer_of() for {protocol.name}")
    videos: dict[str, list[FrameScore]] = {}
    for (video, _), frame in sorted(scorer.frames.items(), key=lambda item: item[0]):
        videos.setdefault(video, []).append(frame)
    of_case: dict[str, list[FrameScore]] = {}
    for video, frames in videos.items():
        of_case.setdefault(cases[video] if cases else video, []).extend(frames)

    rules = _Rules(protocol, scorer.names)
    everything = [frame for frames in videos.values() for frame in frames]
    overall = rules.summary(everything)
    result = {
        "protocol": protocol.name,
        "notes": protocol.notes,
        "left_out": protocol.left_out,
        "per_sequence": protocol.per_sequence,
        "boundary_tolerance": scorer.boundary_tolerance,
        "primary": {
            "score": protocol.primary,
            "value": overall[protocol.primary],
            "interval": rules.interval(list(of_case.values())),
        },
        "overall": overall,
        "classes": rules.classes(everything),
        "confusion": scorer.matrix(),
        "cases": {case: rules.summary(frames) for case, frames in of_case.items()},
        "videos": {
            video: rules.summary(frames) | {"class_iou": rules.class_iou(frames)} for video, frames in videos.items()
        },
    }
    return json_ready(result)


class _Rules:
    """A protocol applied to the classes of a dataset."""

    def __init__(self, protocol: Protocol, names: Sequence[str]) -> None:
        self.protocol = protocol
        self.names = names
        counted = protocol.counted(names)
        # Which classes enter the means; one that is neither true nor predicted is NaN, which `mean` leaves out.
        self.counted = np.array([name in counted for name in names])

    def summary(self, frames: Sequence[FrameScore]) -> dict[str, Any]:
        matrices, boundaries = self._stack(frames)
        total = matrices.sum(0)
        steady = np.array([frame.steadiness for frame in frames if frame.steadiness]).reshape(-1, 2)
        prediction_steadiness, truth_steadiness = mean(steady, axis=0)
        return {
            "frames": len(frames),
            "miou": self._miou(total),
            "miou_frames": mean(self._frame_mious(matrices)),
            "dice": mean(dice(total)[self.counted]),
            "pa": pixel_accuracy(total),
            "pac": mean(class_accuracy(total)[self.counted]),
            "nsd": mean(_outlines(surface_dice, boundaries)[self.counted]),
            "boundary_f": mean(_outlines(boundary_f, boundaries)[self.counted]),
            "consistency": prediction_steadiness,
            "consistency_truth": truth_steadiness,
        }

    def classes(self, frames: Sequence[FrameScore]) -> dict[str, dict[str, Any]]:
        matrices, boundaries = self._stack(frames)
        total = matrices.sum(0)
        columns = {
            "iou": iou(total),
            "dice": dice(total),
            "accuracy": class_accuracy(total),
            "nsd": _outlines(surface_dice, boundaries),
            "boundary_f": _outlines(boundary_f, boundaries),
            "false_presence": mean(falsely_present(matrices), axis=0),
            "frames": present(matrices).sum(0),
        }
        return {
            name: {score: values[i] for score, values in columns.items()}
            for i, name in enumerate(self.names)
            if name not in self.protocol.left_out
        }

    def class_iou(self, frames: Sequence[FrameScore]) -> dict[str, float]:
        values = iou(self._stack(frames)[0].sum(0))
        return {name: float(values[i]) for i, name in enumerate(self.names) if name not in self.protocol.left_out}

    def interval(self, cases: Sequence[Sequence[FrameScore]]) -> tuple[float, float] | None:
        """Interval of the primary score; each case is boiled down first, so that resampling is quick."""
        matrices = [self._stack(frames)[0] for frames in cases]
        minimum = self.protocol.minimum_cases
        if self.protocol.primary == "miou":
            totals = [matrix.sum(0) for matrix in matrices]
            return case_interval(totals, lambda drawn: self._miou(np.sum(drawn, axis=0)), minimum=minimum)
        values = [self._frame_mious(matrix) for matrix in matrices]
        return case_interval(values, lambda drawn: float(mean(np.concatenate(drawn))), minimum=minimum)

    def _miou(self, total: np.ndarray) -> float:
        return float(mean(iou(total)[self.counted]))

    def _frame_mious(self, matrices: np.ndarray) -> np.ndarray:
        return mean(np.where(present(matrices) & self.counted, iou(matrices), np.nan), axis=-1)

    def _stack(self, frames: Sequence[FrameScore]) -> tuple[np.ndarray, np.ndarray]:
        classes = len(self.names)
        matrices = np.array([frame.matrix for frame in frames], np.int64).reshape(-1, classes + 1, classes + 1)
        return matrices, np.array([frame.boundary for frame in frames], np.int64).reshape(-1, classes, 4)


def _outlines(score: Callable[[np.ndarray], np.ndarray], boundaries: np.ndarray) -> np.ndarray:
    """A score of each class's outlines, mean over frames; NaN where no true one is known, as then none can be right."""
    values = mean(score(boundaries), axis=0)
    return values if boundaries[..., 3].any() else np.full_like(values, np.nan)


def _mean_of(values: Sequence[Any]) -> float:
    return float(mean(np.asarray(values)))


def case_interval(
    cases: Sequence[Case],
    statistic: Callable[[Sequence[Case]], float] = _mean_of,
    *,
    minimum: int = 5,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of a statistic of cases; None with fewer than `minimum` of them.

    Frames of one case are alike, so whole cases are drawn: anything finer would look far too certain. A case is a
    number, or whatever `statistic` takes a list of.

    >>> case_interval([0.5, 0.6, 0.7, 0.8])
    >>> low, high = case_interval([0.5, 0.6, 0.7, 0.8, 0.9])
    >>> 0.5 < low < 0.7 < high < 0.9
    True
    """
    if len(cases) < minimum:
        return None
    draws = np.random.default_rng(seed).integers(len(cases), size=(resamples, len(cases)))
    values = np.array([statistic([cases[i] for i in draw]) for draw in draws])
    values = values[~np.isnan(values)]  # a draw may miss every class that is scored
    if not len(values):
        return None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
