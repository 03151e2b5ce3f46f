"""What scores, and the sets of frames that are scored, are called wherever people read them."""

from dataclasses import dataclass

from suture.evaluation.protocols import COMPLETION, NEW_VIDEOS

SETS = {"test": f"{NEW_VIDEOS} (test)", "val": f"{NEW_VIDEOS} (validation)", COMPLETION: COMPLETION}
"""The sets of frames that are scored, in the order they are shown."""


@dataclass(frozen=True)
class Score:
    """One kind of score."""

    key: str
    title: str
    meaning: str


SCORES = (
    Score("miou", "mIoU", "mean over classes of the intersection over union, from all frames' pixels together"),
    Score("miou_frames", "mIoU per frame", "the same in each frame, over the classes in it, then over frames"),
    Score("dice", "Dice", "mean over classes of the Dice coefficient"),
    Score("pa", "PA", "pixel accuracy: share of pixels that are right"),
    Score("pac", "PAC", "mean over classes of the share of the class's pixels that are found"),
    Score("nsd", "NSD", "normalised surface Dice: share of outlines that are within {tolerance:g} pixels"),
    Score(
        "consistency",
        "Consistency",
        "agreement of neighbouring frames' predictions; less than that of the true masks flickers, more lags behind",
    ),
)
