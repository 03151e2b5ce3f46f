"""Smoothing in time that smears neither movement nor cuts."""

import torch
from torch import Tensor

from suture.core.errors import UserError

_SAME = 0.06
"""How much a pixel's colour (0..1) may change between two frames and still count, mostly, as the same thing."""


class Smoother:
    """Carries probabilities over from the frame before, pixel by pixel, where the picture has not changed.

    `strength` is the share of the frame before in an unchanged pixel, 0 to below 1. A pixel whose colour changed, by
    movement or by a cut, takes what the network says of it now. One smoother is for one video, its frames in order.
    """

    def __init__(self, strength: float) -> None:
        if not 0 < strength < 1:
            raise UserError(f"The strength of smoothing is {strength}, expected a number between 0 and 1.")
        self.strength = strength
        self._before: tuple[Tensor, Tensor] | None = None

    def __call__(self, images: Tensor, found: Tensor) -> Tensor:
        """Images (B 3 h w) that follow one another, and their probabilities (B C h w), to smoother ones."""
        smooth = []
        for image, here in zip(images, found, strict=True):
            if self._before is not None and self._before[0].shape == image.shape:
                image_before, before = self._before
                change = (image - image_before).abs().amax(0)
                here = here + self.strength * torch.exp(-((change / _SAME) ** 2)) * (before - here)
            self._before = image, here
            smooth.append(here)
        return torch.stack(smooth)
