"""The overlay as a GPU draws it, where frames and masks already are: that of OpenCV, within one level.

All shapes are known beforehand and nothing is waited for, so that a CUDA graph can record it.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from suture.deploy.overlay import STRENGTH, Overlay

_SHIFT = 20
_Y, _U, _V = (269484, 528482, 102760), (-155188, -305135, 460324), (460324, -385875, -74448)
"""BT.601 in limited range from red, green and blue, as OpenCV has it: in whole numbers, 1 is 2²⁰."""
_DARKEST, _COLORLESS = 16, 128


class Drawing:
    """An `Overlay` on a device: frames and masks to planes of yuv420, as `suture.deploy.outputs.to_yuv` makes them."""

    def __init__(self, overlay: Overlay, device: torch.device) -> None:
        # The colour of a class, and how much of it its pixels take on.
        paints = np.concatenate([overlay.palette, STRENGTH * overlay.shown[:, None]], axis=1)
        self._paints = torch.from_numpy(paints.astype(np.float32)).to(device)
        self._around = overlay.around
        self._legend = None if overlay.legend is None else torch.tensor(overlay.legend, device=device).int()

    def __call__(self, frame: Tensor, mask: Tensor) -> Tensor:
        """A frame (H W 3) and its mask (H W) to the planes of one picture, below each other; all uint8."""
        paints = self._paints.index_select(0, mask.flatten().int()).view(*mask.shape, 4)
        color, share = paints[..., :3], paints[..., 3:]
        share = torch.where(self._outline(mask)[..., None], share.ceil(), share)
        drawn = torch.lerp(frame.float(), color, share).round().int()
        if self._legend is not None:
            drawn = torch.cat([drawn, self._legend])
        return to_planes(drawn)

    def _outline(self, mask: Tensor) -> Tensor:
        """Where the neighbourhood of a pixel holds two classes: its largest id is not its least."""
        ids = mask.float()
        side, margin = self._around, self._around // 2
        rows = F.max_pool2d(torch.stack([ids, -ids]), (1, side), 1, (0, margin))
        largest, least = F.max_pool2d(rows, (side, 1), 1, (margin, 0))
        return largest != -least


def to_planes(pixels: Tensor) -> Tensor:
    """RGB (H W 3, int32) as planes of yuv420 (uint8); an odd side is continued by one pixel."""
    height, width, _ = pixels.shape
    if height % 2:
        pixels = torch.cat([pixels, pixels[-1:]])
    if width % 2:
        pixels = torch.cat([pixels, pixels[:, -1:]], 1)
    corners = pixels[::2, ::2]  # OpenCV takes the colour of four pixels from the first of them
    planes = _plane(pixels, _Y, _DARKEST), _plane(corners, _U, _COLORLESS), _plane(corners, _V, _COLORLESS)
    return torch.cat([plane.flatten() for plane in planes]).view(-1, pixels.shape[1])


def _plane(pixels: Tensor, weights: tuple[int, int, int], offset: int) -> Tensor:
    red, green, blue = pixels.unbind(-1)
    sum_ = (red * weights[0]).add(green, alpha=weights[1]).add(blue, alpha=weights[2])
    return (sum_ + (2 * offset + 1 << _SHIFT - 1) >> _SHIFT).to(torch.uint8)


def class_counts(masks: Tensor, classes: int) -> Tensor:
    """The pixels of each class in each mask: B H W to B C."""
    # Not bincount, which waits for the device to learn how many numbers there are. One by one, for the memory.
    ids = torch.arange(classes, device=masks.device, dtype=masks.dtype)[:, None]
    return torch.stack([(mask.flatten() == ids).sum(1) for mask in masks])
