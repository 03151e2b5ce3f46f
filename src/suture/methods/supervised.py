"""Supervised training on the labelled frames: the baseline, and the first and last stage of other methods."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np
from pydantic import Field
from torch import Tensor

from suture.core.settings import Settings
from suture.data.sampling.augment import Patches, render_images, render_labels
from suture.data.sampling.frames import Epochs
from suture.losses.cross_entropy import cross_entropy
from suture.losses.hard_pixels import KEEP, THRESHOLD, hard_pixels
from suture.methods.method import Method
from suture.methods.stage import OneStageSettings, Part, Stage, Total, TrainingSettings

SupervisedLoss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Supervised(Stage):
    """Training on frames with labels.

    Args:
        loss: Loss of logits and labels, as a sum and a count.
        on: `labelled` frames, or `all`, with pseudo labels for the others.
    """

    def __init__(
        self,
        name: str,
        settings: TrainingSettings,
        loss: SupervisedLoss = cross_entropy,
        *,
        on: Literal["labelled", "all"] = "labelled",
        start_from: str | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(name, settings, start_from=start_from, key=key)
        self.pixel_loss = loss
        self.on = on
        self.labels_alone = on == "labelled"

    def prepare(self) -> int:
        frames = self.context.frames
        numbers = frames.labelled if self.on == "labelled" else np.arange(len(frames))
        self.order = Epochs(numbers, self.context.seed, self.name)
        return len(numbers)

    def draw(self, part: Part) -> Patches:
        return self.usual_views(self.order, part)

    def render(self, batch: Patches) -> tuple[Tensor, Tensor]:
        return render_images(batch, self.context.size), render_labels(batch, self.context.size)

    def loss(self, batch: tuple[Tensor, Tensor]) -> Total:
        images, labels = batch
        return Total(*self.pixel_loss(self.segmenter(images), labels))


class SupervisedOnly(Method):
    """The labelled frames alone: the baseline.

    By default it has as many supervised steps as the other methods have in all their supervised stages together, at the
    rate of the others in one stage. Otherwise a comparison would flatter them.
    """

    class Settings(Settings):
        train: OneStageSettings = OneStageSettings()

    def stages(self) -> Iterator[Stage]:
        yield Supervised("train", self.settings.train)


class OhemSettings(TrainingSettings):
    """Settings of fine-tuning on hard pixels (online hard example mining)."""

    threshold: float = Field(THRESHOLD, gt=0, lt=1)
    """Only pixels whose true class has less probability than this count."""
    keep: float = Field(KEEP, gt=0, le=1)
    """Smallest share of each frame's pixels that counts, the hardest ones."""


def finetune(settings: OhemSettings) -> Supervised:
    """Last stage of several methods: the labelled frames again, on the pixels that are still hard."""
    return Supervised("finetune", settings, partial(hard_pixels, threshold=settings.threshold, keep=settings.keep))
