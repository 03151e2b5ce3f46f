"""Stitch: one training on labelled and unlabelled frames that takes from the video what it knows.

The student learns from views of the labelled frames, as in `strong`, its control, but in mild colours; and, from strong
views of unlabelled ones, what the teacher says of the weak views: the teacher is the average of the student's weights
and what is handed on. Before the student learns it, the true labels of the nearest labelled frame of the shot are
carried over along the correspondence of the teacher's features, and the two opinions are joined.
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
from suture.losses.correspondence import affinity, carry, comes_back, descriptors, from_cells, join, to_cells
from suture.losses.cross_entropy import cross_entropy
from suture.methods.cutmix import cut_mix, draw_patch, in_boxes
from suture.methods.method import Method, method
from suture.methods.semi import SemiSettings, SemiSupervised
from suture.methods.stage import Part, Stage, StageContext, Total
from suture.methods.strong import (
    StrongBatch,
    StrongSettings,
    StrongViews,
    draw_donor,
    labelled_loss,
    strengthen,
)
from suture.models.ema import MomentumCopy

CELL = 8
"""Pixels: features on a finer grid are pooled to it, because every cell is compared with every other."""
CELLS = 8192
"""Of one frame, at most: memory grows with their square."""


class CorrespondenceSettings(Settings):
    """How labels are carried from a labelled frame."""

    neighbours: Literal[1, 2] = 1
    """The nearest labelled frame of the shot, or the ones before and after."""
    radius: float = Field(0.5, gt=0, le=1)
    """How far a point may have moved, as a share of the view's longer side."""
    top: int = Field(5, ge=1)
    """How many of the most alike cells speak for a cell."""
    temperature: float = Field(0.1, gt=0)
    """Of the softmax that weighs them."""
    cycle: int = Field(1, ge=0)
    """How many cells from home the way there and back may end."""
    half_life: float = Field(10, gt=0)
    """The distance in frames at which a carried label is half as likely to be right."""


class StitchSettings(StrongSettings, SemiSettings):
    """A weight of 0 switches its part off; with `ema` 0 the student is its own teacher."""

    strong_labelled: float = Field(0, ge=0, le=1)
    consistency: float = Field(0.5, ge=0)
    """The weight of what the teacher says, beside 1 of the labels."""
    confidence: float = Field(0.98, ge=0, le=1)
    """How sure a target must be of its class."""
    propagate: float = Field(0.8, ge=0, le=1)
    """How likely a label that was carried from the next frame is right."""
    correspondence: CorrespondenceSettings = CorrespondenceSettings()


@method("stitch")
class StitchMethod(Method):
    """Labels, consistency and the video, in one stage."""

    class Settings(Settings):
        train: StitchSettings = StitchSettings()

    def stages(self) -> Iterator[Stage]:
        yield Stitch("train", self.settings.train)


class StitchBatch(NamedTuple):
    """A step as the loader gives it: B unlabelled frames with K neighbours each, beside the labelled ones."""

    labelled: StrongBatch
    views: Patches
    """The unlabelled frames: cut as teacher and student see them, with the colours that only the student sees."""
    donors: Tensor
    boxes: Tensor
    """As in `StrongBatch`, of the strong views."""
    neighbours: Patches | None
    """B · K, cut as the frames they belong to; None where nobody needs them."""
    nearness: Tensor
    """B K: the say of each neighbour, by its distance; 0 where there is none."""


class Neighbours(NamedTuple):
    """The labelled frames, K each, that speak for B unlabelled ones."""

    images: Tensor
    """B · K 3 H W"""
    labels: Tensor
    """B · K H W"""
    nearness: Tensor
    """B K"""


class StitchViews(NamedTuple):
    """A step as networks see it."""

    images: Tensor
    labels: Tensor
    weak: Tensor
    """B 3 H W: what the teacher sees."""
    in_view: Tensor
    """B H W: which of that is inside the view of its video."""
    strong: Tensor
    """B 3 H W: what the student sees."""
    patched: Tensor
    """B H W: where that is another frame."""
    neighbours: Neighbours | None


def cell_side(size: tuple[int, int], stride: int) -> int:
    """Pixels of a cell's side, in frames of height × width and with features of this stride.

    >>> cell_side((512, 640), 8), cell_side((1024, 1280), 8), cell_side((64, 64), 16)
    (8, 16, 16)
    """
    side = max(CELL, stride)
    while math.prod(-(-length // side) for length in size) > CELLS:
        side *= 2
    return side


class Stitch(SemiSupervised):
    """L = L_labelled + consistency · L_unlabelled."""

    settings: StitchSettings
    instead = "strong"
    average: MomentumCopy
    """The teacher: the average that every stage can keep."""

    def prepare(self) -> int:
        length = super().prepare()
        self.views = StrongViews(self, self.settings)
        self.around = LabelledNeighbours(self.context.frames, self.context.shots)
        self.cell = cell_side(self.context.size, self.segmenter.stride)
        return length

    def begin(self, context: StageContext) -> None:
        super().begin(context)
        self.average.eval()

    # Which frames, and what is seen of them

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
        found = [neighbour for number in numbers for neighbour in self.around.of(number, count)]
        nearness = [0.5 ** (distance / s.correspondence.half_life) for _, distance in found]
        alike = [draw for draw in draws for _ in range(count)]
        return StitchBatch(
            self.views.draw(part),
            self.unlabelled.collate(numbers, draws),
            torch.tensor(donors),
            torch.from_numpy(np.array(boxes, np.float32)),
            frames.collate([neighbour for neighbour, _ in found], alike) if count else None,
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

    # What is learnt

    def loss(self, batch: StitchViews) -> Total:
        s = self.settings
        target, sure = (cut_mix(x, batch.patched, self.context.rank) for x in self.teach(batch))
        logits = self.segmenter(torch.cat([batch.images, batch.strong]))
        labelled, unlabelled = logits.split([len(batch.images), len(batch.strong)])
        learnt = sure >= s.confidence
        return self.weighted_sum(
            (1.0, labelled_loss(labelled, batch.labels, self.clock, s.hard_from)),
            # The mean is over all pixels in view: the fewer of them the teacher is sure of, the less they count.
            (s.consistency, Total(*cross_entropy(unlabelled, target, learnt))),
            learnt=learnt,
            in_view=target != IGNORE,
        )

    @torch.no_grad()
    def teach(self, batch: StitchViews) -> tuple[Tensor, Tensor]:
        """The classes of unlabelled pixels, IGNORE outside the view, and how sure they are, both B H W.

        They are the teacher's probabilities, joined with the labels that were carried.
        """
        teacher, weak, near = self.outcome(), batch.weak, batch.neighbours
        features = teacher.features(weak if near is None else torch.cat([near.images, weak]))
        belief = teacher.classify(features[-len(weak) :], weak.shape[-2:]).float().softmax(1)
        if near is not None:
            belief = join(belief, self.carried(features, near))
        sure, target = belief.max(1)
        return target.where(batch.in_view, IGNORE), sure

    def carried(self, features: Tensor, near: Neighbours) -> Tensor:
        """a · q at every pixel, B C H W: labels of the neighbours along the correspondence, and how far they count.

        The features are of the neighbours, then of the frames. Of each neighbour, a cell gets the mean label of the
        cells most like it, and its say is its nearness × whether the way back leads home. q is the mean over the
        neighbours by their say, a is `propagate` × the largest of it, and both are 0 where no neighbour has any.
        """
        s, c = self.settings, self.settings.correspondence
        cells = F.avg_pool2d(features, self.cell // self.segmenter.stride, ceil_mode=True)
        neighbours, own = cells.split([len(near.labels), len(near.nearness)])
        query, key = descriptors(own.repeat_interleave(c.neighbours, 0), neighbours)
        alike = affinity(query, key, max(1, round(c.radius * max(own.shape[-2:]))))
        labels = carry(alike, to_cells(near.labels, self.segmenter.classes, self.cell), c.top, c.temperature)
        say = comes_back(alike, own, c.cycle) * near.nearness.flatten()[:, None, None]
        # Of two neighbours, each has its part of what the one with more to say has.
        say, labels = (x.unflatten(0, (-1, c.neighbours)) for x in (say, labels))
        share = say * say.amax(1, keepdim=True) / say.sum(1, keepdim=True).clamp(min=1e-12)
        carried = s.propagate * (share[:, :, None] * labels).sum(1)
        return from_cells(carried, self.cell, near.labels.shape[-2:])
