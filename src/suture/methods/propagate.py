"""Propagate: labels of the nearest labelled frame, carried along the video. A baseline for completion, not trained.

The labels follow the features of the frozen encoder from frame to frame, as in DINO's video evaluation (Jabri et al.,
2020; Caron et al., 2021), or are copied unchanged. There is no model for other videos: only completion is scored.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import cv2
import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from suture.core import settings
from suture.data.classes import IGNORE
from suture.losses.correspondence import affinity, carry, from_cells, to_cells
from suture.methods.method import Method
from suture.methods.pseudo_labels import PseudoLabels, PseudoSettings
from suture.methods.stage import StageContext
from suture.models.inference import interpolate_class_ids, to_images
from suture.models.segmenter import Segmenter

COARSEST_STRIDE = 16
"""Levels of an encoder with a larger stride are not compared."""
Carried = tuple[Tensor, Tensor]
"""Features (1 D h w, of unit length) and shares of the classes (1 C h w) of a frame."""


class CarrySettings(PseudoSettings):
    """Settings of carrying labels; the numbers are those of DINO's evaluation."""

    features: bool = True
    """Follow the features of the encoder; otherwise copy the nearest labelled mask."""
    level: int = Field(-1, lt=0)
    """Level of the encoder, from the end, among those at stride 16 or finer."""
    memory: int = Field(7, ge=0)
    """Number of frames before this one that labels are taken from, beside the labelled one."""
    radius: int = Field(12, ge=1)
    """Largest motion in cells of the level."""
    top: int = Field(5, ge=1)
    """Number of most similar cells that give a cell its label."""
    temperature: float = Field(0.1, gt=0)
    """Temperature of the softmax that weighs them."""


class Propagate(Method):
    """Labels of the nearest labelled frames, without training."""

    class Settings(settings.Settings):
        carry: CarrySettings = CarrySettings()

    def stages(self) -> Iterator[PseudoLabels]:
        yield CarriedLabels("carry", self.settings.carry)


class CarriedLabels(PseudoLabels):
    """One pass over the unlabelled frames, from each labelled frame outwards; the labels are the run's outcome."""

    settings: CarrySettings
    is_outcome = True

    @torch.no_grad()
    def predict(
        self, context: StageContext, segmenter: Segmenter, video: str, numbers: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the labels of each frame at the size of the stored ones, all of them certain."""
        frames = context.frames
        of_video = frames.labelled[frames.places.video_of[frames.labelled] == frames.places.video_of[numbers[0]]]
        indices = frames.places.indices
        distances = np.abs(indices[numbers][:, None] - indices[of_video])
        nearest = of_video[distances.argmin(1)] if len(of_video) else np.full(len(numbers), -1)
        shares: dict[int, Tensor] = {}
        for origin in of_video.tolist() if self.settings.features else ():
            own = numbers[nearest == origin]
            for way in (own[own < origin][::-1], own[own > origin]):
                shares |= self._carry(context, segmenter, origin, way.tolist())
        for number, origin in zip(numbers.tolist(), nearest.tolist(), strict=True):
            labels = np.full((1, 1), IGNORE, np.uint8) if origin < 0 else frames.labels(origin)
            assert labels is not None
            if number in shares:
                labels = interpolate_class_ids(shares[number], labels.shape)[0].cpu().numpy()
            yield labels[None], np.full((1, 1, 1), 255, np.uint8)

    def _carry(self, context: StageContext, segmenter: Segmenter, origin: int, way: Sequence[int]) -> dict[int, Tensor]:
        """Shares of the classes, 1 C H W, for frames on the way from a labelled frame, one after the other."""
        s, frames, size = self.settings, context.frames, context.size
        labels = frames.labels(origin)
        assert labels is not None
        features, cell = self._features(context, segmenter, origin)
        resized = cv2.resize(labels, size[::-1], interpolation=cv2.INTER_NEAREST_EXACT)
        known = to_cells(torch.from_numpy(resized)[None].to(context.device), segmenter.classes, cell)
        start: Carried = (features, known)
        memory: deque[Carried] = deque(maxlen=s.memory)
        carried: dict[int, Tensor] = {}
        for number in way:
            query, _ = self._features(context, segmenter, number)
            keys, values = zip(start, *memory, strict=True)
            similarity = torch.cat([affinity(query, key, s.radius) for key in keys], 2)
            shares = carry(similarity, torch.cat(values, 2), s.top, s.temperature)
            memory.append((query, shares))
            carried[number] = from_cells(shares, cell, size)
        return carried

    def _features(self, context: StageContext, segmenter: Segmenter, number: int) -> tuple[Tensor, int]:
        """Features of a frame as unit vectors around their mean, 1 D h w, and the side of their cells in pixels."""
        frame = torch.from_numpy(context.frames.image(number)[None].copy()).to(context.device)
        images = to_images(frame, context.size)
        height, width = images.shape[-2:]
        covered = height + -height % segmenter.multiple
        levels = segmenter.levels(images)
        fine = [level for level in levels if level.shape[1] and covered <= COARSEST_STRIDE * level.shape[2]]
        level = fine[self.settings.level].float()
        cell = covered // level.shape[2]
        level = level[..., : -(-height // cell), : -(-width // cell)]
        return F.normalize(level - level.mean((2, 3), keepdim=True), dim=1), cell
