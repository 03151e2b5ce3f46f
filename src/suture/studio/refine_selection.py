"""Help with drawing, by OpenCV: a rough outline that snaps to edges, and a label carried to a near frame."""

from collections.abc import Sequence

import cv2
import numpy as np

from suture.core.errors import UserError
from suture.data.classes import IGNORE

MAX_SIDE = 320
"""Longer side (pixels) at which GrabCut works: a tenth of a second."""
MAX_FLOW_SIDE = 480
"""Longer side (pixels) at which optical flow is estimated."""
MARGIN = 0.25
"""Surroundings of an outline that show GrabCut the background, as a share of its size."""
BAND = 0.12
"""Width of the band along the outline in which the edge is searched, as a share of its size."""
ITERATIONS = 3


def refine_selection(frame: np.ndarray, outline: Sequence[tuple[float, float]]) -> np.ndarray:
    """Snap a rough outline to the edges of the object in it.

    Args:
        frame: (H, W, 3) RGB, uint8.
        outline: Points (x, y) of the polygon.

    Returns:
        (H, W) uint8, 1 in the object.
    """
    height, width = frame.shape[:2]
    points = np.array(outline, np.float32).reshape(-1, 2)
    if len(points) < 3 or not np.isfinite(points).all():
        raise UserError("The outline has fewer than three points: draw around the object.")
    points = points.clip(0, (width - 1, height - 1))
    (left, top), (right, bottom) = points.min(0), points.max(0)
    around = MARGIN * max(right - left, bottom - top) + 4
    x0, y0 = int(max(0, left - around)), int(max(0, top - around))
    x1, y1 = int(min(width, right + around + 1)), int(min(height, bottom + around + 1))
    scale = min(1.0, MAX_SIDE / max(x1 - x0, y1 - y0))
    size = max(1, round((x1 - x0) * scale)), max(1, round((y1 - y0) * scale))
    inside = np.zeros((y1 - y0, x1 - x0), np.uint8)
    cv2.fillPoly(inside, [np.round(points - (x0, y0)).astype(np.int32)], 1)
    small = cv2.resize(inside, size, interpolation=cv2.INTER_NEAREST)
    selection = inside
    if 0 < np.count_nonzero(small) < small.size:
        picture = cv2.cvtColor(cv2.resize(frame[y0:y1, x0:x1], size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2BGR)
        refined = _grab_cut(picture, small, max(2, round(BAND * scale * max(right - left, bottom - top))))
        if refined.any():
            smooth = cv2.resize(refined.astype(np.float32), inside.shape[::-1], interpolation=cv2.INTER_LINEAR)
            selection = (smooth > 0.5).astype(np.uint8)
    result = np.zeros((height, width), np.uint8)
    result[y0:y1, x0:x1] = selection
    return result


def _grab_cut(picture: np.ndarray, inside: np.ndarray, band: int) -> np.ndarray:
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * band + 1, 2 * band + 1))
    core, reach = cv2.erode(inside, kernel, borderValue=0), cv2.dilate(inside, kernel)
    trust = np.where(inside > 0, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    trust[core > 0], trust[reach == 0] = cv2.GC_FGD, cv2.GC_BGD
    cv2.setRNGSeed(0)
    models = np.zeros((2, 1, 65))
    cv2.grabCut(picture, trust, None, *models, ITERATIONS, cv2.GC_INIT_WITH_MASK)  # type: ignore[call-overload]
    return np.isin(trust, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8)


def carry_mask(source: np.ndarray, ids: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Move a mask along the optical flow from one frame to another.

    Args:
        source: Frame of the mask, (H, W, 3) RGB.
        ids: Its class ids, (H, W).
        target: Other frame of the same size.
    """
    height, width = ids.shape
    scale = min(1.0, MAX_FLOW_SIDE / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = (cv2.resize(one, size, interpolation=cv2.INTER_AREA) for one in (target, source))
    grey = [cv2.cvtColor(one, cv2.COLOR_RGB2GRAY) for one in small]
    if min(size) < 32 or source.shape != target.shape:  # too small for optical flow
        return ids
    flow = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM).calc(*grey, None)  # type: ignore[call-overload]
    flow = cv2.resize(flow, (width, height), interpolation=cv2.INTER_LINEAR) / scale
    rows, columns = np.indices((height, width), np.float32)
    moved = columns + flow[..., 0], rows + flow[..., 1]
    carried = cv2.remap(ids, *moved, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REPLICATE)
    return np.where(carried == IGNORE, ids, carried).astype(np.uint8)
