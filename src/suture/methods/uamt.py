"""UA-MT: uncertainty-aware mean teacher (Yu et al., MICCAI 2019).

The teacher is an average of the student's weights. On unlabelled frames the student follows the teacher where its mean
prediction, over several passes with dropout and noise, has little entropy.
"""

import math
from collections.abc import Iterator
from functools import reduce
from typing import Any, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from suture.core.errors import UserError
from suture.core.settings import Settings
from suture.data.classes import IGNORE
from suture.data.sampling.augment import draw_view, render_images, render_labels
from suture.losses.consistency import certain_consistency, entropy
from suture.losses.cross_entropy import cross_entropy
from suture.methods.method import Method
from suture.methods.semi import SemiSettings, SemiSupervised
from suture.methods.stage import Part, Stage, Total
from suture.models.ema import MomentumCopy
from suture.models.segmenter import Segmenter

WITH_DROPOUT = ("deeplabv3", "deeplabv3plus", "fpn", "pspnet")
"""Architectures with dropout in the decoder."""


class UncertaintySettings(SemiSettings):
    """The paper's settings. Weight and threshold rise over the whole stage."""

    teacher: float = Field(0.99, ge=0, lt=1)
    """Momentum of the teacher; lower in the first steps."""
    passes: int = Field(8, ge=1)
    """Stochastic passes for the uncertainty."""
    noise: float = Field(0.1, ge=0)
    """Noise in the teacher's input, in standard deviations of the encoder's normalisation; clipped at twice that."""
    consistency: float = Field(0.1, ge=0)
    """Weight of the consistency at the end."""
    threshold: float = Field(0.75, ge=0, le=1)
    """Entropy below which a pixel is certain at the start, as a share of ln C; it rises to 1."""


class UAMT(Method):
    """Uncertainty-aware mean teacher, in one stage."""

    class Settings(Settings):
        train: UncertaintySettings = UncertaintySettings()

    def stages(self) -> Iterator[Stage]:
        yield UncertaintyAware("train", self.settings.train)


class UncertaintyBatch(NamedTuple):
    """Views: `Patches` from the loader; once rendered, images and labels."""

    labelled: Any
    unlabelled: Any
    """With labels 0 inside the view and IGNORE outside."""


class UncertaintyAware(SemiSupervised):
    """Supervised loss + λ(t) · consistency with the teacher's certain pixels."""

    settings: UncertaintySettings

    def validate_segmenter(self, segmenter: Segmenter) -> None:
        if not segmenter.has_active_dropout:
            raise UserError(
                f"method: uamt needs dropout and {segmenter.architecture} with {segmenter.encoder_name} has none: "
                f"set model.architecture to one of {', '.join(WITH_DROPOUT)}."
            )

    def prepare(self) -> int:
        # Parameters only: in train mode, for its dropout, the teacher uses the statistics of its own batches.
        self.teacher = MomentumCopy(self.segmenter, buffers="keep")
        return super().prepare()

    def draw(self, part: Part) -> UncertaintyBatch:
        places = self.unlabelled_places(part.own)
        draws = [draw_view(self.rng(part.step, f"unlabelled {place}"), self.settings.augment) for place in places]
        numbers = self.unlabelled_numbers(part.step, places)
        return UncertaintyBatch(self.usual_views(self.order, part), self.unlabelled.collate(numbers, draws))

    def render(self, batch: UncertaintyBatch) -> UncertaintyBatch:
        size = self.context.size
        return UncertaintyBatch(*((render_images(views, size), render_labels(views, size)) for views in batch))

    def loss(self, batch: UncertaintyBatch) -> Total:
        (images, labels), (unlabelled, in_view) = batch
        # One after the other: in one batch, as in the authors' code, batch norms mix the statistics of both, which
        # costs 13 points of mIoU with few labels, even without any consistency.
        supervised = Total(*cross_entropy(self.segmenter(images), labels))
        student = self.segmenter(unlabelled)

        s, rise = self.settings, ramp(self.clock)
        target = self.stochastic_pass(unlabelled)
        mean = reduce(torch.add, (self.stochastic_pass(unlabelled) for _ in range(s.passes))) / s.passes
        limit = (s.threshold + (1 - s.threshold) * rise) * math.log(target.shape[1])
        inside = in_view != IGNORE
        certain = (entropy(mean) < limit) & inside
        consistency = Total(*certain_consistency(student.float().softmax(1), target, certain))
        return self.weighted_sum((1.0, supervised), (s.consistency * rise, consistency), learnt=certain, in_view=inside)

    def stochastic_pass(self, images: Tensor) -> Tensor:
        """Teacher's probabilities for noisy images, with dropout."""
        strength = self.settings.noise
        noise = (strength * torch.randn_like(images)).clamp(-2 * strength, 2 * strength)
        return self.teacher(images + noise * self.segmenter.std).float().softmax(1)

    def after_step(self) -> None:
        # A plain average of the first steps, then a moving one.
        self.teacher.update(self.segmenter, min(1 - 1 / self.global_step, self.settings.teacher))


def ramp(progress: Tensor) -> Tensor:
    """Rise from e⁻⁵ at the start of the stage, 0, to 1 at its end, 1.

    >>> [round(value, 3) for value in ramp(torch.tensor([0, 0.5, 1])).tolist()]
    [0.007, 0.287, 1.0]
    """
    return torch.exp(-5 * (1 - progress) ** 2)
