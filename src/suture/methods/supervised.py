"""Supervised training on the labelled frames: the baseline, and the first and last stage of the others."""

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
from suture.methods.method import Method, method
from suture.methods.stage import OneStageSettings, Part, Stage, Total, TrainingSettings

SupervisedLoss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class Supervised(Stage):
    """Cross entropy (or another loss of logits and labels) on the labelled frames.

    On `all` frames, the pseudo labels of the others are taken for the truth.
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


@method("supervised")
class SupervisedOnly(Method):
    """DeepLabV3 (or any other segmenter) on the labelled frames alone: the baseline.

    By default it has as many supervised steps as the other methods have in all their supervised stages together, and
    learns as fast as the others in one stage: otherwise a comparison flatters them.
    """

    class Settings(Settings):
        train: OneStageSettings = OneStageSettings()

    def stages(self) -> Iterator[Stage]:
        yield Supervised("train", self.settings.train)


class OhemSettings(TrainingSettings):
    """Fine-tuning on the pixels that are still hard."""

    threshold: float = Field(THRESHOLD, gt=0, lt=1)
    keep: float = Field(KEEP, gt=0, le=1)


def finetune(settings: OhemSettings) -> Supervised:
    """The last stage of several methods: the labelled frames once more, by the pixels that are still hard."""
    return Supervised("finetune", settings, partial(hard_pixels, threshold=settings.threshold, keep=settings.keep))


@method("twice")
class Twice(Method):
    """Pre-train and fine-tune, with nothing in between: what PGV-CL's contrast has to improve on."""

    class Settings(Settings):
        pretrain: TrainingSettings = TrainingSettings()
        finetune: OhemSettings = OhemSettings()

    def stages(self) -> Iterator[Stage]:
        yield Supervised("pretrain", self.settings.pretrain)
        yield finetune(self.settings.finetune)
