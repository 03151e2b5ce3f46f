"""Frames into a network and class ids out of it, on any device, in operations that every ONNX runtime has."""

from functools import lru_cache
from math import gcd

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from suture.data.classes import IGNORE
from suture.data.yuv import YuvToRgb, split_planes

_CONVERTED = 4
"""Frames that are turned into RGB at once: what is in between stays in a GPU's cache."""


def from_planes(planes: Tensor, colours: YuvToRgb) -> Tensor:
    """Planes of yuv420 (B H·3/2 W, uint8) to RGB (B H W 3, uint8): as `suture.data.yuv` does, give or take one."""
    batch, height, width = split_planes(planes)[0].shape
    fours = height // 2, 2, width // 2, 2  # pixels, two by two, share their colour
    pixels = torch.empty(batch, *fours, 3, dtype=torch.uint8, device=planes.device)
    for some, target in zip(planes.split(_CONVERTED), pixels.split(_CONVERTED), strict=True):
        light, blue, red = split_planes(some)
        light = light.reshape(len(some), *fours)
        for channel, (by_light, by_blue, by_red, offset) in enumerate(colours):
            # What comes after the point is cut off in the end, so that a half rounds.
            tint = (blue * by_blue).add_(red, alpha=by_red).add_(offset + 0.5)[:, :, None, :, None]
            target[..., channel] = torch.add(tint, light, alpha=by_light).clamp_(0, 255)
    return pixels.view(batch, height, width, 3)


def to_network(frames: Tensor, size: tuple[int, int]) -> Tensor:
    """Frames (B H W 3, uint8) to images of `size` (B 3 h w, 0..1), on the frames' device.

    The same picture as `suture.data.read_scenes.resize_image` gives, which the network was trained on, give or take one
    step of a byte (1/255): averaged over areas where both sides shrink or stay, else between the nearest pixels.

    >>> to_network(torch.zeros(1, 1080, 1920, 3, dtype=torch.uint8), (256, 256)).shape
    torch.Size([1, 3, 256, 256])
    """
    images = frames.float()
    if frames.shape[1:3] == tuple(size):
        return images.permute(0, 3, 1, 2) / 255
    batch, height, width, _ = frames.shape
    rows, columns = resizing((height, width), size, frames.device)
    # Rows first, in the order of the bytes: what is left to be moved into planes is then small.
    images = rows @ images.reshape(batch, height // rows.shape[1], rows.shape[1], width * 3)
    images = images.reshape(batch, size[0], width, 3).permute(0, 3, 1, 2)
    images = images.reshape(batch, 3, size[0], width // columns.shape[1], columns.shape[1]) @ columns.T
    # Whole bytes, as the network was trained on: without, one pixel in a thousand of a mask comes out otherwise.
    return images.reshape(batch, 3, *size).round() / 255


def to_class_ids(scores: Tensor, size: tuple[int, int], around: tuple[int, int, int, int] | None = None) -> Tensor:
    """Scores (B C h w) to the ids of the best classes at `size` (B H W, uint8), bilinear between pixels.

    `around` puts `IGNORE` on so many pixels to the left, right, top and bottom: what lies outside the view.
    """
    if scores.shape[-2:] != tuple(size):
        scores = F.interpolate(scores, tuple(size), mode="bilinear", align_corners=False)
    ids = scores.argmax(1).float()  # TensorRT makes bytes of floats only, and nothing but a last step may make them
    if around is not None:
        ids = F.pad(ids, around, value=IGNORE)
    return ids.to(torch.uint8)


def resizing(before: tuple[int, int], after: tuple[int, int], device: torch.device) -> tuple[Tensor, Tensor]:
    """The matrices that resize the height and the width; the last ones are kept."""
    shrinks = before[0] >= after[0] and before[1] >= after[1]
    rows, columns = (_weights(*sides, shrinks, device) for sides in zip(before, after, strict=True))
    return rows, columns


def _weights(before: int, after: int, shrinks: bool, device: torch.device) -> Tensor:
    """The matrix that resizes one side, after × before; where it repeats along its diagonal, one of its blocks."""
    # A tensor that is made while a graph is traced belongs to that graph, and must not be kept.
    return (_made if torch.compiler.is_compiling() else _kept)(before, after, shrinks, device)


def _made(before: int, after: int, shrinks: bool, device: torch.device) -> Tensor:
    blocks = gcd(before, after) if shrinks else 1  # areas repeat: 1080 to 256 is eight times 135 to 32
    matrix = (_areas if shrinks else _neighbours)(before // blocks, after // blocks)
    return torch.from_numpy(matrix.astype(np.float32)).to(device)


_kept = lru_cache(maxsize=64)(_made)


def _areas(before: int, after: int) -> np.ndarray:
    """Each new pixel is the mean of the old ones that it covers, as cv2.INTER_AREA."""
    edges = np.arange(after + 1) * (before / after)
    pixels = np.arange(before)
    covered = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return covered.clip(0) * (after / before)


def _neighbours(before: int, after: int) -> np.ndarray:
    """Each new pixel lies between the centres of two old ones, as cv2.INTER_LINEAR."""
    centres = ((np.arange(after) + 0.5) * (before / after) - 0.5).clip(0, before - 1)
    return (1 - np.abs(centres[:, None] - np.arange(before))).clip(0)
