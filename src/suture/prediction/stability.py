"""How far masks that follow one another agree: flicker shows, movement does not."""

from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np

from suture.data.classes import IGNORE
from suture.data.yuv import YuvToRgb, sample_planes, yuv_to_rgb

_SIDE = 160
"""The longer side at which masks are compared: flicker of whole regions shows, the search for movement stays cheap."""
_SMALLEST = 32
"""Pictures with a shorter side than this are compared as they are: of smaller ones OpenCV's search reads memory that
nobody has written, and finds something else each time."""


class Small(NamedTuple):
    """A frame and its mask, small."""

    gray: np.ndarray
    mask: np.ndarray

    @staticmethod
    def of(frame: np.ndarray, mask: np.ndarray, colours: YuvToRgb | None = None) -> "Small":
        """Of RGB, or of planes and their colours."""
        height, width = mask.shape
        scale = min(1.0, _SIDE / max(height, width))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        twice = min(width, 2 * size[0]), min(height, 2 * size[1])  # two pixels for each small one are enough to average
        some = sample_planes(frame, twice) if colours else cv2.resize(frame, twice, interpolation=cv2.INTER_NEAREST)
        small = cv2.resize(some, size, interpolation=cv2.INTER_AREA)
        gray = cv2.cvtColor(yuv_to_rgb(small, colours) if colours else small, cv2.COLOR_RGB2GRAY)
        return Small(gray, cv2.resize(mask, size, interpolation=cv2.INTER_NEAREST_EXACT))


def flow_agreement(before: Small, now: Small) -> float:
    """The share of pixels whose class is that of the same spot in the frame before, found by optical flow; NaN if none.

    After a cut there are no same spots, and the value is low.
    """
    if before.gray.shape != now.gray.shape:
        return float("nan")
    earlier = before.mask
    if min(now.gray.shape) >= _SMALLEST:
        # A new one each time: a search remembers pictures of other sizes, and what it finds would depend on them.
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
