"""Titles of scores and of frame sets in reports, comparisons and the terminal."""

from collections.abc import Iterable
from dataclasses import dataclass

from suture.evaluation.protocols import COMPLETION, NEW_VIDEOS, SEEN


@dataclass(frozen=True)
class FrameSet:
    """A scored set of frames."""

    name: str
    """Short name, for columns of tables."""
    title: str
    """Full name."""
    meaning: str


SETS = {
    "test": FrameSet("test", f"{NEW_VIDEOS} (test)", NEW_VIDEOS),
    "val": FrameSet("validation", f"{NEW_VIDEOS} (validation)", NEW_VIDEOS),
    SEEN: FrameSet(SEEN, f"{NEW_VIDEOS}, seen unlabelled", f"{NEW_VIDEOS}, learnt from without their labels"),
    COMPLETION: FrameSet(COMPLETION, COMPLETION, "the unlabelled frames of labelled training videos"),
}
"""Frame sets by their key in `metrics.json`, in the order of a report."""


def set_meanings(sets: Iterable[str]) -> str:
    """Meanings of frame sets, for a line below a table.

    >>> set_meanings(["val", "test", "completion"])
    'validation, test: new videos; completion: the unlabelled frames of labelled training videos'
    """
    names: dict[str, list[str]] = {}
    for key in sets:
        names.setdefault(SETS[key].meaning, []).append(SETS[key].name)
    return "; ".join(f"{', '.join(same)}: {meaning}" for meaning, same in names.items())


@dataclass(frozen=True)
class Score:
    """One kind of score."""

    key: str
    title: str
    meaning: str


SCORES = (
    Score("miou", "mIoU", "intersection over union from the pixels of all frames together, mean over classes"),
    Score(
        "miou_frames",
        "mIoU per frame",
        "intersection over union in each frame, mean over the classes in its ground truth, then over frames",
    ),
    Score("dice", "Dice", "mean over classes of the Dice coefficient"),
    Score("pa", "PA", "pixel accuracy, the share of pixels that are right"),
    Score("pac", "PAC", "the share of a class's pixels that are found, mean over classes"),
    Score("nsd", "NSD", "normalised surface Dice: share of outlines that are within {tolerance:g} pixels"),
    Score(
        "consistency",
        "Consistency",
        "agreement of neighbouring frames' predictions; less than that of the true masks flickers, more lags behind",
    ),
)
TITLES = {score.key: score.title for score in SCORES}
