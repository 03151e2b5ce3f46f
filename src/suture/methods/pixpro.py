"""PixPro: pixel-to-propagation consistency (Xie et al., CVPR 2021), in the place of PGV-CL's contrast.

Two views of a frame agree in the pixels that show the same place, after each pixel of one view was smoothed over the
pixels that resemble it. There are neither labels nor negatives.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from suture.core.settings import Settings
from suture.data.classes import IGNORE
from suture.data.sampling.augment import Patches, draw_view, render_images, render_labels
from suture.data.sampling.frames import UnlabelledFrames
from suture.losses.pixel_propagation import Cells, cells, positive_pairs, propagate, propagation_loss
from suture.methods.branches import BranchSettings, TwoBranches
from suture.methods.method import Method
from suture.methods.stage import Part, Stage, Total, TrainingSettings, seeded
from suture.methods.supervised import OhemSettings, Supervised, finetune
from suture.models.projector import unit


class PropagationSettings(BranchSettings):
    """Length, optimiser, crops and colours of PGV-CL's contrast; the rest is PixPro's."""

    hidden: int = Field(4096, ge=1)
    distance: float = Field(0.7, gt=0)
    """Largest distance of a pair of cells, divided by the larger cell's diagonal."""
    sharpness: float = Field(2.0, ge=1)
    """Exponent of the similarity that weighs the propagation."""


class PixPro(Method):
    """Pre-training, pixel propagation, fine-tuning."""

    class Settings(Settings):
        pretrain: TrainingSettings = TrainingSettings()
        propagation: PropagationSettings = PropagationSettings()
        finetune: OhemSettings = OhemSettings()

    def stages(self) -> Iterator[Stage]:
        s = self.settings
        yield Supervised("pretrain", s.pretrain)
        yield Propagation("propagation", s.propagation)
        yield finetune(s.finetune)


class PairedViews(NamedTuple):
    """First views of B frames, then their second views."""

    images: Tensor
    """2B 3 H W"""
    cells: Cells
    """2B N: cells of the feature grids, in the frame's coordinates."""
    in_view: Tensor
    """2B N bool: cells inside the view."""


class Propagation(TwoBranches):
    """Agreement of two views of every training frame."""

    settings: PropagationSettings

    def prepare(self) -> int:
        context, channels = self.context, self.settings.channels
        self.frames = UnlabelledFrames(context.frames)  # labels are not used
        with seeded(context.seed):
            self.make_branches()
            # g of the propagation. Only the online branch has it: two equal branches would collapse.
            self.transform = nn.Conv2d(channels, channels, 1)
        return len(context.frames)

    def groups(self) -> list[dict[str, Any]]:
        *groups, projector = super().groups()
        return [*groups, projector | {"params": [*projector["params"], *self.transform.parameters()]}]

    def draw(self, part: Part) -> tuple[Patches, Tensor]:
        numbers = self.numbers(self.order, part.step, part.own) * 2
        rngs = [self.rng(part.step, place) for place in part.own] * 2
        draws = [draw_view(rng, self.settings.augment) for rng in rngs]
        outlines = np.stack([self.frames.outline(*view) for view in zip(numbers, draws, strict=True)])
        return self.frames.collate(numbers, draws), torch.from_numpy(outlines.astype(np.float32))

    def render(self, batch: tuple[Patches, Tensor]) -> PairedViews:
        (patches, outlines), size, stride = batch, self.context.size, self.segmenter.stride
        return PairedViews(
            render_images(patches, size),
            cells(outlines, patches.flip, size, stride),
            render_labels(patches, size, stride).flatten(1) != IGNORE,
        )

    def loss(self, batch: PairedViews) -> Total:
        """Mean −cos(z_i, x'_j) over the pairs of each frame, in both directions."""
        s = self.settings
        # As in the authors' code: g reads the projections before normalisation, and its values have unit length.
        projections = self.online.projector.layers(self.segmenter.features(batch.images))
        propagated = propagate(unit(projections), unit(self.transform(projections)), s.sharpness)
        keys = _other_view(self.momentum(batch.images))
        loss, views = propagation_loss(propagated, keys, self.pairs(batch))
        return Total(loss, views / 2)  # per frame: both directions are added

    def pairs(self, batch: PairedViews) -> Tensor:
        """Pairs of cells of both views of a frame that show the same place: 2B N N bool."""
        other = Cells(*map(_other_view, batch.cells))
        shown = batch.in_view[:, :, None] & _other_view(batch.in_view)[:, None, :]
        return positive_pairs(batch.cells, other, self.settings.distance) & shown


def _other_view(x: Tensor) -> Tensor:
    return x.roll(len(x) // 2, 0)
