"""Base of PGV-CL's contrast and PixPro's propagation: an online branch, and a momentum branch that follows it.

Both stages learn features between pre-training and fine-tuning, from all training frames. A projector replaces the
head, which keeps its weights for fine-tuning.
"""

from typing import Any

import numpy as np
from pydantic import Field, model_validator
from torch import Tensor, nn

from suture.data.sampling.augment import COLORS, Augment
from suture.data.sampling.frames import Epochs
from suture.methods.optim import momentum_schedule
from suture.methods.stage import OptimizerSettings, Stage, TrainingSettings
from suture.models.ema import MomentumCopy
from suture.models.projector import Projector
from suture.models.segmenter import Segmenter, set_dropout


class BranchSettings(TrainingSettings):
    """Settings of the PGV-CL paper, and of PixPro where the paper is silent."""

    steps: int | None = None
    epochs: float | None = Field(140, gt=0)
    batch: int = Field(4, ge=1)
    optimizer: OptimizerSettings = OptimizerSettings(
        kind="lars", lr=1.0, head_factor=1, weight_decay=1e-5, schedule="cosine", warmup_epochs=5
    )
    """`head_factor` is for the projector."""
    augment: Augment = Augment(crop=(0.3, 0.7), color=COLORS["strong"])
    hidden: int = Field(512, ge=1)
    """Width of the projector's hidden layer."""
    channels: int = Field(256, ge=1)
    """Length of an embedding."""
    momentum: float = Field(0.99, ge=0, le=1)
    """Momentum of the momentum branch at the start; a cosine takes it to 1."""

    @model_validator(mode="after")
    def _last_weights(self) -> "BranchSettings":
        if self.best_every is not None:
            raise ValueError("best_every cannot be used here: the head is not trained, so there is nothing to score")
        return self


class Embedder(nn.Module):
    """A branch: encoder, decoder and projector, to embeddings of unit length."""

    def __init__(self, segmenter: Segmenter, projector: Projector) -> None:
        super().__init__()
        self.segmenter = segmenter
        self.projector = projector

    def forward(self, images: Tensor) -> Tensor:
        return self.projector(self.segmenter.features(images))


class TwoBranches(Stage):
    """A stage whose momentum branch is an average of its online branch, both without dropout."""

    settings: BranchSettings

    def make_branches(self) -> None:
        """Create both branches, and the order of all training frames."""
        s, frames = self.settings, self.context.frames
        self.order = Epochs(np.arange(len(frames)), self.context.seed, self.name)
        self.segmenter.head.requires_grad_(False)
        self.online = Embedder(self.segmenter, Projector(self.segmenter.features_channels, s.hidden, s.channels))
        # Its weights follow the online ones; its batch statistics are its own.
        self.momentum = MomentumCopy(self.online, buffers="keep")

    def groups(self) -> list[dict[str, Any]]:
        rate = self.lr * self.head_factor
        return [*super().groups(), {"name": "projector", "params": [*self.online.projector.parameters()], "lr": rate}]

    def on_train_start(self) -> None:
        set_dropout(self, active=False)

    def after_step(self) -> None:
        m = momentum_schedule(self.global_step, self.total_steps, self.settings.momentum)
        self.momentum.update(self.online, m)

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"supervised_steps": 0}
