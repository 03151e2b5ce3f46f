"""The overlay painted by a GPU, equal to that of OpenCV up to one level."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from suture.data.overlay import Overlay

YUV_WEIGHTS = np.array([(269484, 528482, 102760), (-155188, -305135, 460324), (460324, -385875, -74448)]) / 2**20
"""Y, U and V from red, green and blue: BT.601 in limited range, as in OpenCV."""
YUV_OFFSETS = np.array([16, 128, 128]) + 0.5
"""The half rounds, as the cast to bytes cuts off."""
MASK_VALUES = 256


class GpuOverlay:
    """An `Overlay` on a device, as planes of yuv420; equal to `video_writer.rgb_to_planes` of it.

    Painting and the conversion to planes are both linear and done in one step. All shapes are known beforehand and
    nothing waits for the device, so that a CUDA graph can record it.
    """

    def __init__(self, overlay: Overlay, device: torch.device) -> None:
        # For pixels inside a class, then for those on its outline: the share of the frame, and what is added.
        shown = (overlay.palette.max(axis=1) > 0).astype(np.float64)
        share = np.concatenate([overlay.style.opacity * shown, shown])[:, None]
        added = share * np.tile(overlay.palette @ YUV_WEIGHTS.T, (2, 1)) + YUV_OFFSETS
        paints = torch.from_numpy(np.concatenate([1 - share, added], 1).astype(np.float32)).to(device)
        self._light, self._tint = paints[:, [0, 1]], paints[:, [0, 2, 3]]
        self._outline = overlay.outline
        legend = np.zeros((0, 1, 3)) if overlay.legend is None else overlay.legend @ YUV_WEIGHTS.T + YUV_OFFSETS
        self._legend = torch.from_numpy(legend.astype(np.uint8)).to(device)

    def __call__(self, frames: Tensor, masks: Tensor) -> Tensor:
        """Paint frames (B, H, W, 3) and masks (B, H, W), uint8; returns planes (B, rows, columns), uint8."""
        kinds = masks.int()
        if self._outline:
            kinds = kinds.add_(outlines(masks, self._outline), alpha=MASK_VALUES)
        batch, height, width = kinds.shape
        rows, columns = (height + len(self._legend) + 1) // 2, (width + 1) // 2
        planes = torch.empty(batch, 3 * rows, 2 * columns, dtype=torch.uint8, device=frames.device)
        light = planes[:, : 2 * rows]
        tints = planes.view(batch, 6 * rows, columns)[:, 4 * rows :].view(batch, 2, rows, columns)

        paints = _look_up(self._light, kinds)
        light[:, :height, :width] = torch.addcmul(paints[..., 1], _weighted(frames, YUV_WEIGHTS[0]), paints[..., 0])
        light[:, height : height + len(self._legend), :width] = self._legend[..., 0]
        # An odd side is continued by one pixel.
        light[:, height + len(self._legend) :] = light[:, height + len(self._legend) - 1, None]
        light[:, :, width:] = light[:, :, width - 1, None]

        # OpenCV takes the colour of four pixels from the first of them.
        corners = frames[:, ::2, ::2]
        paints = _look_up(self._tint, kinds[:, ::2, ::2])
        above = (height + 1) // 2
        for plane in (1, 2):
            tint = torch.addcmul(paints[..., plane], _weighted(corners, YUV_WEIGHTS[plane]), paints[..., 0])
            tints[:, plane - 1, :above] = tint
            tints[:, plane - 1, above:] = self._legend[height % 2 :: 2, ::2, plane]
        return planes


def outlines(masks: Tensor, margin: int) -> Tensor:
    """Mark pixels with two classes within `margin` pixels along and across: (B, H, W), bool."""
    height = masks.shape[1]
    # Marked if one of the rows has two classes, or two neighbouring rows differ in this column.
    beside = _any(F.pad(masks[:, :, 1:] != masks[:, :, :-1], (margin, margin)), 2, 2 * margin)
    either = F.pad(beside, (0, 0, margin, margin))
    either[:, margin : margin + height - 1] |= masks[:, 1:] != masks[:, :-1]
    marked = _any(either, 1, 2 * margin)[:, :height]
    marked[:, : max(height - margin, 0)] |= beside[:, margin:]  # the last row, which has none below it
    return marked


def _any(values: Tensor, dim: int, length: int) -> Tensor:
    """Combine so many consecutive values by "or", twice as many with every step."""
    done = 1
    while done < length:
        step = min(done, length - done)
        left = values.shape[dim] - step
        values = values.narrow(dim, 0, left) | values.narrow(dim, step, left)
        done += step
    return values


def _look_up(paints: Tensor, kinds: Tensor) -> Tensor:
    return paints.index_select(0, kinds.flatten()).view(*kinds.shape, -1)


def _weighted(pixels: Tensor, weights: np.ndarray) -> Tensor:
    """Weighted sum of the channels in float32."""
    red, green, blue = pixels.unbind(-1)
    first, second, third = weights.tolist()
    return (red * first).add_(green, alpha=second).add_(blue, alpha=third)


def class_counts(masks: Tensor, classes: int) -> Tensor:
    """Count the pixels of each class in masks (B, H, W); returns (B, C)."""
    # Not bincount, which waits for the device. One by one, for the memory.
    ids = torch.arange(classes, device=masks.device, dtype=masks.dtype)[:, None]
    return torch.stack([(mask.flatten() == ids).sum(1) for mask in masks])
