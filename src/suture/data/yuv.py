"""Planes of 8-bit yuv420, the pixel format of most video files, and their conversion to RGB.

The planes of a frame lie below each other in one array of H·3/2 rows of W bytes: brightness, then two of colour, of
half the height and width.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np


class YuvToRgb(NamedTuple):
    """Linear conversion: the weights of the three planes and of 1 in each channel."""

    red: tuple[float, ...]
    green: tuple[float, ...]
    blue: tuple[float, ...]


def frame_size(shape: Sequence[int], planes: bool = True) -> tuple[int, int]:
    """Height and width of a frame, given the shape of its planes, or of its RGB if not `planes`."""
    rows, width = shape[:2]
    return (rows * 2 // 3 if planes else rows), width


def split_planes(planes: Any) -> tuple[Any, Any, Any]:
    """Split into brightness (H W) and two planes of colour (H/2 W/2).

    Args:
        planes: An array or tensor, … H·3/2 W.
    """
    *several, rows, width = planes.shape
    height, _ = frame_size((rows, width))
    colour = planes[..., height:, :].reshape(*several, 2, height // 2, width // 2)
    return planes[..., :height, :], colour[..., 0, :, :], colour[..., 1, :, :]


def sample_planes(planes: np.ndarray, size: tuple[int, int] | None = None) -> np.ndarray:
    """Sample the planes at each pixel of a frame (H W 3), or at `size` (width, height) pixels.

    Four pixels share their colour without interpolation, as in FFmpeg's fast conversion.
    """
    size = size or frame_size(planes.shape)[::-1]
    return cv2.merge([cv2.resize(part, size, interpolation=cv2.INTER_NEAREST) for part in split_planes(planes)])


def yuv_to_rgb(pixels: np.ndarray, colours: YuvToRgb) -> np.ndarray:
    """Convert pixels from `sample_planes` to RGB."""
    return cv2.transform(pixels, np.array(colours))
