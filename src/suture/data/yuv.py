"""Planes of 8-bit yuv420, as most video files have their frames, and how they are read as RGB.

The planes of a frame lie below each other in one array of H·3/2 rows of W bytes: brightness, then two of colour, of
half the height and width.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np


class YuvToRgb(NamedTuple):
    """By what planes become RGB: each from the three planes and 1."""

    red: tuple[float, ...]
    green: tuple[float, ...]
    blue: tuple[float, ...]


def frame_size(shape: Sequence[int], planes: bool = True) -> tuple[int, int]:
    """Height and width of the frame whose planes, or if not planes whose RGB, have this shape."""
    rows, width = shape[:2]
    return (rows * 2 // 3 if planes else rows), width


def split_planes(planes: Any) -> tuple[Any, Any, Any]:
    """Brightness (H W) and the two planes of colour (H/2 W/2); of several frames too, and of tensors."""
    *several, rows, width = planes.shape
    height, _ = frame_size((rows, width))
    colour = planes[..., height:, :].reshape(*several, 2, height // 2, width // 2)
    return planes[..., :height, :], colour[..., 0, :, :], colour[..., 1, :, :]


def sample_planes(planes: np.ndarray, size: tuple[int, int] | None = None) -> np.ndarray:
    """What the planes say of each pixel of a frame (H W 3), or of some, as many as `size` (width, height) has.

    As in FFmpeg's fast conversion, four pixels share their colour as it is.
    """
    size = size or frame_size(planes.shape)[::-1]
    return cv2.merge([cv2.resize(part, size, interpolation=cv2.INTER_NEAREST) for part in split_planes(planes)])


def yuv_to_rgb(pixels: np.ndarray, colours: YuvToRgb) -> np.ndarray:
    """RGB of pixels from `sampled`."""
    return cv2.transform(pixels, np.array(colours))
