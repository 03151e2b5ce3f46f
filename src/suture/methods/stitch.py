"""Stitch: training on labelled and unlabelled frames, with labels carried along the video.

The student learns views of the labelled frames, as in `strong` but in mild colours. From strong views of unlabelled
frames it learns the teacher's predictions for weak views. The teacher is the average of the student's weights, and the
final model. Its predictions are first combined with the ground truth of the nearest labelled frame of the shot, carried
over along the correspondence of the teacher's features.
"""

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from suture.core.settings import Settings
from suture.data.classes import IGNORE
from suture.data.sampling.augment import Patches, draw_view, render_labels, resample
from suture.data.sampling.neighbours import LabelledNeighbours
from suture.losses.correspondence import affinity, carry, cycle_consistent, descriptors, from_cells, join, to_cells
from suture.losses.cross_entropy import cross_entropy
from suture.methods.cutmix import cut_mix, draw_patch, in_boxes
from suture.methods.method import Method
from suture.methods.semi import SemiSettings, SemiSupervised
from suture.methods.stage import Part, Stage, StageContext, Total
from suture.methods.strong import (
    StrongBatch,
    StrongSettings,
    StrongViews,
    draw_donor,
    strengthen,
)
from suture.models.ema import MomentumCopy

MIN_CELL_PIXELS = 8
"""Side of the cells to which finer features are pooled, because every cell is compared with every other."""
MAX_CELLS = 8192
"""Largest number of cells of a frame; memory grows with its square."""


class CorrespondenceSettings(Settings):
    """Settings of carrying labels from a labelled frame."""

    neighbours: Literal[1, 2] = 1
    """1: the nearest labelled frame of the shot; 2: the ones before and after."""
    radius: float = Field(0.5, gt=0, le=1)
    """Largest motion of a point, as a share of the view's longer side."""
    top: int = Field(5, ge=1)
    """Number of most similar cells that give a cell its label."""
    temperature: float = Field(0.1, gt=0)
    """Temperature of the softmax that weighs them."""
    cycle: int = Field(1, ge=0)
    """Largest distance in cells between the start and the end of a match there and back."""
    half_life: float = Field(10, gt=0)
    """Distance in frames at which a carried label is half as likely to be right."""


class StitchSettings(StrongSettings, SemiSettings):
    """Settings of stitch. A weight of 0 switches its part off; with `ema` 0 the student is its own teacher."""

    strong_labelled: float = Field(0, ge=0, le=1)
    consistency: float = Field(0.5, ge=0)
    """Weight of the unlabelled frames; that of the labelled ones is 1."""
    confidence: float = Field(0.98, ge=0, le=1)
    """Lowest confidence of a target that is learnt."""
    propagate: float = Field(0.8, ge=0, le=1)
    """Probability that a label carried from the neighbouring frame is right."""
    correspondence: CorrespondenceSettings = CorrespondenceSettings()


class StitchMethod(Method):
    """Labels, consistency and correspondence, in one stage."""

    class Settings(Settings):
        train: StitchSettings = StitchSettings()

    def stages(self) -> Iterator[Stage]:
        yield Stitch("train", self.settings.train)


class StitchBatch(NamedTuple):
    """Labelled views, and B unlabelled frames with K labelled neighbours each, from the loader."""

    labelled: StrongBatch
    views: Patches
    """Crops of the unlabelled frames, with the colours of the strong views."""
    donors: Tensor
    boxes: Tensor
    """`donors` and `boxes` of the strong views, as in `StrongBatch`."""
    neighbours: Patches | None
    """B · K, cropped like their frames; None if nothing is carried."""
    nearness: Tensor
    """B K: weight of each neighbour, by its distance; 0 where there is none."""


class Neighbours(NamedTuple):
    """Rendered neighbours, K each, of B unlabelled frames."""

    images: Tensor
    """B · K 3 H W"""
    labels: Tensor
    """B · K H W"""
    nearness: Tensor
    """B K"""


class StitchViews(NamedTuple):
    """Rendered views of a step."""

    images: Tensor
    labels: Tensor
    weak: Tensor
    """B 3 H W: views for the teacher."""
    in_view: Tensor
    """B H W bool: pixels inside the view of the video."""
    strong: Tensor
    """B 3 H W: views for the student."""
    patched: Tensor
    """B H W bool: pixels of another frame in the strong views."""
    neighbours: Neighbours | None


def cell_side(size: tuple[int, int], stride: int) -> int:
    """Side of a cell in pixels, for frames of height × width and features of this stride.

    >>> cell_side((512, 640), 8), cell_side((1024, 1280), 8), cell_side((64, 64), 16)
    (8, 16, 16)
    """
    side = max(MIN_CELL_PIXELS, stride)
    while math.prod(-(-length // side) for length in size) > MAX_CELLS:
        side *= 2
    return side


class Stitch(SemiSupervised):
    """L = L_labelled + consistency · L_unlabelled."""

    settings: StitchSettings
    instead = "strong"
    average: MomentumCopy
    """The teacher."""

    def prepare(self) -> int:
        length = super().prepare()
        self.views = StrongViews(self, self.settings)
        self.around = LabelledNeighbours(self.context.frames, self.context.shots)
        self.cell = cell_side(self.context.size, self.segmenter.stride)
        return length

    def begin(self, context: StageContext) -> None:
        super().begin(context)
        self.average.eval()

    def draw(self, part: Part) -> StitchBatch:
        s, step, frames = self.settings, part.step, self.context.frames
        own, everyone = self.unlabelled_places(part.own), self.unlabelled_places(part.all)
        cases = self.views.cases[self.unlabelled_numbers(step, everyone)]
        numbers = self.unlabelled_numbers(step, own)
        draws, donors, boxes = [], [], []
        for place in own:
            rng = self.rng(step, f"unlabelled {place}")
            draws.append(draw_view(rng, s.strong))
            donors.append(draw_donor(rng, place - everyone.start, cases, s.restyle))
            boxes.append(draw_patch(rng, s.cutmix))

        count = s.correspondence.neighbours if s.propagate else 0
        neighbours = [neighbour for number in numbers for neighbour in self.around.of(number, count)]
        nearness = [0.5 ** (distance / s.correspondence.half_life) for _, distance in neighbours]
        same_draws = [draw for draw in draws for _ in range(count)]
        return StitchBatch(
            self.views.draw(part),
            self.unlabelled.collate(numbers, draws),
            torch.tensor(donors),
            torch.from_numpy(np.array(boxes, np.float32)),
            frames.collate([number for number, _ in neighbours], same_draws) if count else None,
            torch.tensor(nearness).view(len(numbers), count),
        )

    def render(self, batch: StitchBatch) -> StitchViews:
        size, near = self.context.size, batch.neighbours
        weak, in_view = resample(batch.views, size), render_labels(batch.views, size) != IGNORE
        strong = strengthen(weak, in_view, batch.donors, batch.views.color)
        patched = in_boxes(batch.boxes, size)
        return StitchViews(
            *self.views.render(batch.labelled),
            weak,
            in_view,
            cut_mix(strong, patched, self.context.rank),
            patched,
            None if near is None else Neighbours(resample(near, size), render_labels(near, size), batch.nearness),
        )

    def loss(self, batch: StitchViews) -> Total:
        s = self.settings
        target, sure = (cut_mix(x, batch.patched, self.context.rank) for x in self.teach(batch))
        logits = self.segmenter(torch.cat([batch.images, batch.strong]))
        labelled, unlabelled = logits.split([len(batch.images), len(batch.strong)])
        learnt = sure >= s.confidence
        return self.weighted_sum(
            (1.0, Total(*cross_entropy(labelled, batch.labels))),
            # The mean is over all pixels in view, so a few confident pixels count little.
            (s.consistency, Total(*cross_entropy(unlabelled, target, learnt))),
            learnt=learnt,
            in_view=target != IGNORE,
        )

    @torch.no_grad()
    def teach(self, batch: StitchViews) -> tuple[Tensor, Tensor]:
        """Predict the classes of unlabelled pixels (IGNORE outside the view) and their confidence, both B H W.

        The teacher's probabilities are combined with the carried labels.
        """
        teacher, weak, near = self.outcome(), batch.weak, batch.neighbours
        features = teacher.features(weak if near is None else torch.cat([near.images, weak]))
        belief = teacher.classify(features[-len(weak) :], weak.shape[-2:]).float().softmax(1)
        if near is not None:
            belief = join(belief, self.carried(features, near))
        sure, target = belief.max(1)
        return target.where(batch.in_view, IGNORE), sure

    def carried(self, features: Tensor, near: Neighbours) -> Tensor:
        """Labels of the neighbours along the correspondence, a · q at every pixel: B C H W.

        A cell gets the mean label of the most similar cells of each neighbour. The neighbour's weight is its nearness,
        or 0 if the match back does not end at the cell. q is the weighted mean over the neighbours, and a is
        `propagate` × their largest weight.

        Args:
            features: Of the neighbours, then of the frames.
        """
        s, c = self.settings, self.settings.correspondence
        cells = F.avg_pool2d(features, self.cell // self.segmenter.stride, ceil_mode=True)
        neighbours, own = cells.split([len(near.labels), len(near.nearness)])
        query, key = descriptors(own.repeat_interleave(c.neighbours, 0), neighbours)
        similarity = affinity(query, key, max(1, round(c.radius * max(own.shape[-2:]))))
        labels = carry(similarity, to_cells(near.labels, self.segmenter.classes, self.cell), c.top, c.temperature)
        weight = cycle_consistent(similarity, own, c.cycle) * near.nearness.flatten()[:, None, None]
        # Two neighbours share the larger weight.
        weight, labels = (x.unflatten(0, (-1, c.neighbours)) for x in (weight, labels))
        share = weight * weight.amax(1, keepdim=True) / weight.sum(1, keepdim=True).clamp(min=1e-12)
        carried = s.propagate * (share[:, :, None] * labels).sum(1)
        return from_cells(carried, self.cell, near.labels.shape[-2:])
