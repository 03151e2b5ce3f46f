"""The overlay as a GPU draws it, where frames and masks already are: that of OpenCV, within one level.

To paint and to go to the planes of a video are both linear, and so one step: no picture in between is written to memory
and read again. All shapes are known beforehand and nothing is waited for, so that a CUDA graph can record it.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from suture.data.overlay import OPACITY, Overlay

_WEIGHTS = np.array([(269484, 528482, 102760), (-155188, -305135, 460324), (460324, -385875, -74448)]) / 2**20
_OFFSETS = np.array([16, 128, 128]) + 0.5
"""Y, U and V from red, green and blue: BT.601 in limited range, as OpenCV has it; what comes after the point is cut off
in the end, so that a half rounds."""
_IDS = 256
"""Values that a mask can have."""


class Drawing:
    """An `Overlay` on a device: frames and masks to planes of yuv420, equal to `video_writer.to_yuv`."""

    def __init__(self, overlay: Overlay, device: torch.device) -> None:
        # For pixels inside of a class, and then for those on its outline: what is left of the frame, and what is added.
        shown = (overlay.palette.max(axis=1) > 0).astype(np.float64)
        share = np.concatenate([OPACITY * shown, shown])[:, None]
        added = share * np.tile(overlay.palette @ _WEIGHTS.T, (2, 1)) + _OFFSETS
        paints = torch.from_numpy(np.concatenate([1 - share, added], 1).astype(np.float32)).to(device)
        self._light, self._tint = paints[:, [0, 1]], paints[:, [0, 2, 3]]
        self._margin = overlay.outline
        legend = np.zeros((0, 1, 3)) if overlay.legend is None else overlay.legend @ _WEIGHTS.T + _OFFSETS
        self._legend = torch.from_numpy(legend.astype(np.uint8)).to(device)

    def __call__(self, frames: Tensor, masks: Tensor) -> Tensor:
        """Frames (B H W 3) and their masks (B H W) to the planes of each picture, below each other; all uint8."""
        kinds = masks.int().add_(outlines(masks, self._margin), alpha=_IDS)
        batch, height, width = kinds.shape
        rows, columns = (height + len(self._legend) + 1) // 2, (width + 1) // 2
        planes = torch.empty(batch, 3 * rows, 2 * columns, dtype=torch.uint8, device=frames.device)
        light = planes[:, : 2 * rows]
        tints = planes.view(batch, 6 * rows, columns)[:, 4 * rows :].view(batch, 2, rows, columns)

        paints = _looked_up(self._light, kinds)
        light[:, :height, :width] = torch.addcmul(paints[..., 1], _weighted(frames, _WEIGHTS[0]), paints[..., 0])
        light[:, height : height + len(self._legend), :width] = self._legend[..., 0]
        # An odd side is continued by one pixel.
        light[:, height + len(self._legend) :] = light[:, height + len(self._legend) - 1, None]
        light[:, :, width:] = light[:, :, width - 1, None]

        # OpenCV takes the colour of four pixels from the first of them.
        corners = frames[:, ::2, ::2]
        paints = _looked_up(self._tint, kinds[:, ::2, ::2])
        above = (height + 1) // 2
        for plane in (1, 2):
            tint = torch.addcmul(paints[..., plane], _weighted(corners, _WEIGHTS[plane]), paints[..., 0])
            tints[:, plane - 1, :above] = tint
            tints[:, plane - 1, above:] = self._legend[height % 2 :: 2, ::2, plane]
        return planes


def outlines(masks: Tensor, margin: int) -> Tensor:
    """Where the pixels up to `margin` away, along and across, are of two classes or more: B H W, bool."""
    height = masks.shape[1]
    # They are of one class if each of their rows is, and the pixels above and below this one are too.
    beside = _any(F.pad(masks[:, :, 1:] != masks[:, :, :-1], (margin, margin)), 2, 2 * margin)
    either = F.pad(beside, (0, 0, margin, margin))
    either[:, margin : margin + height - 1] |= masks[:, 1:] != masks[:, :-1]
    found = _any(either, 1, 2 * margin)[:, :height]
    found[:, : max(height - margin, 0)] |= beside[:, margin:]  # the last row, without what is below it
    return found


def _any(values: Tensor, dim: int, length: int) -> Tensor:
    """Whether any of so many values that follow one another is true; twice as many with every step."""
    done = 1
    while done < length:
        step = min(done, length - done)
        left = values.shape[dim] - step
        values = values.narrow(dim, 0, left) | values.narrow(dim, step, left)
        done += step
    return values


def _looked_up(paints: Tensor, kinds: Tensor) -> Tensor:
    return paints.index_select(0, kinds.flatten()).view(*kinds.shape, -1)


def _weighted(pixels: Tensor, weights: np.ndarray) -> Tensor:
    """The sum of the channels (last, uint8), each with its weight: in float32."""
    red, green, blue = pixels.unbind(-1)
    first, second, third = weights.tolist()
    return (red * first).add_(green, alpha=second).add_(blue, alpha=third)


def class_counts(masks: Tensor, classes: int) -> Tensor:
    """The pixels of each class in each mask: B H W to B C."""
    # Not bincount, which waits for the device to learn how many numbers there are. One by one, for the memory.
    ids = torch.arange(classes, device=masks.device, dtype=masks.dtype)[:, None]
    return torch.stack([(mask.flatten() == ids).sum(1) for mask in masks])
