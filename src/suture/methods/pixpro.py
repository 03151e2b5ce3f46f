"""PixPro (Xie et al., CVPR 2021) in the place of PGV-CL's contrast: neither labels nor negatives, one frame at a time.

Pre-train on the labelled frames; let two views of a frame agree, pixel by pixel, where they show the same place, after
each pixel of the one has been smoothed over the pixels that resemble it; fine-tune on the labelled frames.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from suture.data.augment import Augment, Patches, draw_view, render_images, render_labels
from suture.data.classes import IGNORE
from suture.data.training import Epochs
from suture.losses.pixel_propagation import Cells, cells, positive_pairs, propagate, propagation_loss
from suture.methods.method import Method, method
from suture.methods.optim import momentum_schedule
from suture.methods.pgvcl import ContrastSettings, Embedder
from suture.methods.semi import UnlabelledFrames
from suture.methods.stage import OptimizerSettings, Part, Stage, Total, TrainingSettings
from suture.methods.supervised import OhemSettings, Supervised, finetune
from suture.models.momentum import MomentumCopy
from suture.models.projector import Projector, unit
from suture.models.segmenter import set_dropout
from suture.settings import Settings

_contrast = ContrastSettings()


class PropagationSettings(TrainingSettings):
    """Length, optimiser and views, also their crops, as in PGV-CL's contrast; the rest as in PixPro."""

    steps: int | None = None
    epochs: float | None = Field(_contrast.epochs, gt=0)
    batch: int = Field(_contrast.batch, ge=1)
    optimizer: OptimizerSettings = _contrast.optimizer
    augment: Augment = _contrast.augment
    hidden: int = Field(4096, ge=1)
    channels: int = Field(256, ge=1)
    """Width of the projector and length of an embedding."""
    momentum: float = Field(0.99, ge=0, le=1)
    """Of the second branch at the start; a cosine takes it to 1."""
    distance: float = Field(0.7, gt=0)
    """Up to which distance, over the larger cell's diagonal, two pixels are a pair."""
    sharpness: float = Field(2.0, ge=1)
    """The power of the similarity by which pixels are propagated."""

    @model_validator(mode="after")
    def _possible(self) -> "PropagationSettings":
        if self.best_every is not None:
            raise ValueError("best_every needs a classifier that learns with the features, and here it rests")
        return self


@method("pixpro")
class PixPro(Method):
    """Pre-train, pixel propagation, fine-tune."""

    class Settings(Settings):
        pretrain: TrainingSettings = TrainingSettings()
        propagation: PropagationSettings = PropagationSettings()
        finetune: OhemSettings = OhemSettings()

    def stages(self) -> Iterator[Stage]:
        s = self.settings
        yield Supervised("pretrain", s.pretrain)
        yield Propagation("propagation", s.propagation)
        yield finetune(s.finetune)


class Views(NamedTuple):
    """First views of all frames, then their second views: what stands half the length further on is the same frame."""

    images: Tensor
    """2B 3 H W"""
    cells: Cells
    """2B N: where the cells of their feature grids lie in the frame."""
    in_view: Tensor
    """2B N: which cells show the scene."""


class Propagation(Stage):
    """Agreement of two views of every training frame, labelled or not."""

    settings: PropagationSettings

    def prepare(self) -> int:
        s, job = self.settings, self.job
        self.frames = UnlabelledFrames(job.frames)
        self.order = Epochs(np.arange(len(job.frames)), job.seed, self.name)
        # The classifier rests: the projector stands in its place, and fine-tuning goes on with it as it was.
        self.segmenter.classifier.requires_grad_(False)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.seed)
            projector = Projector(self.segmenter.features_channels, s.hidden, s.channels)
            # g of the propagation, which the online branch alone has: two equal branches would collapse.
            self.transform = nn.Conv2d(s.channels, s.channels, 1)
        self.online = Embedder(self.segmenter, projector)
        # Parameters only: the second branch makes batch statistics of its own.
        self.momentum = MomentumCopy(self.online, buffers="keep")
        return len(job.frames)

    def groups(self) -> list[dict[str, Any]]:
        learning = [*self.online.parameters(), *self.transform.parameters()]
        return [{"params": [p for p in learning if p.requires_grad]}]

    def on_train_start(self) -> None:
        set_dropout(self, active=False)

    def draw(self, part: Part) -> tuple[Patches, Tensor]:
        numbers = [self.order[part.step * self.settings.batch + place] for place in part.own] * 2
        rngs = [self.rng(part.step, place) for place in part.own] * 2
        draws = [draw_view(rng, self.settings.augment) for rng in rngs]
        outlines = np.stack([self.frames.outline(*view) for view in zip(numbers, draws, strict=True)])
        return self.frames.collate(numbers, draws), torch.from_numpy(outlines.astype(np.float32))

    def render(self, batch: tuple[Patches, Tensor]) -> Views:
        (patches, outlines), size, stride = batch, self.job.size, self.segmenter.stride
        return Views(
            render_images(patches, size),
            cells(outlines, patches.flip, size, stride),
            render_labels(patches, size, stride).flatten(1) != IGNORE,
        )

    def loss(self, batch: Views) -> Total:
        """−cos(z_i, x'_j) over the pairs of each frame: the first view's z with the second's x', and the reverse."""
        s = self.settings
        # As in the authors' code: g is of the projections as they are, and its values too have unit length.
        projections = self.online.projector.layers(self.segmenter.features(batch.images))
        propagated = propagate(unit(projections), unit(self.transform(projections)), s.sharpness)
        keys = _other_view(self.momentum(batch.images))
        loss, views = propagation_loss(propagated, keys, self.pairs(batch))
        return Total(loss, views / 2)  # per frame: its two directions are added

    def pairs(self, batch: Views) -> Tensor:
        """2B N N: the cells of each view that show the same place of the scene as those of the frame's other view."""
        other = Cells(*map(_other_view, batch.cells))
        shown = batch.in_view[:, :, None] & _other_view(batch.in_view)[:, None, :]
        return positive_pairs(batch.cells, other, self.settings.distance) & shown

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"supervised_steps": 0}

    def after_step(self) -> None:
        m = momentum_schedule(self.global_step, self.total_steps, self.settings.momentum)
        self.momentum.update(self.online, m)


def _other_view(x: Tensor) -> Tensor:
    return x.roll(len(x) // 2, 0)
