"""What the methods in one stage share: labelled and unlabelled frames in a batch, and a loss of several terms."""

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from suture.data.sampling.frames import Epochs, UnlabelledFrames
from suture.methods.stage import OneStageSettings, Stage, Total, all_sum


class SemiSettings(OneStageSettings):
    """As many supervised steps as the baseline's, each with unlabelled frames beside the labelled ones."""

    unlabelled_batch: int | None = Field(None, ge=1)
    """Unlabelled frames per step, over all devices and accumulated parts; by default as many as labelled ones."""


class SemiSupervised(Stage):
    """A stage on labelled frames, drawn as the baseline draws them, and unlabelled ones."""

    settings: SemiSettings
    instead = "supervised"
    hands_on_teacher: ClassVar[bool] = True
    """Whether the outcome is the teacher, whose predictions are learnt as they come, or else the student."""

    @property
    def unlabelled_batch(self) -> int:
        """Unlabelled frames per step."""
        return self.settings.unlabelled_batch or self.settings.batch

    @property
    def batches(self) -> dict[str, int]:
        return super().batches | {"unlabelled_batch": self.unlabelled_batch}

    def prepare(self) -> int:
        context = self.context
        self.order = Epochs(context.frames.labelled, context.seed, self.name)
        self.unlabelled = UnlabelledFrames(context.frames)
        self.unlabelled_order = Epochs(context.frames.unlabelled, context.seed, self.name, "unlabelled")
        return len(context.frames.labelled)

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"unlabelled_batch": self.unlabelled_batch}

    def unlabelled_places(self, labelled: range) -> range:
        """The unlabelled places that go with labelled ones: the same share of their batch."""
        start, stop = (end * self.unlabelled_batch // self.settings.batch for end in (labelled.start, labelled.stop))
        return range(start, stop)

    def unlabelled_numbers(self, step: int, places: range) -> list[int]:
        """The frames at unlabelled places of a step."""
        return [self.unlabelled_order[step * self.unlabelled_batch + place] for place in places]

    def weighted_sum(self, *terms: tuple[float | Tensor, Total], learnt: Tensor, in_view: Tensor) -> Total:
        """Σ weight · mean of terms that are means over different pixels.

        `learnt` are the unlabelled pixels that are learnt from, of those `in_view`; both B H W, bool.

        `training_step` divides a loss by its weight summed over all processes, and one weight cannot serve several
        terms. So each term is divided by its own global count here, and the processes' weights add up to 1: the sum
        over all processes is then exactly what one process with the whole batch has, in value and in gradient.
        """
        means = [weight * term.loss / all_sum(term.weight.float()).clamp(min=1e-12) for weight, term in terms]
        total = torch.stack(means).sum()
        pixels, seen = all_sum(torch.stack([(learnt & in_view).sum(), in_view.sum()]))
        return Total(total, torch.full_like(total, 1 / self.context.world), pixels / seen.clamp(min=1))
