"""Agreement of consecutive masks along the optical flow: it measures flicker, not movement."""

from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np

from suture.data.classes import IGNORE
from suture.data.yuv import YuvToRgb, sample_planes, yuv_to_rgb

THUMBNAIL_SIDE = 160
"""Longer side (pixels) at which masks are compared: flicker of regions shows, and optical flow is cheap."""
MIN_FLOW_SIDE = 32
"""Shorter pictures (pixels) are compared without flow: OpenCV reads uninitialised memory for them."""


class Thumbnail(NamedTuple):
    """A frame and its mask at a small size."""

    gray: np.ndarray
    mask: np.ndarray

    @staticmethod
    def of(frame: np.ndarray, mask: np.ndarray, colours: YuvToRgb | None = None) -> "Thumbnail":
        """Shrink a frame, RGB or planes with their colours, and its mask."""
        height, width = mask.shape
        scale = min(1.0, THUMBNAIL_SIDE / max(height, width))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        twice = min(width, 2 * size[0]), min(height, 2 * size[1])  # four samples per pixel are enough to average
        sample = sample_planes(frame, twice) if colours else cv2.resize(frame, twice, interpolation=cv2.INTER_NEAREST)
        small = cv2.resize(sample, size, interpolation=cv2.INTER_AREA)
        gray = cv2.cvtColor(yuv_to_rgb(small, colours) if colours else small, cv2.COLOR_RGB2GRAY)
        return Thumbnail(gray, cv2.resize(mask, size, interpolation=cv2.INTER_NEAREST_EXACT))


def flow_agreement(before: Thumbnail, now: Thumbnail) -> float:
    """Share of pixels that have the class of the same spot in the previous frame; NaN if nothing can be compared."""
    if before.gray.shape != now.gray.shape:
        return float("nan")
    earlier = before.mask
    if min(now.gray.shape) >= MIN_FLOW_SIDE:
        # A new object each time: it keeps state of earlier pictures that would change the result.
        search = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)
        flow = search.calc(now.gray, before.gray, None)  # type: ignore[call-overload]
        rows, columns = _indices(*now.gray.shape)
        x, y = columns + flow[..., 0], rows + flow[..., 1]
        earlier = cv2.remap(earlier, x, y, cv2.INTER_NEAREST, borderMode=cv2.BORDER_CONSTANT, borderValue=IGNORE)
    known = (earlier != IGNORE) & (now.mask != IGNORE)
    count = np.count_nonzero(known)
    return np.count_nonzero((earlier == now.mask) & known) / count if count else float("nan")


@lru_cache(maxsize=8)
def _indices(height: int, width: int) -> np.ndarray:
    return np.indices((height, width), np.float32)
