"""UniMatch V2 (Yang et al., 2024): consistency of two strong views with a weak one.

The teacher, an average of the student's weights, labels a weak view of an unlabelled frame. The student learns the
confident labels from two views with strong colours, patches of other frames (CutMix), and one half of the encoder's
channels each (complementary dropout). The preset `unimatch-v2` has the published encoder, optimiser and crops too.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from suture.core.settings import Settings
from suture.data.classes import IGNORE
from suture.data.sampling.augment import (
    UNCHANGED,
    Augment,
    ColorJitter,
    draw_view,
    render_images,
    render_labels,
)
from suture.data.sampling.color_jitter import draw_jitter, jitter_colors
from suture.losses.cross_entropy import cross_entropy
from suture.methods.cutmix import cut_mix, draw_patch, in_boxes
from suture.methods.method import Method
from suture.methods.semi import SemiSettings, SemiSupervised
from suture.methods.stage import Part, Stage, StageContext, Total
from suture.models.ema import MomentumCopy

STRONG = ColorJitter(brightness=0.5, contrast=0.5, saturation=0.5, hue=0.25, jitter=0.8, grey=0.2, blur=0.5)
"""Colours of the authors' code."""


class UniMatchSettings(SemiSettings):
    """The paper's settings, except for crops (shared by all methods) and optimiser (the paper's is for DINOv2)."""

    ema: float = Field(0.996, gt=0, lt=1)
    """Momentum of the teacher, the final model; lower in the first steps."""
    look_back: float = Field(1.0, gt=0, le=1)  # as published: min(1 − 1/i, 0.996)
    strong: Augment = Augment(color=STRONG)
    """Crop of all views of an unlabelled frame, and colours of the strong ones."""
    cutmix: float = Field(0.5, ge=0, le=1)
    """Share of strong views with a patch of another frame."""
    confidence: float = Field(0.95, ge=0, le=1)
    """Lowest confidence of a label that is learnt."""


class UniMatch(Method):
    """UniMatch V2, in one stage."""

    class Settings(Settings):
        train: UniMatchSettings = UniMatchSettings()

    def stages(self) -> Iterator[Stage]:
        yield WeakToStrong("train", self.settings.train)


class WeakToStrongBatch(NamedTuple):
    """Labelled views, weak views of B unlabelled frames, and two strong views of each (2 × B)."""

    labelled: Any
    """`Patches` from the loader; once rendered, images and labels."""
    weak: Any
    """Likewise, with labels 0 inside the view and IGNORE outside."""
    strong: Tensor
    """2 × B 10, the colours; once rendered, 2 × B 3 H W."""
    boxes: Tensor
    """2 × B 4: patches of other frames (left, top, right, bottom, in fractions of the view)."""
    channels: Tensor
    """2 × B D: factors of the encoder's channels, 0, 1 or 2."""


class WeakToStrong(SemiSupervised):
    """(L_supervised + (L_first strong view + L_second strong view) / 2) / 2."""

    settings: UniMatchSettings
    average: MomentumCopy

    @property
    def teacher(self) -> MomentumCopy:
        """Average of the student's weights with momentum min(1 − 1/i, ema) after step i."""
        return self.average

    def begin(self, context: StageContext) -> None:
        super().begin(context)
        self.teacher.eval()

    def draw(self, part: Part) -> WeakToStrongBatch:
        s, step = self.settings, part.step
        own, everyone = self.unlabelled_places(part.own), self.unlabelled_places(part.all)
        numbers = self.unlabelled_numbers(step, own)
        rngs = [self.rng(step, f"unlabelled {place}") for place in own]
        draws = [draw_view(rng, s.strong) for rng in rngs]
        weak = [draw._replace(color=UNCHANGED) for draw in draws]
        colors = [[draw_jitter(rng, s.strong) for rng in rngs] for _ in range(2)]
        boxes = [[draw_patch(rng, s.cutmix) for rng in rngs] for _ in range(2)]

        # m and 2 − m: each view keeps the channels that the other drops. Half of the global batch drops nothing.
        # Levels of equal width, as of a vision transformer, drop the same ones.
        widths = self.segmenter.encoder.out_channels
        shared = len(widths) if len(set(widths)) == 1 else 1
        kept = np.stack([np.tile(2 * rng.integers(2, size=sum(widths) // shared), shared) for rng in rngs])
        undropped = self.rng(step, f"undropped {everyone.start}").permutation(everyone)[: len(everyone) // 2]
        kept[np.isin(own, undropped)] = 1
        return WeakToStrongBatch(
            self.usual_views(self.order, part),
            self.unlabelled.collate(numbers, weak),
            torch.from_numpy(np.array(colors)),
            torch.from_numpy(np.array(boxes, np.float32)),
            torch.from_numpy(np.stack([kept, 2 - kept]).astype(np.float32)),
        )

    def render(self, batch: WeakToStrongBatch) -> WeakToStrongBatch:
        size = self.context.size
        labelled, weak = ((render_images(x, size), render_labels(x, size)) for x in (batch.labelled, batch.weak))
        strong = torch.stack([jitter_colors(weak[0], draws) for draws in batch.strong])
        return batch._replace(labelled=labelled, weak=weak, strong=strong)

    def loss(self, batch: WeakToStrongBatch) -> Total:
        (images, labels), (weak, in_view) = batch.labelled, batch.weak
        supervised = Total(*cross_entropy(self.segmenter(images), labels))

        limit = self.settings.confidence
        sure, target = self.teacher(weak).float().softmax(1).max(1)
        inside = in_view != IGNORE
        target = target.where(inside, IGNORE)
        mixed = [self.cut_mix(views, boxes) for views, boxes in zip(batch.strong, batch.boxes, strict=True)]
        features = self.segmenter.features(torch.cat(mixed), batch.channels.flatten(0, 1))
        predicted = self.segmenter.classify(features, weak.shape[-2:]).chunk(2)
        first, second = (
            # The mean is over all pixels in view, so a few confident pixels count little.
            Total(*cross_entropy(logits, self.cut_mix(target, boxes), self.cut_mix(sure, boxes) >= limit))
            for logits, boxes in zip(predicted, batch.boxes, strict=True)
        )
        return self.weighted_sum(
            (1 / 2, supervised), (1 / 4, first), (1 / 4, second), learnt=sure >= limit, in_view=inside
        )

    def cut_mix(self, x: Tensor, boxes: Tensor) -> Tensor:
        """Put patches of other samples into images or labels."""
        return cut_mix(x, in_boxes(boxes, x.shape[-2:]), self.context.rank)
