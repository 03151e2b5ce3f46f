"""Scores of a dataset's protocol, from the counts in a `Scorer`.

Both averages are always computed: `miou` from one confusion matrix over all frames, and `miou_frames` per frame over
the classes in its truth, then over frames. The protocol names the primary one. New videos and completion (unlabelled
frames of labelled training videos) are scored alike.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from suture.data.scoring_rules import Protocol
from suture.evaluation.metrics import (
    FrameScore,
    Scorer,
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
SEEN = "seen"

Case = TypeVar("Case")


def scorer_of(protocol: Protocol, names: Sequence[str]) -> Scorer:
    """Make a scorer for masks with these classes."""
    protocol.validate_classes(names)
    return Scorer(names, left_out=protocol.left_out, boundary_tolerance=protocol.boundary_tolerance)


def score(protocol: Protocol, scorer: Scorer, cases: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Compute all scores of the frames in `scorer`, as shares of 1, ready for JSON: None where undefined.

    Overall, per case and per video:

    - `miou`, `dice`, `pac`: means over the classes, and `pa`, from one confusion matrix of all frames;
    - `miou_frames`: mean over frames of the mean IoU of the classes in the frame's truth;
    - `nsd`: mean over the classes, see below;
    - `consistency`: mean IoU of the predictions of consecutive frames, and `consistency_truth` of their true masks;
    - per video also `class_iou`: the IoU of each class.

    Per class `iou`, `dice`, `accuracy`, the number of `frames` with it, and

    - `false_presence`: share of the frames without the class in which it is predicted on more than 0.1 % of the view;
    - `nsd`: mean over the frames in which it has a true or predicted boundary; None where no true boundary is known.

    `left_out` are the classes without a score; `confusion` is the matrix of all frames.

    Args:
        cases: Case of each video; by default every video is one.
    """
    if scorer.left_out != set(protocol.left_out):
        raise ValueError(f"the scorer was not made by scorer_of() for {protocol.name}")
    videos: dict[str, list[FrameScore]] = {}
    for (video, _), frame in sorted(scorer.frames.items(), key=lambda item: item[0]):
        videos.setdefault(video, []).append(frame)
    by_case: dict[str, list[FrameScore]] = {}
    for video, frames in videos.items():
        by_case.setdefault(cases[video] if cases else video, []).extend(frames)

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
            "interval": rules.interval(list(by_case.values())),
        },
        "overall": overall,
        "classes": rules.classes(everything),
        "confusion": scorer.matrix(),
        "cases": {case: rules.summary(frames) for case, frames in by_case.items()},
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
        averaged = protocol.counted(names)
        # The classes that enter the means; one that is neither true nor predicted is NaN, which `mean` leaves out.
        self.averaged = np.array([name in averaged for name in names])

    def summary(self, frames: Sequence[FrameScore]) -> dict[str, Any]:
        matrices = self._matrices(frames)
        total = matrices.sum(0)
        consistency = np.array([frame.consistency for frame in frames if frame.consistency]).reshape(-1, 2)
        prediction_consistency, truth_consistency = mean(consistency, axis=0)
        return {
            "frames": len(frames),
            "miou": self._miou(total),
            "miou_frames": mean(self._frame_mious(matrices)),
            "dice": mean(dice(total)[self.averaged]),
            "pa": pixel_accuracy(total),
            "pac": mean(class_accuracy(total)[self.averaged]),
            "nsd": mean(self._surface_dice(frames)[self.averaged]),
            "consistency": prediction_consistency,
            "consistency_truth": truth_consistency,
        }

    def classes(self, frames: Sequence[FrameScore]) -> dict[str, dict[str, Any]]:
        matrices = self._matrices(frames)
        total = matrices.sum(0)
        columns = {
            "iou": iou(total),
            "dice": dice(total),
            "accuracy": class_accuracy(total),
            "nsd": self._surface_dice(frames),
            "false_presence": mean(falsely_present(matrices), axis=0),
            "frames": present(matrices).sum(0),
        }
        return self._by_name(lambda i: {key: values[i] for key, values in columns.items()})

    def class_iou(self, frames: Sequence[FrameScore]) -> dict[str, float]:
        values = iou(self._matrices(frames).sum(0))
        return self._by_name(lambda i: values[i])

    def interval(self, cases: Sequence[Sequence[FrameScore]]) -> tuple[float, float] | None:
        """Interval of the primary score; each case is summed up first, so that resampling is quick."""
        matrices = [self._matrices(frames) for frames in cases]
        minimum = self.protocol.minimum_cases
        if self.protocol.primary == "miou":
            totals = [matrix.sum(0) for matrix in matrices]
            return case_interval(totals, lambda drawn: self._miou(np.sum(drawn, axis=0)), minimum=minimum)
        values = [self._frame_mious(matrix) for matrix in matrices]
        return case_interval(values, lambda drawn: float(mean(np.concatenate(drawn))), minimum=minimum)

    def _by_name(self, value: Callable[[int], Any]) -> dict[str, Any]:
        return {name: value(i) for i, name in enumerate(self.names) if name not in self.protocol.left_out}

    def _miou(self, total: np.ndarray) -> float:
        return float(mean(iou(total)[self.averaged]))

    def _frame_mious(self, matrices: np.ndarray) -> np.ndarray:
        return mean(np.where(present(matrices) & self.averaged, iou(matrices), np.nan), axis=-1)

    def _matrices(self, frames: Sequence[FrameScore]) -> np.ndarray:
        side = len(self.names) + 1
        return np.array([frame.matrix for frame in frames], np.int64).reshape(-1, side, side)

    def _surface_dice(self, frames: Sequence[FrameScore]) -> np.ndarray:
        """NSD of each class, mean over frames; NaN without any true boundary, because then none can be right."""
        boundaries = np.array([frame.boundary for frame in frames], np.int64).reshape(-1, len(self.names), 4)
        values = mean(surface_dice(boundaries), axis=0)
        return values if boundaries[..., 3].any() else np.full_like(values, np.nan)


def case_interval(
    cases: Sequence[Case],
    statistic: Callable[[Sequence[Case]], float] = lambda drawn: float(mean(np.asarray(drawn))),
    *,
    minimum: int = 5,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of a statistic of cases; None with fewer than `minimum` of them.

    Frames of one case are alike, so whole cases are drawn. With single frames, the interval would be far too narrow. A
    case is a number, or any type that `statistic` accepts in a list.

    >>> case_interval([0.5, 0.6, 0.7, 0.8])
    >>> low, high = case_interval([0.5, 0.6, 0.7, 0.8, 0.9])
    >>> 0.5 < low < 0.7 < high < 0.9
    True
    """
    if len(cases) < minimum:
        return None
    draws = np.random.default_rng(seed).integers(len(cases), size=(resamples, len(cases)))
    values = np.array([statistic([cases[i] for i in draw]) for draw in draws])
    values = values[~np.isnan(values)]  # a draw may miss every scored class
    if not len(values):
        return None
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
