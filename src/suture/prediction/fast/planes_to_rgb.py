"""Colour conversion of video frames on a GPU."""

import torch
from torch import Tensor

from suture.data.yuv import YuvToRgb, split_planes

FRAMES_AT_ONCE = 4
"""Frames converted together: their intermediate values stay in a GPU's cache."""


def planes_to_rgb(planes: Tensor, colours: YuvToRgb) -> Tensor:
    """Convert yuv420 planes (B, H * 3/2, W), uint8, to RGB (B, H, W, 3), uint8.

    Equal to `suture.data.yuv.yuv_to_rgb` up to one level.
    """
    batch, height, width = split_planes(planes)[0].shape
    squares = height // 2, 2, width // 2, 2  # four pixels share their colour
    pixels = torch.empty(batch, *squares, 3, dtype=torch.uint8, device=planes.device)
    for part, target in zip(planes.split(FRAMES_AT_ONCE), pixels.split(FRAMES_AT_ONCE), strict=True):
        light, blue, red = split_planes(part)
        light = light.reshape(len(part), *squares)
        for channel, (by_light, by_blue, by_red, offset) in enumerate(colours):
            # The cast to bytes cuts off, so a half is added to round.
            tint = (blue * by_blue).add_(red, alpha=by_red).add_(offset + 0.5)[:, :, None, :, None]
            target[..., channel] = torch.add(tint, light, alpha=by_light).clamp_(0, 255)
    return pixels.view(batch, height, width, 3)
