"""Scores of single frames for the pictures of a report."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from suture.data.dataset import Dataset, WrongMask
from suture.data.scoring_rules import Protocol
from suture.evaluation.metrics import Scorer
from suture.evaluation.protocols import scorer_of
from suture.evaluation.scoring import scores
from suture.reports.frame_choice import FrameKey


class FrameScorer:
    """Scores frames of a dataset by a protocol, without its boundary scores."""

    def __init__(self, dataset: Dataset, protocol: Protocol) -> None:
        self.dataset = dataset
        self.protocol = replace(protocol, boundary_tolerance=None)

    def scorer(self) -> Scorer:
        """Return an empty scorer."""
        return scorer_of(self.protocol, self.dataset.classes.names)

    def truth(self, key: FrameKey) -> np.ndarray | None:
        """Return the true class ids of a frame; None if it has no valid mask."""
        video = self.dataset[key[0]]
        with suppress(WrongMask):  # reported by training and evaluation, which need it
            if video.frames[key[1]].mask is not None:
                return self.scorer().counted(self.dataset.read_mask(video, key[1]))
        return None

    def truths(self, keys: Iterable[FrameKey]) -> dict[FrameKey, np.ndarray]:
        """Return the true class ids of those frames that have a valid mask."""
        return {key: truth for key in keys if (truth := self.truth(key)) is not None}

    def score(self, key: FrameKey, ids: np.ndarray, truth: np.ndarray | None) -> Scorer:
        """Score one prediction; the scorer stays empty without a truth."""
        scorer = self.scorer()
        if truth is not None:
            scorer.add(*key, ids, truth)
        return scorer

    def overall(self, scorer: Scorer, name: str) -> float | None:
        """Return a score over all frames of a scorer; None if they have nothing that counts."""
        value: float | None = scores(self.dataset, self.protocol, scorer)["overall"][name]
        return value

    def iou(self, key: FrameKey, ids: np.ndarray, truth: np.ndarray | None) -> float | None:
        """Return the mean IoU of a prediction over the classes in its truth."""
        return self.overall(self.score(key, ids, truth), "miou_frames")
