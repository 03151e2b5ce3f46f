"""Colours as torchvision's `ColorJitter`, `RandomGrayscale` and `GaussianBlur` make them, batched on the device.

`augment.recolor` is several times faster and close to it. This is for published methods with exactly these transforms.
"""

import numpy as np
import torch
from torch import Tensor

from suture.data.sampling.augment import Augment, blur, draw_view

MAX_BLUR_PIXELS = 2.0
"""Largest standard deviation of the blur; the smallest is 0.1."""
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


def draw_jitter(rng: np.random.Generator, augment: Augment) -> np.ndarray:
    """Draw the colours of a view, as `draw_view` does, and the order of the four changes."""
    return np.concatenate([draw_view(rng, augment).color, rng.permutation(4)]).astype(np.float32)


def jitter_colors(images: Tensor, draws: Tensor) -> Tensor:
    """Change brightness, contrast, saturation and hue of images N 3 H W in the drawn order, then grey and blur.

    Args:
        draws: N 10, from `draw_jitter`.
    """
    draws = draws[:, :, None, None, None]
    for change in draws[:, 6:].unbind(1):
        grey = _grey(images)
        other = torch.where(change == SATURATION, grey, torch.zeros_like(grey))
        other = torch.where(change == CONTRAST, grey.mean((2, 3), keepdim=True), other)
        factor = torch.where(change == SATURATION, draws[:, SATURATION], draws[:, BRIGHTNESS])
        factor = torch.where(change == CONTRAST, draws[:, CONTRAST], factor)
        blended = (factor * images + (1 - factor) * other).clamp(0, 1)
        images = torch.where(change == HUE, _turn_hue(images, draws[:, HUE, 0]), blended)
    images = torch.where(draws[:, 4] > 0, _grey(images).expand_as(images), images)
    amount = draws[:, 5, 0, 0, 0]
    return blur(images, torch.where(amount < 0, 0, 0.1 + amount * (MAX_BLUR_PIXELS - 0.1)), MAX_BLUR_PIXELS)


def _grey(images: Tensor) -> Tensor:
    red, green, blue = images.split(1, 1)
    return 0.2989 * red + 0.587 * green + 0.114 * blue


def _turn_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Add turns (N 1 1) to the hue of HSV."""
    red, green, blue = images.unbind(1)
    value = images.amax(1)
    chroma = value - images.amin(1)
    scale = torch.where(chroma == 0, torch.ones_like(chroma), chroma)
    sector = torch.where(value == green, 2 + (blue - red) / scale, 4 + (red - green) / scale)
    sector = torch.where(value == red, (green - blue) / scale, sector) + 6 * turns
    # Each channel is the value, less a part of the chroma that depends on its distance in hue.
    channels = [(offset + sector) % 6 for offset in (5, 3, 1)]
    return torch.stack([value - chroma * torch.minimum(k, 4 - k).clamp(0, 1) for k in channels], 1)
