"""Base of the methods in one stage: labelled and unlabelled frames in a batch, and a loss of several terms."""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from suture.data.sampling.frames import Epochs, UnlabelledFrames
from suture.methods.stage import OneStageSettings, Stage, Total, all_sum


class SemiSettings(OneStageSettings):
    """Settings of stages with unlabelled frames beside the labelled ones, with as many steps as the baseline."""

    unlabelled_batch: int | None = Field(None, ge=1)
    """Unlabelled frames per step, over all devices and accumulated parts; None is as many as labelled ones."""


class SemiSupervised(Stage):
    """A stage on labelled frames, drawn as in the baseline, and unlabelled ones."""

    settings: SemiSettings
    instead = "supervised"

    @property
    def unlabelled_batch(self) -> int:
        """Unlabelled frames per step."""
        return self.settings.unlabelled_batch or self.settings.batch

    @property
    def batches(self) -> dict[str, int]:
        return super().batches | {"unlabelled_batch": self.unlabelled_batch}

    def prepare(self) -> int:
        frames, seed = self.context.frames, self.context.seed
        self.order = Epochs(frames.labelled, seed, self.name)
        self.unlabelled = UnlabelledFrames(frames)
        self.unlabelled_order = Epochs(frames.unlabelled, seed, self.name, "unlabelled")
        return len(frames.labelled)

    def facts(self) -> dict[str, Any]:
        return super().facts() | {"unlabelled_batch": self.unlabelled_batch}

    def unlabelled_places(self, labelled: range) -> range:
        """Unlabelled places of a process that has these labelled ones: the same share of their batch."""
        start, stop = (end * self.unlabelled_batch // self.settings.batch for end in (labelled.start, labelled.stop))
        return range(start, stop)

    def unlabelled_numbers(self, step: int, places: range) -> list[int]:
        """Frame numbers at unlabelled places of a step."""
        return [self.unlabelled_order[step * self.unlabelled_batch + place] for place in places]

    def weighted_sum(self, *terms: tuple[float | Tensor, Total], learnt: Tensor, in_view: Tensor) -> Total:
        """Σ weight · mean of terms whose means are over different pixels.

        Each term is divided by its own global count, and the weights of all processes add up to 1. So the sum over the
        processes is the loss of one process with the whole batch, in value and in gradient.

        Args:
            learnt: Unlabelled pixels that the loss uses, B H W bool.
            in_view: Unlabelled pixels inside the view, B H W bool.
        """
        means = [weight * term.loss / all_sum(term.weight.float()).clamp(min=1e-12) for weight, term in terms]
        total = torch.stack(means).sum()
        pixels, seen = all_sum(torch.stack([(learnt & in_view).sum(), in_view.sum()]))
        return Total(total, torch.full_like(total, 1 / self.context.world), pixels / seen.clamp(min=1))
