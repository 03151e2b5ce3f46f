"""Smoothing in time that blurs neither movement nor cuts."""

import torch
from torch import Tensor

from suture.core.errors import UserError

COLOR_TOLERANCE = 0.06
"""Change of a pixel's colour (0 to 1) at which the weight of the previous frame has fallen to 1/e."""


class Smoother:
    """Mixes probabilities with those of the previous frame where the picture has not changed.

    A pixel whose colour changed, by movement or by a cut, keeps its new probabilities. Use one smoother per video.

    Args:
        strength: Weight of the previous frame in an unchanged pixel, between 0 and 1.
    """

    def __init__(self, strength: float) -> None:
        if not 0 < strength < 1:
            raise UserError(f"The strength of smoothing is {strength}, expected a number between 0 and 1.")
        self.strength = strength
        self._previous: tuple[Tensor, Tensor] | None = None

    def __call__(self, images: Tensor, probabilities: Tensor) -> Tensor:
        """Smooth consecutive images (B, 3, h, w) and their probabilities (B, C, h, w)."""
        smooth = []
        for image, current in zip(images, probabilities, strict=True):
            if self._previous is not None and self._previous[0].shape == image.shape:
                previous_image, previous = self._previous
                change = (image - previous_image).abs().amax(0)
                weight = self.strength * torch.exp(-((change / COLOR_TOLERANCE) ** 2))
                current = current + weight * (previous - current)
            self._previous = image, current
            smooth.append(current)
        return torch.stack(smooth)
