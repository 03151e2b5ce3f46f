"""Choice of the frames to label next: uncertain, unlike what is labelled, with rare classes, from many shots."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import cv2
import numpy as np

from suture.data.dataset import Dataset, Video
from suture.data.labelling import Labelling
from suture.data.read_scenes import read_scenes

if TYPE_CHECKING:
    from torch import Tensor

    from suture.prediction.predictor import Predictor

MAX_CANDIDATES = 2000
"""Limit of candidate frames; larger sets are thinned evenly."""
THUMBNAIL_SIDE = 16
BATCH = 16
MIN_CLASS_AREA = 0.001
"""Smallest share of the view at which a predicted class counts as visible."""
Place = tuple[str, int]
Progress = Callable[[int], None]


@dataclass(frozen=True)
class FrameFeatures:
    """Features of candidate frames; arrays have one row per frame."""

    places: list[Place]
    features: np.ndarray
    uncertainty: np.ndarray
    visible: np.ndarray
    """Visible classes (frames, classes), bool; no columns without a model."""


def candidates(dataset: Dataset, budget: int) -> Labelling:
    """Choose usable frames without a mask, evenly spaced."""
    frames = {video.id: sorted({*video.usable} - {*video.masks}) for video in dataset}
    step = math.ceil(sum(map(len, frames.values())) / max(MAX_CANDIDATES, 4 * budget)) or 1
    return Labelling({video: indices[::step] for video, indices in frames.items()})


def measure_appearance(dataset: Dataset, frames: Labelling, progress: Progress = lambda done: None) -> FrameFeatures:
    """Describe frames by their thumbnails, without a model."""
    thumbnails = []
    for video, indices in frames.frames.items():
        size = THUMBNAIL_SIDE, THUMBNAIL_SIDE
        for part, scenes in read_scenes(dataset[video], indices, size, BATCH):
            thumbnails.append(scenes.reshape(len(part), -1) / np.float32(255))
            progress(len(part))
    count = frames.count
    features = np.concatenate(thumbnails) if thumbnails else np.zeros((0, 1), np.float32)
    return FrameFeatures(list(frames), features, np.ones(count), np.zeros((count, 0), bool))


def measure_by_model(
    predictor: "Predictor", dataset: Dataset, frames: Labelling, progress: Progress = lambda done: None
) -> FrameFeatures:
    """Describe frames by a model: the encoder's mean features, the entropy of the classes, the visible classes."""
    import torch

    from suture.models.inference import predict_probabilities

    network = predictor.network
    features: list[np.ndarray] = []
    others: list[tuple[np.ndarray, np.ndarray]] = []

    def keep_mean(module: torch.nn.Module, images: object, levels: Sequence["Tensor"]) -> None:
        features.append(levels[-1].float().flatten(2).mean(2).cpu().numpy())

    hook = network.module.encoder.register_forward_hook(keep_mean)  # type: ignore[union-attr]
    try:
        for video, indices in frames.frames.items():
            inside = torch.from_numpy(_view_mask(dataset[video], network.size)).to(network.device)
            for part, scenes in read_scenes(dataset[video], indices, network.size, BATCH):
                images = torch.from_numpy(scenes).to(network.device)
                shares = predict_probabilities(network.module, images, network.size)
                entropy = torch.special.entr(shares).sum(1)[:, inside].mean(1) / math.log(max(2, shares.shape[1]))
                chosen = shares.argmax(1)[:, inside]
                areas = torch.stack([(chosen == one).float().mean(1) for one in range(shares.shape[1])], 1)
                others.append((entropy.cpu().numpy(), (areas > MIN_CLASS_AREA).cpu().numpy()))
                progress(len(part))
    finally:
        hook.remove()
    uncertainty, visible = (np.concatenate(parts) for parts in zip(*others, strict=True))
    return FrameFeatures(list(frames), np.concatenate(features), uncertainty, visible)


def _view_mask(video: Video, size: tuple[int, int]) -> np.ndarray:
    inside = video.view.crop(video.view.mask(*video.size)).astype(np.uint8)
    return cv2.resize(inside, size[::-1], interpolation=cv2.INTER_NEAREST_EXACT).astype(bool)


def choose_frames(
    facts: FrameFeatures, labelled: Labelling, shot_of: Mapping[Place, Place], budget: int
) -> list[Place]:
    """Choose frames one after the other, each with the highest score.

    The score is the uncertainty times the distance in feature space to the nearest labelled or chosen frame (k-center).
    A class that few of these frames show raises it, at most to twice. A shot gives at most twice its fair share.

    Args:
        facts: Candidates and labelled frames.
        labelled: Frames that have labels.
        shot_of: The shot of each candidate.
        budget: Number of frames.
    """
    known = set(labelled)
    is_known = np.array([place in known for place in facts.places], bool)
    counts = facts.visible[is_known].sum(0)
    nearest = np.full(len(facts.places), np.inf)
    for feature in facts.features[is_known]:
        nearest = np.minimum(nearest, _distances(facts.features, feature))
    if not is_known.any():  # frames far from the mean are outliers; the first one is typical
        nearest = 1 / (1 + _distances(facts.features, facts.features.mean(0)))
    free = ~is_known
    most = max(1, math.ceil(2 * budget / max(1, len(set(shot_of.values())))))
    taken: Counter[Place] = Counter()
    chosen: list[Place] = []
    while len(chosen) < budget and free.any():
        allowed = free & np.array([taken[shot_of.get(place, place)] < most for place in facts.places])
        if not allowed.any():
            most += 1
            continue
        rarity = 1 + (facts.visible / (1 + counts)).max(1, initial=0)
        row = int(np.argmax(np.where(allowed, facts.uncertainty * nearest * rarity, -1)))
        distances = _distances(facts.features, facts.features[row])
        nearest = np.minimum(nearest, distances) if chosen or is_known.any() else distances
        chosen.append(facts.places[row])
        taken[shot_of.get(facts.places[row], facts.places[row])] += 1
        counts = counts + facts.visible[row]
        free[row] = False
    return chosen


def _distances(features: np.ndarray, one: np.ndarray) -> np.ndarray:
    return np.linalg.norm(features - one, axis=1)


def shots_of_places(members: Mapping[str, Sequence[Sequence[int]]]) -> Iterator[tuple[Place, Place]]:
    """Yield each frame with its shot: video and first frame."""
    for video, shots in members.items():
        for shot in shots:
            yield from (((video, index), (video, shot[0])) for index in shot)
