"""What scores, and the sets of frames that are scored, are called wherever people read them."""

from collections.abc import Iterable
from dataclasses import dataclass

from suture.evaluation.protocols import COMPLETION, NEW_VIDEOS


@dataclass(frozen=True)
class FrameSet:
    """A set of frames that is scored."""

    name: str
    """Short, for the columns of tables."""
    title: str
    """Where it stands alone."""
    meaning: str


SETS = {
    "test": FrameSet("test", f"{NEW_VIDEOS} (test)", NEW_VIDEOS),
    "val": FrameSet("validation", f"{NEW_VIDEOS} (validation)", NEW_VIDEOS),
    COMPLETION: FrameSet(COMPLETION, COMPLETION, "the unlabelled frames of labelled training videos"),
}
"""By their names in `metrics.json`, in the order a report shows them."""


def set_meanings(sets: Iterable[str]) -> str:
    """What these sets are, for a line below a table.

    >>> set_meanings(["val", "test", "completion"])
    'validation, test: new videos; completion: the unlabelled frames of labelled training videos'
    """
    names: dict[str, list[str]] = {}
    for which in sets:
        names.setdefault(SETS[which].meaning, []).append(SETS[which].name)
    return "; ".join(f"{', '.join(of)}: {meaning}" for meaning, of in names.items())


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
