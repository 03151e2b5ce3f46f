"""Detection of the view: black borders, round views and menus in a few frames of one video."""

from collections.abc import Sequence

import cv2
import numpy as np

from suture.data.view import View

VIEW_FRAMES = 9
"""Most frames of a video in which its view is searched."""
_MAX_STILL_RANGE = 16
"""Pixels whose brightness varies by less show a menu, or a scene at rest."""
Circle = tuple[float, float, float]
"""Centre x, centre y and radius."""


def view_frames(count: int) -> list[int]:
    """Choose the frames, of so many of a video, in which its view is searched.

    >>> view_frames(17), view_frames(3)
    ([0, 2, 4, 6, 8, 10, 12, 14, 16], [0, 1, 2])
    """
    chosen = min(VIEW_FRAMES, count)
    return [place * (count - 1) // max(chosen - 1, 1) for place in range(chosen)]


def find_view(frames: Sequence[np.ndarray]) -> View | None:
    """Find the view in a few frames of one video: black borders, and a circle where they are round.

    A border is black in every frame and ends sharply. A dark scene brightens somewhere in time, a vignette fades. A
    menu beside a round scene stays the same in every frame.

    Returns:
        The view, or None if it is the whole frame.
    """
    if not frames or min(frames[0].shape[:2]) < 16:
        return None
    height, width = frames[0].shape[:2]
    darkest, brightest = _extremes([frame for frame in frames if frame.shape[:2] == (height, width)])
    dark = _dark(brightest)
    if dark is None or (scene := _scene(dark)) is None:
        return None
    circle = _circle(scene, brightest)
    if circle is None:
        moving = _scene(dark | (brightest - darkest < _MAX_STILL_RANGE))
        if moving is not None and (circle := _circle_beside_menus(moving, brightest, dark)):
            scene = moving
    left, top, right, bottom = _box(scene, brightest, check_sides=circle is None)
    scale = max(height / scene.shape[0], width / scene.shape[1])
    if circle:
        cx, cy, radius = circle
        left, right = max(left, int(cx - radius)), min(right, int(np.ceil(cx + radius)))
        top, bottom = max(top, int(cy - radius)), min(bottom, int(np.ceil(cy + radius)))
        circle = (round(cx * scale, 1), round(cy * scale, 1), round(radius * scale, 1))
    x, y = int(np.ceil(left * scale)), int(np.ceil(top * scale))
    view = View(x, y, min(width, round(right * scale)) - x, min(height, round(bottom * scale)) - y, circle)
    return None if view == View(0, 0, width, height) else view


def _extremes(frames: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Compute each pixel's darkest and brightest value over the frames, at a small size and without speckle."""
    height, width = frames[0].shape[:2]
    scale = min(1.0, 640 / max(height, width))
    size = (round(width * scale), round(height * scale))
    small = [cv2.resize(frame.max(axis=2), size, interpolation=cv2.INTER_AREA) for frame in frames]
    darkest, brightest = (cv2.medianBlur(extreme(small, axis=0), 5).astype(np.float32) for extreme in (np.min, np.max))
    return darkest, brightest


def _dark(brightest: np.ndarray) -> np.ndarray | None:
    """Mark the pixels that are as dark as a border; None without a border or a scene."""
    ring = np.concatenate(
        [brightest[:2].ravel(), brightest[-2:].ravel(), brightest[:, :2].ravel(), brightest[:, -2:].ravel()]
    )
    black = float(np.percentile(ring, 3))
    lit = brightest[brightest > black + 24]
    if black > 40 or lit.size < 0.05 * brightest.size:
        return None
    return brightest <= black + max(12.0, 0.15 * (float(np.median(lit)) - black))


def _scene(outside: np.ndarray) -> np.ndarray | None:
    """Mark the scene: the largest part that `outside` does not connect to the frame's edge."""
    _, parts = cv2.connectedComponents(np.pad(outside, 1, constant_values=True).astype(np.uint8), connectivity=4)
    lit_parts = (parts != parts[0, 0])[1:-1, 1:-1].astype(np.uint8)
    # Opening cuts text and menus in the border off from the scene.
    opened = cv2.morphologyEx(lit_parts, cv2.MORPH_OPEN, np.ones((5, 5), np.uint8), borderValue=0)
    count, parts, stats, _ = cv2.connectedComponentsWithStats(opened, connectivity=4)
    return parts == 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA])) if count > 1 else None


def _box(scene: np.ndarray, brightest: np.ndarray, check_sides: bool) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the scene; a side without a real border lies at the frame's edge."""
    (left, right), (top, bottom) = _extent(scene.mean(axis=0)), _extent(scene.mean(axis=1))
    height, width = scene.shape
    across, down = brightest[top:bottom], brightest[:, left:right]
    sides = (  # how deep the border is, and the brightness from the frame's edge inwards
        (left, across.T),
        (top, down),
        (width - right, across.T[::-1]),
        (height - bottom, down[::-1]),
    )
    left, top, right, bottom = (
        depth if depth > 0.01 * len(lines) and (not check_sides or _is_sharp(np.median(lines, axis=1), depth)) else 0
        for depth, lines in sides
    )
    return left, top, width - right, height - bottom


def _extent(share: np.ndarray) -> tuple[int, int]:
    """First and last + 1 of the rows or columns that hold more than a few pixels of the scene."""
    held = np.flatnonzero(share > 0.05)
    return (int(held[0]), int(held[-1]) + 1) if held.size else (0, len(share))


def _is_sharp(profile: np.ndarray, edge: float) -> bool:
    """Test whether a brightness profile jumps at `edge`; vignettes and shadows rise slowly."""
    near, wide = max(2.0, 0.015 * len(profile)), max(8.0, 0.08 * len(profile))
    at = np.interp([edge - near, edge + near, edge + wide], np.arange(len(profile)) + 0.5, profile)
    jump = at[1] - at[0]
    return bool(jump >= 12 and jump >= 0.5 * (at[2] - at[0]))


def _circle(scene: np.ndarray, brightest: np.ndarray) -> Circle | None:
    """Find the round border around the scene, if it has one."""
    left, top, right, bottom = _box(scene, brightest, check_sides=False)
    margin = 0.015 * max(scene.shape)
    contours, _ = cv2.findContours(scene.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    x, y = max(contours, key=len)[:, 0].T + 0.5
    on_box = (x < left + margin) | (x > right - margin) | (y < top + margin) | (y > bottom - margin)
    # On a circle that touches the box, only the touching points are lost; of a rectangle, nothing is left.
    points = np.stack([x, y], axis=1)[~on_box]
    if len(points) < 0.05 * len(x):
        return None
    fit = _fit_circle(points, tolerance=margin)
    if fit is None:
        return None
    cx, cy, radius = fit
    rows, columns = np.ogrid[: scene.shape[0], : scene.shape[1]]
    disc = (columns + 0.5 - cx) ** 2 + (rows + 0.5 - cy) ** 2 <= radius**2
    box = np.zeros_like(scene)
    box[top:bottom, left:right] = True
    spilled = (scene & ~disc).sum() / scene.sum()
    cut_off = (box & ~disc).sum() / box.sum()
    if radius < 0.3 * min(scene.shape) or spilled > 0.02 or cut_off < 0.01:
        return None
    angles = np.linspace(0, 2 * np.pi, 256, endpoint=False)
    radii = np.arange(0.0, 2 * radius)
    sample_x = (cx + np.outer(radii, np.cos(angles))).astype(np.float32)
    sample_y = (cy + np.outer(radii, np.sin(angles))).astype(np.float32)
    polar = cv2.remap(brightest, sample_x - 0.5, sample_y - 0.5, cv2.INTER_LINEAR, borderValue=-1)
    beyond = round(radius + margin)
    seen = polar[beyond] >= 0
    if seen.sum() < 8:
        return None
    profile = np.median(polar[: beyond + 1, seen], axis=1)[::-1]
    return fit if _is_sharp(np.maximum(profile, 0), len(profile) - radius) else None


def _circle_beside_menus(moving: np.ndarray, brightest: np.ndarray, dark: np.ndarray) -> Circle | None:
    """Find the round border around the moving part; it must be mostly black, or something round moves in a scene."""
    circle = _circle(moving, brightest)
    if circle is None:
        return None
    height, width = dark.shape
    outside = ~View(0, 0, width, height, circle).mask(width, height)
    return circle if dark[outside].mean() > 0.5 else None


def _fit_circle(points: np.ndarray, tolerance: float) -> Circle | None:
    """Fit the circle of most points: three-point samples, then least squares on those that agree."""
    generator = np.random.default_rng(0)
    best: np.ndarray | None = None
    for _ in range(200):
        near = _near_circle(_through(points[generator.choice(len(points), 3, replace=False)]), points, tolerance)
        if best is None or near.sum() > best.sum():
            best = near
    if best is None or best.mean() < 0.6:
        return None
    for _ in range(3):
        fit = _through(points[best])
        best = _near_circle(fit, points, tolerance)
        if best.sum() < 3:
            return None
    return fit


def _through(points: np.ndarray) -> Circle:
    """Fit a circle through points by linear least squares: x² + y² = 2ax + 2by + c."""
    matrix = np.column_stack([2 * points, np.ones(len(points))])
    (a, b, c), *_ = np.linalg.lstsq(matrix, (points**2).sum(axis=1), rcond=None)
    return float(a), float(b), float(np.sqrt(max(c + a * a + b * b, 0.0)))


def _near_circle(circle: Circle, points: np.ndarray, tolerance: float) -> np.ndarray:
    cx, cy, radius = circle
    return np.abs(np.hypot(points[:, 0] - cx, points[:, 1] - cy) - radius) < tolerance
